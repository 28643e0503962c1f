package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"modelgateway/scripts/providersim"
)

// interval is the time between two requests of the live traffic.
const interval = 200 * time.Millisecond

// flakyEvery is how many requests there are between two failures of the flaky provider.
const flakyEvery = 60

// A call is one request of the live traffic.
type call struct {
	path, key string
	body      any
	// abandon makes the client disconnect during the answer.
	abandon bool
}

// Traffic sends requests of all kinds.
type Traffic struct {
	demo    *Demo
	random  *rand.Rand
	sent    int
	running sync.WaitGroup
}

// Traffic prepares live traffic. Fill must have been called.
func (d *Demo) Traffic(ctx context.Context) (*Traffic, error) {
	t := &Traffic{demo: d, random: random(2)}
	return t, t.addRules(ctx)
}

// Run sends five requests per second until ctx ends, and then waits for the answers.
func (t *Traffic) Run(ctx context.Context) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	defer t.running.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			next := t.next()
			t.running.Go(func() { t.send(context.WithoutCancel(ctx), next) })
			t.fail(ctx)
		}
	}
}

// clients is how many requests Play sends at the same time.
const clients = 16

// Play sends n requests as fast as the answers come.
func (t *Traffic) Play(ctx context.Context, n int) {
	free := make(chan struct{}, clients)
	defer t.running.Wait()
	for range n {
		free <- struct{}{}
		next := t.next()
		t.running.Go(func() {
			t.send(ctx, next)
			<-free
		})
		t.fail(ctx)
	}
}

// rules let the simulator answer single prompts in special ways.
var rules = []providersim.Rule{
	{Match: providersim.Match{Model: "sim-video", Contains: "a storm that"}, Directives: "fail"},
	{Match: providersim.Match{Model: "sim-video", Contains: "an endless"}, Directives: "polls=1000000"},
	{Match: providersim.Match{Model: "sim-video", Contains: "a letter that"}, Directives: "lostcreate"},
	{Match: providersim.Match{Contains: "a novel of a million pages"}, Directives: "body=context_length"},
	{Match: providersim.Match{Contains: "something forbidden"}, Directives: "body=content_policy"},
	{Match: providersim.Match{Contains: "a long story"}, Directives: "out=400,chunk=10ms"},
	{Match: providersim.Match{Contains: "no answer at all"}, Directives: "status=503"},
}

// addRules adds the rules that the simulator does not have yet.
func (t *Traffic) addRules(ctx context.Context) error {
	var found []providersim.Rule
	if err := t.sim(ctx, http.MethodGet, nil, &found); err != nil {
		return err
	}
	for _, rule := range rules {
		same := func(r providersim.Rule) bool { return r.Match == rule.Match && r.Directives == rule.Directives }
		if slices.ContainsFunc(found, same) {
			continue
		}
		if err := t.sim(ctx, http.MethodPost, rule, nil); err != nil {
			return err
		}
	}
	return nil
}

// fail lets the flaky provider fail from time to time: a few requests, and seldom so many that its breaker opens.
func (t *Traffic) fail(ctx context.Context) {
	if t.sent++; t.sent%flakyEvery != 1 {
		return
	}
	times := int64(2)
	if t.sent%(5*flakyEvery) == 1 {
		times = 12
	}
	rule := providersim.Rule{Match: providersim.Match{Model: flakyUpstream}, Directives: "status=503", Times: times}
	if err := t.sim(ctx, http.MethodPost, rule, nil); err != nil && ctx.Err() == nil {
		t.demo.printf("%v", err)
	}
}

func (t *Traffic) sim(ctx context.Context, method string, body, result any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("simulator: %w", err)
	}

	request, err := http.NewRequestWithContext(ctx, method, t.demo.cfg.State.ProviderSimURL+"/_sim/rules", bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("simulator: %w", err)
	}

	response, err := t.demo.http.Do(request)
	if err != nil {
		return fmt.Errorf("simulator: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("simulator: %s", response.Status)
	}
	if result == nil {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(result); err != nil {
		return fmt.Errorf("simulator: %w", err)
	}

	return nil
}

// send sends a request to one of the proxies and reads its answer. Refusals and failures are part of the demo.
func (t *Traffic) send(ctx context.Context, c call) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	text, err := json.Marshal(c.body)
	if err != nil {
		t.demo.printf("%v", err)
		return
	}

	bases := t.demo.cfg.State.BaseURLs
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, bases[len(text)%len(bases)]+c.path, bytes.NewReader(text))
	if err != nil {
		t.demo.printf("%v", err)
		return
	}

	request.Header.Set("Authorization", "Bearer "+c.key)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("anthropic-version", "2023-06-01")
	response, err := t.demo.http.Do(request)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			t.demo.printf("%v", err)
		}
		return
	}
	defer func() { _ = response.Body.Close() }()

	if c.abandon {
		_, _ = io.ReadFull(response.Body, make([]byte, 64)) // then the connection is closed
		return
	}

	_, _ = io.Copy(io.Discard, response.Body)
}
