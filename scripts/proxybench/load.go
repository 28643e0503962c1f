package proxybench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Target is a proxy under load.
type Target struct {
	Name, BaseURL, Key string
	// PID is its process, whose CPU time counts.
	PID int
}

// Scenario is a kind of load.
type Scenario struct {
	Name string
	// Unit is what the CPU time is for, of which a request has PerRequest.
	Unit       string
	PerRequest int
	Stream     bool
	// Memory: what counts is the peak of the memory, not the CPU time.
	Memory bool
	// Paced streams have an event every now and then, not all of them at once.
	Paced  bool
	Prompt int
	Conns  int
}

// JSON returns the usual load: small requests, as many as can be.
func JSON() Scenario {
	return Scenario{Name: "JSON, 1 KB prompt", Unit: "request", PerRequest: 1, Prompt: 1000, Conns: 32}
}

// Scenarios are what is measured. Memory comes first, as a load of requests
// leaves garbage, and large prompts come last.
func Scenarios() []Scenario {
	return []Scenario{
		{Name: "500 streams, an event each 20 ms", Memory: true, Stream: true, Paced: true, Prompt: 1000, Conns: 500},
		JSON(),
		{Name: "stream, burst of 100 events", Unit: "event", PerRequest: eventsPerStream, Stream: true, Prompt: 1000, Conns: 16},
		{Name: "JSON, 1 MB prompt", Unit: "request", PerRequest: 1, Prompt: 1_000_000, Conns: 8},
	}
}

// Result is one measurement.
type Result struct {
	// CPU is the time of the process for a unit.
	CPU time.Duration
	// Requests is how many were whole, Faults how many were not.
	Requests, Faults int64
	Fault            error
	// Peak is the most memory of the process that was in use, in bytes.
	Peak int64
}

// warmUp goes before a measurement.
const warmUp = 500 * time.Millisecond

// Measure loads a target for a time, or until there is an answer if none comes
// that soon.
func Measure(ctx context.Context, s Scenario, t Target, d time.Duration) (Result, error) {
	if err := forgetPeak(t.PID); err != nil {
		return Result{}, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: s.Conns, DisableCompression: true}
	defer transport.CloseIdleConnections()
	l := &load{
		scenario: s, target: t, client: &http.Client{Transport: transport}, body: prompt(s), answered: make(chan struct{}),
	}
	ctx, stop := context.WithCancel(ctx)
	var workers sync.WaitGroup
	for range s.Conns {
		workers.Go(func() { l.work(ctx) })
	}
	defer workers.Wait()
	defer stop()
	pause(ctx, warmUp)
	requests, faults := l.whole.Load(), l.faults.Load()
	cpu, err := cpuTime(t.PID)
	if err != nil {
		return Result{}, err
	}
	pause(ctx, d)
	for ctx.Err() == nil && l.whole.Load() == requests && l.faults.Load() == faults {
		select {
		case <-l.answered:
		case <-ctx.Done():
		}
	}
	after, err := cpuTime(t.PID)
	if err != nil {
		return Result{}, err
	}
	peak, err := peakMemory(t.PID)
	if err != nil {
		return Result{}, err
	}
	requests = l.whole.Load() - requests
	r := Result{Requests: requests, Faults: l.faults.Load(), Fault: l.err(), Peak: peak}
	if requests > 0 && !s.Memory {
		r.CPU = (after - cpu) / time.Duration(requests*int64(s.PerRequest))
	}
	return r, ctx.Err()
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// load is many connections that each send one request after the other.
type load struct {
	scenario      Scenario
	target        Target
	client        *http.Client
	body          []byte
	whole, faults atomic.Int64
	first         atomic.Pointer[error]
	// answered tells who waits that a request has ended.
	answered chan struct{}
}

func (l *load) err() error {
	if first := l.first.Load(); first != nil {
		return *first
	}
	return nil
}

func (l *load) work(ctx context.Context) {
	var answer bytes.Buffer
	for ctx.Err() == nil {
		err := l.request(ctx, &answer)
		switch {
		case err == nil:
			l.whole.Add(1)
		case ctx.Err() == nil:
			l.faults.Add(1)
			l.first.CompareAndSwap(nil, &err)
		}
		select {
		case l.answered <- struct{}{}:
		default:
		}
	}
}

var errCut = errors.New("the answer is not whole")

// request sends a request and checks that its answer is whole.
func (l *load) request(ctx context.Context, answer *bytes.Buffer) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.target.BaseURL+"/v1/chat/completions", bytes.NewReader(l.body))
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+l.target.Key)
	r.Header.Set("Content-Type", "application/json")
	response, err := l.client.Do(r)
	if err != nil {
		return fmt.Errorf("send request: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	answer.Reset()
	if _, err := io.Copy(answer, response.Body); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %.200s", response.StatusCode, answer)
	}
	if l.scenario.Stream {
		if n := bytes.Count(answer.Bytes(), []byte(`"content":"word`)); n != eventsPerStream || !bytes.HasSuffix(answer.Bytes(), []byte("data: [DONE]\n\n")) {
			return fmt.Errorf("%w: %d events", errCut, n)
		}
	} else if !bytes.Contains(answer.Bytes(), []byte(`"word word`)) {
		return errCut
	}
	return nil
}
