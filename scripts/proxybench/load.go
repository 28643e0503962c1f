package proxybench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Target is a proxy under load.
type Target struct {
	Name, BaseURL, Key string
	// PID is the process that is measured. Children adds its child processes.
	PID      int
	Children bool
	// Peer is a gateway of others, whose failure does not end a comparison.
	Peer bool
	// Parts are other processes that work for the requests of the target.
	Parts []Part
}

// Part is a process that works for the requests of a target.
type Part struct {
	Name string
	PID  int
	// Children adds its child processes.
	Children bool
}

// PartCPU is the CPU time of a part per unit.
type PartCPU struct {
	Name string
	CPU  time.Duration
}

// Scenario is a kind of load.
type Scenario struct {
	Name string
	// Unit is the unit of the CPU time. A request has PerRequest units.
	Unit       string
	PerRequest int
	Stream     bool
	// Memory selects peak memory as the result, instead of CPU time; Peak adds it.
	Memory, Peak bool
	// Rate is the number of requests that are begun per second, and selects their p99 as a further result; zero: each
	// connection sends one after the other.
	Rate int
	// Paced streams have an interval between their events. Their latencies are further results.
	Paced bool
	// Prompt is the size of the prompt in bytes, Conns the number of connections.
	Prompt, Conns int
	// Model is the model that is asked for; empty: "bench".
	Model string
}

// JSON returns the most common load: small requests at the maximum rate.
func JSON() Scenario {
	return Scenario{
		Name:       "JSON, 1 KB prompt",
		Unit:       "request",
		PerRequest: 1,
		Prompt:     1000,
		Conns:      64,
	}
}

// Scenarios returns all scenarios. Memory is measured first, because the other loads leave
// garbage on the heap; large prompts come last.
func Scenarios() []Scenario {
	return []Scenario{
		{Name: "500 streams, an event each 20 ms", Unit: "event", Peak: true, Stream: true, Paced: true, Prompt: 1000, Conns: 500},
		JSON(),
		{Name: "JSON, 5,000 requests/s", Unit: "request", PerRequest: 1, Prompt: 1000, Conns: 64, Rate: 5000},
		{Name: "JSON, 500 requests/s", Unit: "request", PerRequest: 1, Prompt: 1000, Conns: 64, Rate: 500},
		{Name: "stream, burst of 100 events", Unit: "event", PerRequest: eventsPerStream, Stream: true, Prompt: 1000, Conns: 16},
		{Name: "JSON, 1 MB prompt", Unit: "request", PerRequest: 1, Prompt: 1_000_000, Conns: 8, Peak: true},
	}
}

// Result is one measurement.
type Result struct {
	// CPU is the CPU time of the process per unit.
	CPU time.Duration
	// Requests counts the complete answers, Failures the others. Err is the first error.
	Requests, Failures int64
	Err                error `json:"-"`
	// Peak is the peak memory of the process, in bytes.
	Peak int64
	// P50 and P99 are the times within which half and 99 % of the answers came, from when their requests were due, or of the
	// events of paced streams, from their sending. Only these and loads with a rate have them.
	P50, P99 time.Duration
	// Parts are the CPU times per unit of the parts of the target.
	Parts []PartCPU
}

// warmUp is the duration of the load before a measurement.
const warmUp = 500 * time.Millisecond

// Measure loads a target for the duration d, and longer if there is no answer until then.
func Measure(ctx context.Context, s Scenario, t Target, d time.Duration) (Result, error) {
	if err := t.resetPeak(); err != nil {
		return Result{}, err
	}

	transport := &http.Transport{MaxIdleConnsPerHost: s.Conns, DisableCompression: true}
	defer transport.CloseIdleConnections()

	l := &load{
		scenario: s,
		target:   t,
		client:   &http.Client{Transport: transport},
		body:     prompt(s),
		answered: make(chan struct{}),
	}

	ctx, stop := context.WithCancel(ctx)
	var workers sync.WaitGroup
	for i := range s.Conns {
		workers.Go(func() { l.work(ctx, i) })
	}
	defer workers.Wait()
	defer stop()
	pause(ctx, warmUp)
	l.latencies() // those of the warm-up do not count
	requests, failures := l.complete.Load(), l.failures.Load()
	before, err := t.cpuTimes()
	if err != nil {
		return Result{}, err
	}

	pause(ctx, d)
	for ctx.Err() == nil && l.complete.Load() == requests && l.failures.Load() == failures {
		select {
		case <-l.answered:
		case <-ctx.Done():
		}
	}

	after, err := t.cpuTimes()
	if err != nil {
		return Result{}, err
	}

	peak, err := t.peakMemory()
	if err != nil {
		return Result{}, err
	}

	requests = l.complete.Load() - requests
	took := l.latencies()
	r := Result{
		Requests: requests,
		Failures: l.failures.Load(),
		Err:      l.err(),
		Peak:     peak,
		P50:      took.Quantile(.5),
		P99:      took.Quantile(.99),
	}

	units := time.Duration(requests * int64(s.PerRequest))
	if s.Paced {
		units = time.Duration(len(took.Times)) // most streams are longer than the measurement
	}

	if units > 0 && !s.Memory {
		r.CPU = (after[0] - before[0]) / units
		for i, part := range t.Parts {
			r.Parts = append(r.Parts, PartCPU{part.Name, (after[i+1] - before[i+1]) / units})
		}
	}

	return r, ctx.Err()
}

