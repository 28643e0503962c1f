package proxybench

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Flood is the load of a noisy account: a thousand connections with the dearest requests,
// repeated at once when they are refused. Its model has a provider of its own, which should not
// serve the quiet account.
func Flood() Scenario {
	return Scenario{Name: "flood, 1 MB prompt", Unit: "request", PerRequest: 1, Prompt: 1_000_000, Conns: 1000, Model: "flood"}
}

// The quiet account has this number of connections, and begins a request on each of them at this interval.
const (
	quietConns    = 4
	quietInterval = 10 * time.Millisecond
)

// Latencies has the times of the complete answers to the quiet account, sorted. A time begins when the request was due,
// so that a request that waits for a late answer on its connection is late, too.
type Latencies struct {
	Times    []time.Duration
	Failures int
	// Err is the first failure.
	Err error
}

// Quantile returns the time within which a share of the answers came.
func (l *Latencies) Quantile(share float64) time.Duration {
	if len(l.Times) == 0 {
		return 0
	}
	return l.Times[min(int(share*float64(len(l.Times))), len(l.Times)-1)]
}

// RunFlood sends a flood until ctx ends, and calls began after the first answer. It returns the
// number of complete answers and that of the others.
func RunFlood(ctx context.Context, t Target, flood Scenario, began func()) (complete, refused int64) {
	transport := &http.Transport{MaxIdleConnsPerHost: flood.Conns, DisableCompression: true}
	defer transport.CloseIdleConnections()
	l := &load{scenario: flood, target: t, client: &http.Client{Transport: transport}, body: prompt(flood), answered: make(chan struct{})}
	var workers sync.WaitGroup
	for i := range flood.Conns {
		workers.Go(func() { l.work(ctx, i) })
	}
	select {
	case <-l.answered:
		began()
	case <-ctx.Done():
	}
	workers.Wait()
	return l.complete.Load(), l.failures.Load()
}

// MeasureNeighbour measures the latencies of a quiet account for the duration d without other
// load, and for d beside the flood of a noisy account. start starts the flood and returns after
// its first answer; the flood must not share the scheduler of this process, because its
// goroutines would delay the measurement itself.
func MeasureNeighbour(ctx context.Context, quiet Target, start func() (stop func() error, err error), d time.Duration) (alone, beside Latencies, err error) {
	alone = measureLatencies(ctx, quiet, d)
	stop, err := start()
	if err != nil {
		return alone, beside, err
	}
	pause(ctx, warmUp)
	beside = measureLatencies(ctx, quiet, d)
	if err := errors.Join(stop(), ctx.Err()); err != nil {
		return alone, beside, fmt.Errorf("measure the neighbour: %w", err)
	}
	return alone, beside, nil
}

func measureLatencies(ctx context.Context, t Target, d time.Duration) (all Latencies) {
	s := Scenario{Prompt: 1000}
	transport := &http.Transport{MaxIdleConnsPerHost: quietConns, DisableCompression: true}
	defer transport.CloseIdleConnections()
	l := &load{scenario: s, target: t, client: &http.Client{Transport: transport}, body: prompt(s)}
	began := time.Now()
	var mu sync.Mutex
	var workers sync.WaitGroup
	for i := range quietConns {
		workers.Go(func() {
			var answer bytes.Buffer
			due := began.Add(quietInterval * time.Duration(i) / quietConns)
			for ; due.Sub(began) <= d && ctx.Err() == nil; due = due.Add(quietInterval) {
				pause(ctx, time.Until(due))
				err := l.request(ctx, &answer)
				took := time.Since(due)
				mu.Lock()
				if err == nil {
					all.Times = append(all.Times, took)
				} else {
					all.Failures++
					all.Err = cmp.Or(all.Err, err)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	slices.Sort(all.Times)
	return all
}
