// Command demo fills the running dev stack (`make run`) and then sends requests to it until Ctrl-C or `make demo STOP=1`:
//
//	make demo
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"modelgateway/scripts/demo"
	"modelgateway/scripts/devstack"
)

func main() {
	dir := flag.String("dir", ".dev", "directory of the running dev stack")
	end := flag.Bool("stop", false, "end the demo that runs, and exit")
	fill := flag.Bool("fill", false, "send no live traffic, and exit when the product is filled")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, *dir, *end, *fill)
	interrupted := ctx.Err() != nil
	cancel()
	if err != nil && !interrupted {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, end, fill bool) (err error) {
	lock, owner, err := acquire(filepath.Join(dir, "demo.pid"))
	if err != nil {
		return err
	}

	switch {
	case end && owner == 0:
		_, _ = fmt.Fprintln(os.Stdout, "no demo is running")
		return errors.Join(lock.Close())
	case end:
		return errors.Join(syscall.Kill(owner, syscall.SIGTERM))
	case owner != 0:
		return fmt.Errorf("a demo is running as process %d; make demo STOP=1 ends it", owner)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	state, err := load(filepath.Join(dir, "stack.json"))
	if err != nil {
		return err
	}

	d, err := demo.New(demo.Config{State: state, Out: os.Stdout})
	if err != nil {
		return err
	}
	if err := d.Fill(ctx); err != nil {
		return err
	}

	_, _ = fmt.Fprintf(os.Stdout, "\nThe console is at %s/console/.\n", state.AdminURL)
	if fill {
		return nil
	}

	traffic, err := d.Traffic(ctx)
	if err != nil {
		return err
	}

	_, _ = fmt.Fprintln(os.Stdout, "Five requests per second are sent until Ctrl-C or make demo STOP=1.")
	traffic.Run(ctx)
	return nil
}

func load(file string) (state devstack.State, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return state, fmt.Errorf("%w (is `make run` running?)", err)
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return state, fmt.Errorf("%s: %w", file, err)
	}
	return state, nil
}

// acquire locks the file and writes the id of this process into it. If another process has it, its id is returned. The
// kernel unlocks the file of a killed process, so that a wrong process is never ended.
func acquire(name string) (file *os.File, owner int, err error) {
	file, err = os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("%w (is `make run` running?)", err)
	}

	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, 0, fmt.Errorf("read %s: %w", name, err)
		}
		owner, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return nil, owner, errors.Join(err, file.Close())
	}

	if err == nil {
		err = file.Truncate(0)
	}
	if err == nil {
		_, err = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("lock %s: %w", name, err), file.Close())
	}

	return file, 0, nil
}