// cpuTimes returns the CPU times of the process of the target and of its parts.
func (t *Target) cpuTimes() ([]time.Duration, error) {
	var all []time.Duration
	for _, part := range append([]Part{{PID: t.PID, Children: t.Children}}, t.Parts...) {
		own, err := CPUTime([]Part{part})
		if err != nil {
			return nil, err
		}
		all = append(all, own)
	}
	return all, nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// load is a number of connections, each of which sends requests in sequence.
type load struct {
	scenario           Scenario
	target             Target
	client             *http.Client
	body               []byte
	complete, failures atomic.Int64
	first              atomic.Pointer[error]
	// answered gets a value after a request, if Measure waits for it.
	answered chan struct{}

	mu    sync.Mutex
	times []time.Duration // of the complete answers of a load with a rate, and of the events of paced streams
}

// Latencies has the times of complete answers, sorted.
type Latencies struct{ Times []time.Duration }

// Quantile returns the time within which a share of the answers came.
func (l *Latencies) Quantile(share float64) time.Duration {
	if len(l.Times) == 0 {
		return 0
	}
	return l.Times[min(int(share*float64(len(l.Times))), len(l.Times)-1)]
}

// latencies returns the latencies since its last call.
func (l *load) latencies() *Latencies {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := &Latencies{Times: l.times}
	l.times = nil
	slices.Sort(taken.Times)
	return taken
}

func (l *load) err() error {
	if first := l.first.Load(); first != nil {
		return *first
	}
	return nil
}

// work sends the requests of the i-th connection.
func (l *load) work(ctx context.Context, i int) {
	var answer bytes.Buffer
	var interval time.Duration
	due := time.Now()
	if l.scenario.Rate > 0 {
		interval = time.Second * time.Duration(l.scenario.Conns) / time.Duration(l.scenario.Rate)
		due = due.Add(interval * time.Duration(i) / time.Duration(l.scenario.Conns))
	}

	for ; ctx.Err() == nil; due = due.Add(interval) {
		if interval > 0 {
			pause(ctx, time.Until(due))
		}

		err := l.request(ctx, &answer)
		switch {
		case err == nil:
			l.complete.Add(1)
			if interval > 0 {
				l.mu.Lock()
				l.times = append(l.times, time.Since(due))
				l.mu.Unlock()
			}
		case ctx.Err() == nil:
			l.failures.Add(1)
			l.first.CompareAndSwap(nil, &err)
		}

		select {
		case l.answered <- struct{}{}:
		default:
		}
	}
}

// IdleMemory is the scenario of no load: the result is the memory after a time without one.
func IdleMemory(name string) Scenario { return Scenario{Name: name, Memory: true} }

// MeasureIdle returns the memory of a target after it has got no load for the duration d.
func MeasureIdle(ctx context.Context, t Target, d time.Duration) (Result, error) {
	pause(ctx, d)
	if err := t.resetPeak(); err != nil {
		return Result{}, err
	}
	peak, err := t.peakMemory()
	return Result{Peak: peak}, err
}

// eventReader takes the answer of a paced stream and the latencies of its events.
type eventReader struct {
	load   *load
	answer *bytes.Buffer
	seen   int // bytes of the answer
}

func (e *eventReader) Write(p []byte) (int, error) {
	e.answer.Write(p)
	now := time.Now().UnixNano()
	for {
		event, _, complete := bytes.Cut(e.answer.Bytes()[e.seen:], []byte("\n\n"))
		if !complete {
			return len(p), nil
		}
		e.seen += len(event) + 2
		_, text, _ := bytes.Cut(event, sentAt)
		text, _, _ = bytes.Cut(text, []byte(" "))
		if sent, err := strconv.ParseInt(string(text), 10, 64); err == nil {
			e.load.mu.Lock()
			e.load.times = append(e.load.times, time.Duration(now-sent))
			e.load.mu.Unlock()
		}
	}
}

var errIncomplete = errors.New("the answer is incomplete")

// request sends a request and checks that its answer is complete.
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
	var to io.Writer = answer
	if l.scenario.Paced {
		to = &eventReader{load: l, answer: answer}
	}
	if _, err := io.Copy(to, response.Body); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %.200s", response.StatusCode, answer)
	}

	if l.scenario.Stream {
		if n := bytes.Count(answer.Bytes(), sentAt); n != eventsPerStream || !bytes.HasSuffix(answer.Bytes(), []byte("data: [DONE]\n\n")) {
			return fmt.Errorf("%w: %d events", errIncomplete, n)
		}
	} else if !bytes.Contains(answer.Bytes(), []byte(`"word word`)) {
		return errIncomplete
	}

	return nil
}
