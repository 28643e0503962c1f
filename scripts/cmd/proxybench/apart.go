package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"modelgateway/scripts/devstack"
	"modelgateway/scripts/proxybench"
)

// loader is the child process that sends the requests of one measurement. This process has the NATS server, whose CPU time
// is measured.
const loader = "load"

// peerPatience is how much longer than planned the measurement of a peer may take.
const peerPatience = 30 * time.Second

// measurement is what a loader gets.
type measurement struct {
	Scenario proxybench.Scenario
	Target   proxybench.Target
	For      time.Duration
}

// measured is what a loader prints.
type measured struct {
	Result proxybench.Result
	// Failure is the text of Result.Err.
	Failure string
}

// measureApart is proxybench.Measure in a child process.
func measureApart(ctx context.Context, s proxybench.Scenario, t proxybench.Target, d time.Duration) (proxybench.Result, error) {
	input, err := json.Marshal(measurement{s, t, d})
	if err != nil {
		return proxybench.Result{}, fmt.Errorf("encode measurement: %w", err)
	}

	self, err := os.Executable()
	if err != nil {
		return proxybench.Result{}, fmt.Errorf("find this program: %w", err)
	}

	if t.Peer { // it may never answer
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, d+peerPatience)
		defer stop()
	}

	cmd := exec.CommandContext(ctx, self, "-child", loader)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return proxybench.Result{}, errors.Join(fmt.Errorf("measure: %w", err), ctx.Err())
	}

	var m measured
	if err := json.Unmarshal(output, &m); err != nil {
		return proxybench.Result{}, fmt.Errorf("decode measurement: %w", err)
	}
	if m.Failure != "" {
		m.Result.Err = errors.New(m.Failure)
	}

	return m.Result, nil
}

// measureForParent reads a measurement and prints its result.
func measureForParent(ctx context.Context) error {
	var m measurement
	if err := json.NewDecoder(os.Stdin).Decode(&m); err != nil {
		return fmt.Errorf("decode measurement: %w", err)
	}

	r, err := proxybench.Measure(ctx, m.Scenario, m.Target, m.For)
	if err != nil {
		return err
	}

	result := measured{Result: r}
	if r.Err != nil {
		result.Failure = r.Err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		return fmt.Errorf("print result: %w", err)
	}

	return nil
}

// parts returns the processes that work for the requests of the data plane. The NATS server runs in this process.
func parts(state *devstack.State) []proxybench.Part {
	return []proxybench.Part{
		{Name: "control plane", PID: state.PIDs[devstack.ControlPlaneName(0)]},
		{Name: "Postgres", PID: state.PIDs["postgres"], Children: true},
		{Name: "NATS", PID: os.Getpid()},
	}
}
