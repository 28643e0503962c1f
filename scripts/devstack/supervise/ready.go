package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	// probeInterval is the interval between probes of a starting part.
	probeInterval = 50 * time.Millisecond
	// probeTimeout bounds one probe.
	probeTimeout = 5 * time.Second
)

// shownLines is the number of log lines in an error.
const shownLines = 15

// AwaitReady waits until the URL answers 200. If the child ends first, or ctx ends, it
// returns an error with the last lines of the child's log.
func AwaitReady(ctx context.Context, child *Child, url string) error {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		err := probe(ctx, url)
		if err == nil {
			return nil
		}
		select {
		case <-child.Done():
			return fmt.Errorf("the process ended (%w) before it was ready:\n%s", exitError(child), child.Log(shownLines))
		case <-ctx.Done():
			return fmt.Errorf("the process is not ready (%w; %w):\n%s", err, context.Cause(ctx), child.Log(shownLines))
		case <-tick.C:
		}
	}
}

// exitError returns the exit code or signal of a child as an error, also for exit code 0.
func exitError(child *Child) error {
	if err := child.Err(); err != nil {
		return err
	}
	return errors.New("exit status 0")
}

// probe returns nil when the URL answers 200.
func probe(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}

	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	defer func() { _ = response.Body.Close() }()

	if response.StatusCode != http.StatusOK {
		const longest = 1 << 10
		text, _ := io.ReadAll(io.LimitReader(response.Body, longest))
		return fmt.Errorf("%s answers %s: %s", url, response.Status, strings.TrimSpace(string(text)))
	}

	return nil
}
