package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/devstack"
	"modelgateway/scripts/proxybench"
)

// neighbour prints the latencies of a quiet account alone and beside a noisy one.
func neighbour(ctx context.Context, o options, state *devstack.State, provider, floodProvider int) error {
	key, err := newAccount(ctx, state)
	if err != nil {
		return err
	}
	if err := separate(ctx, o.apart, state.PIDs[devstack.DataPlaneName(0)], provider, floodProvider); err != nil {
		return err
	}
	quiet := proxybench.Target{Name: "quiet", BaseURL: state.BaseURL, Key: key}
	none := func() (func() error, error) { return func() error { return nil }, nil }
	if _, _, err := proxybench.MeasureNeighbour(ctx, quiet, none, warmUpTime); err != nil {
		return err
	}
	for range o.rounds {
		var counts string
		alone, beside, err := proxybench.MeasureNeighbour(ctx, quiet, func() (func() error, error) { return startFlood(ctx, state, &counts) }, o.each)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stdout, "p50 alone %s, beside %s; p99 alone %s, beside %s (× %.2f); %d answers, %d failures beside; flood: %s\n",
			alone.Quantile(.5), beside.Quantile(.5), alone.Quantile(.99), beside.Quantile(.99),
			float64(beside.Quantile(.99))/float64(alone.Quantile(.99)), len(beside.Times), beside.Failures, counts)
	}
	return nil
}

// separate runs the gateway, this process and the quiet account's provider before other programs, as far as this user may
// do that: the flood and its provider then get the time that is left. With apart the gateway has the first processor, and
// all others have the second one.
func separate(ctx context.Context, apart bool, gateway, provider, floodProvider int) error {
	for pid, processor := range map[int]string{gateway: "0", provider: "1", floodProvider: "1", os.Getpid(): "1"} {
		if apart {
			out, err := exec.CommandContext(ctx, "taskset", "--all-tasks", "--cpu-list", "--pid", processor, strconv.Itoa(pid)).CombinedOutput()
			if err != nil {
				return fmt.Errorf("assign processors: %w: %s", err, out)
			}
		}
		if pid == floodProvider {
			continue
		}
		const high = -10
		if err := setPriority(pid, high); err != nil && !errors.Is(err, syscall.EACCES) && !errors.Is(err, syscall.EPERM) {
			return err
		}
	}
	return nil
}

// setPriority sets the priority of all threads of a process.
func setPriority(pid, priority int) error {
	threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	for _, thread := range threads {
		id, _ := strconv.Atoi(thread.Name()) // always a number
		err = errors.Join(err, syscall.Setpriority(syscall.PRIO_PROCESS, id, priority))
	}
	if err != nil {
		return fmt.Errorf("set the priority: %w", err)
	}
	return nil
}

// keyVariable names the environment variable with the key of the noisy account.
const keyVariable = "PROXYBENCH_KEY"

// startFlood starts the flood as a process of its own. stop ends it, and sets counts to the numbers of its answers.
func startFlood(ctx context.Context, state *devstack.State, counts *string) (stop func() error, err error) {
	c, err := start(ctx, "flood="+state.BaseURL, keyVariable+"="+state.APIKey)
	if err != nil {
		return nil, err
	}
	return func() error {
		defer c.end()
		if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
			return fmt.Errorf("end the flood: %w", err)
		}
		var complete, refused int64
		if _, err := fmt.Fscanln(c.out, &complete, &refused); err != nil {
			return fmt.Errorf("end the flood: %w", err)
		}
		*counts = fmt.Sprintf("%d complete, %d refused", complete, refused)
		return nil
	}, nil
}

// flood sends the flood with the least priority until the process is interrupted: beside it the quiet account's client
// must get the processor at once, or its own waiting would be measured.
func flood(ctx context.Context, url string) error {
	const least = 19
	if err := setPriority(os.Getpid(), least); err != nil {
		return err
	}
	target := proxybench.Target{Name: "noisy", BaseURL: url, Key: os.Getenv(keyVariable)}
	complete, refused := proxybench.RunFlood(ctx, target, proxybench.Flood(), func() { fmt.Fprintln(os.Stdout, strings.TrimPrefix(url, "http://")) })
	fmt.Fprintln(os.Stdout, complete, refused)
	return nil
}

// newAccount creates an account with a balance and returns its key.
func newAccount(ctx context.Context, state *devstack.State) (key string, err error) {
	admin, err := adminclient.New(state.AdminURL, state.AdminToken)
	if err != nil {
		return "", fmt.Errorf("admin client: %w", err)
	}
	account, err := admin.CreateAccount(ctx, nil, adminclient.AccountCreate{Name: "quiet"})
	if err != nil {
		return "", fmt.Errorf("create account: %w", err)
	}
	_, err = admin.CreateCredit(ctx, account.Value.ID, nil, adminclient.CreditCreate{Amount: "1000.00", Kind: adminclient.CreditKindTopUp, Reference: "bench"})
	if err != nil {
		return "", fmt.Errorf("credit account: %w", err)
	}
	made, err := admin.CreateKey(ctx, account.Value.ID, nil, adminclient.KeyCreate{Name: "bench"})
	if err != nil {
		return "", fmt.Errorf("create key: %w", err)
	}
	return made.Value.Secret, nil
}
