// Command providersim runs the provider simulator as a server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"modelgateway/scripts/providersim"
)

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, log, os.Args[1:])
	stop()
	if err != nil {
		log.Error("the provider simulator failed", "error", err)
		os.Exit(1)
	}
}

type options struct {
	addr, keys, journal string
	stopTimeout         time.Duration
	sim                 providersim.Config
}

func parseOptions(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("providersim", flag.ContinueOnError)
	f.StringVar(&o.addr, "addr", "127.0.0.1:9100", "address to listen on")
	f.StringVar(
		&o.keys,
		"keys",
		os.Getenv("PROVIDERSIM_KEYS"),
		"accepted keys, separated by commas; empty accepts every key (environment: PROVIDERSIM_KEYS)",
	)
	f.StringVar(&o.journal, "journal", "", "file that completed requests are appended to, one JSON object per line")
	f.IntVar(&o.sim.JournalMax, "journal-max", 100_000, "number of journal entries in memory")
	f.DurationVar(&o.sim.ChunkDelay, "chunk", 5*time.Millisecond, "pause between two events of a stream")
	f.DurationVar(&o.sim.Delay, "delay", 0, "pause before the first byte of an answer")
	f.IntVar(&o.sim.WordsPerEvent, "words", 1, "words per event of a stream")
	f.DurationVar(&o.stopTimeout, "stop-timeout", 5*time.Second, "time that running answers have to complete when the server stops")
	if err := f.Parse(args); err != nil {
		return o, fmt.Errorf("parse flags: %w", err)
	}

	for key := range strings.SplitSeq(o.keys, ",") {
		if key = strings.TrimSpace(key); key != "" {
			o.sim.Keys = append(o.sim.Keys, key)
		}
	}

	return o, nil
}

// run serves until ctx ends, and then waits for running answers until the stop timeout.
func run(ctx context.Context, log *slog.Logger, args []string) (err error) {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}

	if o.journal != "" {
		file, openErr := os.OpenFile(o.journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if openErr != nil {
			return fmt.Errorf("open journal: %w", openErr)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		o.sim.JournalWriter = file
	}

	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", o.addr)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}

	sim := providersim.New(o.sim)
	server := &http.Server{Handler: sim, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	log.Info("the provider simulator is listening", "addr", listener.Addr().String())

	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}

	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.stopTimeout)
	defer cancel()

	if server.Shutdown(stopCtx) != nil {
		sim.Close() // ends hanging requests
		err = server.Close()
		// The journal file must stay open until the last entry is written.
		err = errors.Join(err, sim.WaitIdle(context.WithoutCancel(ctx)))
	}

	<-failed //nolint:errcheck // always http.ErrServerClosed
	log.Info("the provider simulator stopped")
	return err
}
