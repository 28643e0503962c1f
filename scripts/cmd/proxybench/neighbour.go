package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	gateway := state.PIDs[devstack.DataPlaneName(0)]
	if o.apart {
		if err := bind(ctx, gateway, "0"); err != nil {
			return err
		}
	}
	// Among equal priorities a thread may run for 100 ms before the next one: these three need not wait for the others.
	for _, process := range []int{os.Getpid(), provider, gateway} {
		if err := prefer(ctx, process, 2); err != nil {
			return err
		}
	}
	if err := postpone(ctx, floodProvider); err != nil {
		return err
	}
	quiet := proxybench.Target{Name: "quiet", BaseURL: state.BaseURL, Key: key}
	none := func() (func() error, error) { return func() error { return nil }, nil }
	if _, _, err := proxybench.MeasureNeighbour(ctx, quiet, none, warmUpTime); err != nil {
		return err
	}
	var ratios []float64
	for range o.rounds {
		var counts string
		alone, beside, err := proxybench.MeasureNeighbour(ctx, quiet, func() (func() error, error) { return startFlood(ctx, state, &counts) }, o.each)
		if err != nil {
			return err
		}
		ratio := float64(beside.Quantile(.99)) / float64(alone.Quantile(.99))
		ratios = append(ratios, ratio)
		fmt.Fprintf(os.Stdout, "p50 alone %s, beside %s; p99 alone %s, beside %s (× %.2f); longest %s, %s; %d answers, %d failures beside; flood: %s\n",
			alone.Quantile(.5), beside.Quantile(.5), alone.Quantile(.99), beside.Quantile(.99),
			ratio, alone.Quantile(1), beside.Quantile(1), len(beside.Times), beside.Failures, counts)
		if err := cmp.Or(alone.Err, beside.Err); err != nil {
			fmt.Fprintln(os.Stdout, "the first failure of the quiet account:", err)
		}
	}
	slices.Sort(ratios)
	fmt.Fprintf(os.Stdout, "p99 ratio of %d rounds: least %.2f, median %.2f, most %.2f\n", len(ratios), ratios[0], ratios[len(ratios)/2], ratios[len(ratios)-1])
	return nil
}

// bind lets a process, and those that it starts from then on, run only on some processors, such as "1-3".
func bind(ctx context.Context, process int, processors string) error {
	out, err := exec.CommandContext(ctx, "taskset", "--all-tasks", "--cpu-list", "--pid", processors, strconv.Itoa(process)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("assign processors: %w: %s", err, out)
	}
	return nil
}

// prefer lets the processes of the stack and of the quiet account run before all other programs, as far as this user may do
// that: process and those that it starts from then on. priority is at least 1, the greater goes first.
func prefer(ctx context.Context, process, priority int) error {
	return setRank(ctx, process, "--rr", priority, -9-priority)
}

// postpone lets the flood run when nothing of the stack and of the quiet account needs the processor, as if it came from
// another machine, but rather than other programs. Otherwise the queue for the processors would be measured, in which the
// quiet account's client waits behind the flood's. With a real-time priority the kernel would stop all of them from time
// to time.
func postpone(ctx context.Context, process int) error {
	return errors.Join(setRank(ctx, process, "--other", 0, 19), ignoreDenied(setPriority(process, -20)))
}

// setRank sets the scheduling policy and the real-time priority of a process, or without the permission for that a nice
// value.
func setRank(ctx context.Context, process int, policy string, priority, nice int) error {
	if exec.CommandContext(ctx, "chrt", "--all-tasks", policy, "--pid", strconv.Itoa(priority), strconv.Itoa(process)).Run() == nil {
		return nil
	}
	return ignoreDenied(setPriority(process, nice))
}

// ignoreDenied returns the error unless it is a missing permission.
func ignoreDenied(err error) error {
	if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) {
		return nil
	}
	return err
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

// flood sends the flood until the process is interrupted.
func flood(ctx context.Context, url string) error {
	if err := postpone(ctx, os.Getpid()); err != nil {
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
