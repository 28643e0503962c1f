package proxybench

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Flood is the load of a noisy account: a thousand connections with the dearest requests,
// repeated at once when they are refused.
func Flood() Scenario {
	return Scenario{Name: "flood, 1 MB prompt", Unit: "request", PerRequest: 1, Prompt: 1_000_000, Conns: 1000}
}

// quietConns is the number of connections of the quiet account.
const quietConns = 4

// Latencies has the times of the complete answers to the quiet account, sorted.
type Latencies struct {
	Times    []time.Duration
	Failures int
}

// Quantile returns the time within which a share of the answers came.
func (l *Latencies) Quantile(share float64) time.Duration {
	if len(l.Times) == 0 {
		return 0
	}
	return l.Times[min(int(share*float64(len(l.Times))), len(l.Times)-1)]
}

// MeasureNeighbour measures the latencies of a quiet account for the duration d without other
// load, and for d while a noisy account sends a flood.
func MeasureNeighbour(ctx context.Context, noisy, quiet Target, flood Scenario, d time.Duration) (alone, beside Latencies, err error) {
	alone = measureLatencies(ctx, quiet, d)
	ctx, stop := context.WithCancel(ctx)
	transport := &http.Transport{MaxIdleConnsPerHost: flood.Conns, DisableCompression: true}
	defer transport.CloseIdleConnections()
	l := &load{scenario: flood, target: noisy, client: &http.Client{Transport: transport}, body: prompt(flood), answered: make(chan struct{})}
	var workers sync.WaitGroup
	for range flood.Conns {
		workers.Go(func() { l.work(ctx) })
	}
	defer workers.Wait()
	defer stop()
	select {
	case <-l.answered: // the flood has begun
	case <-ctx.Done():
	}
	pause(ctx, warmUp)
	beside = measureLatencies(ctx, quiet, d)
	if ctx.Err() != nil {
		return alone, beside, fmt.Errorf("measure the neighbour: %w", ctx.Err())
	}
	return alone, beside, nil
}

func measureLatencies(ctx context.Context, t Target, d time.Duration) (all Latencies) {
	s := Scenario{Prompt: 1000}
	transport := &http.Transport{MaxIdleConnsPerHost: quietConns, DisableCompression: true}
	defer transport.CloseIdleConnections()
	l := &load{scenario: s, target: t, client: &http.Client{Transport: transport}, body: prompt(s)}
	until := time.Now().Add(d)
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range quietConns {
		workers.Go(func() {
			var answer bytes.Buffer
			for done := false; !done && ctx.Err() == nil; done = time.Now().After(until) {
				begun := time.Now()
				err := l.request(ctx, &answer)
				took := time.Since(begun)
				mu.Lock()
				if err == nil {
					all.Times = append(all.Times, took)
				} else {
					all.Failures++
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	slices.Sort(all.Times)
	return all
}
