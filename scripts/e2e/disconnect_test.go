package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/scripts/providersim"
)

// leave opens a stream and disconnects after its first words.
func (a *api) leave(t *testing.T, e endpoint, model string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	response, err := a.Open(ctx, rig.Request{Path: e.path, Key: a.account.Key, Body: e.with(model, "stream", true)})
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("got %v, %v; want a stream", response, err)
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewReader(response.Body)
	for line := ""; !strings.Contains(line, "birch"); { // the second word that the simulator says
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
}

// The client of a non-streaming request disconnects: the provider call runs to its end and is
// billed as reported.
func TestClientLeavesAnAnswerInOnePiece(t *testing.T) {
	a := newAPI(t)
	sim := providersim.New(providersim.Config{})
	asked, left := make(chan struct{}, 1), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked <- struct{}{}
		select {
		case <-left:
		case <-t.Context().Done():
		}
		sim.ServeHTTP(w, q) // which takes a while: a call that is given up is cut by then
	}))
	t.Cleanup(server.Close)
	t.Cleanup(sim.Close)
	provider := a.Provider(t, rig.Provider{BaseURL: server.URL, AnthropicVersion: "2023-06-01"})
	for _, e := range texts {
		model := a.Model(t, rig.Model{Routes: []rig.Route{{Provider: provider, UpstreamModel: "m@delay=300ms,out=9", Formats: []string{e.format}}}})
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = a.Try(ctx, rig.Request{Path: e.path, Key: a.account.Key, Body: e.body(model)})
		}()
		select {
		case <-asked:
		case <-gone:
			t.Fatalf("%s: the provider was not asked", e.path)
		}
		leave()
		<-gone
		left <- struct{}{}
	}
	for _, u := range a.account.AwaitUsage(t, len(texts)) {
		if u.Estimated || u.Rule != "reported" {
			t.Errorf("%s: billed by %s; want as reported", u.Format, u.Rule)
		}
	}
	for _, entry := range sim.Journal() {
		if entry.ClientGone {
			t.Errorf("%s: the provider's call ended as %s; want it to run to its end", entry.Path, entry.Outcome)
		}
	}
	a.account.AwaitIdle(t)
}

// The client of a stream disconnects: the provider call is cancelled and the delivered part is
// billed. With a provider that bills cancelled streams in full, the stream is read to its end.
func TestClientLeavesAStream(t *testing.T) {
	a := newAPI(t)
	patient := a.Provider(t, rig.Provider{BaseURL: a.Sim.URL, KeepsBilling: true, AnthropicVersion: "2023-06-01"})
	for _, e := range texts {
		u := "left-" + rig.Unique()
		models := a.Models(t,
			rig.Model{Formats: []string{e.format}, Directives: "out=1000,chunk=20ms"},
			rig.Model{Routes: []rig.Route{{Provider: patient, UpstreamModel: u + "@out=30,chunk=10ms", Formats: []string{e.format}}}})
		a.leave(t, e, models[0])
		if entry := a.Sim.Journal(t, models[0])[0]; entry.Outcome != providersim.OutcomeClientGone {
			t.Errorf("%s: the provider's call ended as %s; want it cancelled", e.path, entry.Outcome)
		}
		a.leave(t, e, models[1])
		if entry := a.Sim.Journal(t, u)[0]; !entry.Finished {
			t.Errorf("%s: the provider that bills to the end: its call ended as %s; want it read to the end", e.path, entry.Outcome)
		}
		rig.Await(t, "both to be billed", func(ctx context.Context) error { return a.billed(ctx, t, models[0], models[1]) })
	}
	a.account.AwaitIdle(t)
	a.CheckLedger(t)
}

// billed checks the bills of a cancelled stream and of one that was read to its end.
func (a *api) billed(ctx context.Context, t *testing.T, cancelled, read string) error {
	t.Helper()
	usage, err := a.account.Usage(ctx)
	if err != nil {
		return err
	}
	found := 0
	for _, u := range usage {
		switch u.Model {
		case cancelled:
			found++
			if u.Status != "client_gone" || !u.Estimated || u.Cost == "0.00" {
				t.Errorf("%s: the cancelled stream: %s, estimated %t, for %s", u.Format, u.Status, u.Estimated, u.Cost)
			}
		case read:
			found++
			if u.Estimated || u.Usage["output"] != 30.0 {
				t.Errorf("%s: the stream that was read on: %v, estimated %t; want 30 tokens as reported", u.Format, u.Usage, u.Estimated)
			}
		}
	}
	if found < 2 {
		return fmt.Errorf("%d of 2 are billed", found)
	}
	return nil
}

// Usage that the provider does not report is estimated and marked as estimated.
func TestAnswersWithoutUsageAreEstimated(t *testing.T) {
	a := newAPI(t)
	for _, e := range texts {
		model := a.Model(t, rig.Model{Formats: []string{e.format}, Directives: "nousage,out=40"})
		for _, stream := range []bool{false, true} {
			answer := a.ok(t, e.path, e.with(model, "stream", stream))
			usage := a.AwaitUsage(t, answer.RequestID())
			output, _ := usage.Usage["output"].(float64)
			if !usage.Estimated || usage.Rule != "estimated" || output < 20 || output > 120 {
				t.Errorf("%s, stream %t: got %v by %s, estimated %t; want about 40 tokens of output", e.path, stream, usage.Usage, usage.Rule, usage.Estimated)
			}
		}
	}
}

// Comments, keepalives and pings are passed on between events.
func TestKeepalivesPass(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Directives: "keepalive,out=5"})
	for e, want := range map[*endpoint]string{&chat: "\n:\n", &responses: "\n:\n", &messages: "event: ping"} {
		answer := a.ok(t, e.path, e.with(model, "stream", true))
		if e.streamedText(t, answer) == "" || !strings.Contains(string(answer.Body), want) {
			t.Errorf("%s: got no %q in %s", e.path, want, answer.Body)
		}
	}
}

// A provider may answer a stream request with one JSON body, which a client that waits for events cannot read.
func TestJSONAnswerToAStreamRequest(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Directives: "plainjson,out=5"})
	for _, e := range texts {
		answer := a.post(t, e.path, e.with(model, "stream", true))
		checkRefusal(t, e.path, answer, refusal{502, "upstream_unavailable", ""})
		if usage := a.AwaitUsage(t, answer.RequestID()); usage.Rule != "none" {
			t.Errorf("%s: charged by the rule %s", e.path, usage.Rule)
		}
	}
}

// A prompt of several megabytes is passed on unchanged.
func TestLargePrompt(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Formats: []string{"chat"}, Price: map[string]any{"input": "0.01", "output": "0.01"}})
	picture := "data:image/png;base64," + strings.Repeat("iVBORw0KGgo", 1<<21)
	body := map[string]any{"model": model, "messages": []any{map[string]any{"role": "user", "content": []any{
		map[string]any{"type": "image_url", "image_url": map[string]any{"url": picture}},
	}}}}
	a.ok(t, chat.path, body)
	if entry := a.Sim.Journal(t, model)[0]; !strings.Contains(entry.Body, picture) {
		t.Errorf("the provider got %d bytes without the picture", entry.BodyBytes)
	}
}
