package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"modelgateway/scripts/providersim"
)

// A Simulator is the running provider simulator.
type Simulator struct {
	// URL is its address.
	URL string
}

// Journal returns the requests that the simulator received for a model added without routes,
// in order. It waits until none of them is running.
func (s Simulator) Journal(t *testing.T, model string) []providersim.Entry {
	t.Helper()
	var entries []providersim.Entry
	Await(t, "the simulator's requests to end", func(ctx context.Context) (err error) {
		if entries, err = s.entries(ctx, model); err != nil {
			return err
		}
		for _, e := range entries {
			if !e.Done {
				return fmt.Errorf("request %d to %s still runs", e.Seq, e.Path)
			}
		}
		return nil
	})
	return entries
}

// AwaitMore waits until the simulator has received n more requests for the model.
func (s Simulator) AwaitMore(t *testing.T, model string, n int) {
	t.Helper()
	from := -1
	Await(t, "more requests", func(ctx context.Context) error {
		entries, err := s.entries(ctx, model)
		if err != nil {
			return err
		}
		if from < 0 {
			from = len(entries)
		}
		if more := len(entries) - from; more < n {
			return fmt.Errorf("%d came; want %d", more, n)
		}
		return nil
	})
}

func (s Simulator) entries(ctx context.Context, model string) ([]providersim.Entry, error) {
	var entries []providersim.Entry
	return entries, s.call(ctx, http.MethodGet, "journal?model="+url.QueryEscape(model), nil, &entries)
}

// Rule adds directives for requests that cannot carry them in the name of the model.
func (s Simulator) Rule(t *testing.T, rule providersim.Rule) {
	t.Helper()
	if err := s.call(t.Context(), http.MethodPost, "rules", rule, nil); err != nil {
		t.Fatalf("add a rule: %v", err)
	}
}

// Fail applies directives to every request for an upstream model that has none, until heal is called.
func (s Simulator) Fail(t *testing.T, upstreamModel, directives string) (heal func()) {
	t.Helper()
	var made struct{ ID string }
	rule := providersim.Rule{Match: providersim.Match{Model: upstreamModel}, Directives: directives}
	if err := s.call(t.Context(), http.MethodPost, "rules", rule, &made); err != nil {
		t.Fatalf("add a rule: %v", err)
	}
	return func() {
		t.Helper()
		if err := s.call(t.Context(), http.MethodDelete, "rules/"+made.ID, nil, nil); err != nil {
			t.Fatalf("remove a rule: %v", err)
		}
	}
}

// Once applies directives to the next request for an upstream model that has none.
func (s Simulator) Once(t *testing.T, upstreamModel, directives string) {
	t.Helper()
	s.Rule(t, providersim.Rule{Match: providersim.Match{Model: upstreamModel}, Directives: directives, Times: 1})
}

func (s Simulator) call(ctx context.Context, method, path string, body, result any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}

	request, err := http.NewRequestWithContext(ctx, method, s.URL+"/_sim/"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}

	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("simulator: %s %s: %s", method, path, response.Status)
	}
	if result == nil {
		return nil
	}

	return json.NewDecoder(response.Body).Decode(result)
}
