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

// probeInterval is the pause between two looks at a part that is starting;
// probeTimeout bounds one look.
const (
	probeInterval = 50 * time.Millisecond
	probeTimeout  = 5 * time.Second
)

// shownLines is how much of a log an error quotes.
const shownLines = 15

// AwaitReady waits until the URL answers 200. It returns an error when the
// child ends first, with the last lines of its log, or when ctx ends, with the
// last answer.
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
			return fmt.Errorf("it ended (%w) before it was ready:\n%s", exitText(child), child.Log(shownLines))
		case <-ctx.Done():
			return fmt.Errorf("it is not ready (%w; %w):\n%s", err, context.Cause(ctx), child.Log(shownLines))
		case <-tick.C:
		}
	}
}

// exitText returns how a child ended, never nil.
func exitText(child *Child) error {
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
