package e2e

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/scripts/providersim"
)

// routed returns the number of requests that the provider received for each upstream model.
func (a *api) routed(t *testing.T, upstreams ...string) []int {
	t.Helper()
	var counts []int
	for _, upstream := range upstreams {
		counts = append(counts, len(a.Sim.Journal(t, upstream)))
	}
	return counts
}

func TestRoutesByPriorityAndFailover(t *testing.T) {
	a := newAPI(t)
	u := rig.Unique()
	first, second, third := "first-"+u, "second-"+u, "third-"+u
	model := a.Model(t, rig.Model{Routes: []rig.Route{
		{UpstreamModel: third, Priority: 3}, {UpstreamModel: first, Priority: 1}, {UpstreamModel: second, Priority: 2},
	}})
	a.ok(t, chat.path, chat.body(model))
	if got := a.routed(t, first, second, third); !slices.Equal(got, []int{1, 0, 0}) {
		t.Errorf("the routes got %v requests; want the first one", got)
	}
	a.Sim.Once(t, first, "status=500")
	a.Sim.Once(t, second, "status=429,retry_after=30")
	answer := a.ok(t, chat.path, chat.with(model, "stream", true))
	if text := chat.streamedText(t, answer); text == "" {
		t.Errorf("after two failures: got %s; want the third route's answer", answer)
	}
	if got := a.routed(t, first, second, third); !slices.Equal(got, []int{2, 1, 1}) {
		t.Errorf("the routes got %v requests; want each tried in turn", got)
	}
	a.ok(t, chat.path, chat.body(model)) // the second is in cooldown for its 30 seconds, whatever the first does
	if got := a.routed(t, second); got[0] != 1 {
		t.Errorf("the second route was asked again although its provider named a pause")
	}
	a.account.AwaitUsage(t, 3) // failed attempts are not charged
	a.account.AwaitIdle(t)
}

// A request that the provider rejects as invalid is not sent to another route.
func TestInvalidRequestIsNotSentToAnotherRoute(t *testing.T) {
	a := newAPI(t)
	u := rig.Unique()
	model := a.Model(t, rig.Model{Routes: []rig.Route{{UpstreamModel: "first-" + u + "@body=content_policy"}, {UpstreamModel: "second-" + u, Priority: 1}}})
	a.refusedPost(t, chat.path, chat.body(model), refusal{400, "content_policy_violation", ""})
	if got := a.routed(t, "second-"+u); got[0] != 0 {
		t.Errorf("the second route was asked %d times; want never", got[0])
	}
}

func TestRoutesOfOnePriorityShareAccounts(t *testing.T) {
	a := newAPI(t)
	u := rig.Unique()
	left, right := "left-"+u, "right-"+u
	model := a.Model(t, rig.Model{Routes: []rig.Route{{UpstreamModel: left}, {UpstreamModel: right}}})
	used := map[bool]int{}
	for n := 0; n < 4 || len(used) < 2 && n < 60; n++ { // the choice depends on the id of the account, which is random
		account := a.Account(t, rig.AccountSpec{})
		before := a.routed(t, left, right)
		for i := range 4 {
			if answer := a.Do(t, rig.Request{Proxy: i % 2, Path: chat.path, Key: account.Key, Body: chat.body(model)}); answer.Status != http.StatusOK {
				t.Fatalf("got %s", answer)
			}
		}
		after := a.routed(t, left, right)
		switch {
		case after[0] == before[0]+4:
			used[true]++
		case after[1] == before[1]+4:
			used[false]++
		default:
			t.Errorf("an account changed its route: %v became %v", before, after)
		}
	}
	if len(used) != 2 {
		t.Errorf("all accounts were on one route: %v", used)
	}
}

// A credential that the provider refuses goes into cooldown, and the next one is used.
func TestNextCredentialWhenOneIsRefused(t *testing.T) {
	a := newAPI(t)
	sim := providersim.New(providersim.Config{Keys: []string{"sk-good"}})
	server := httptest.NewServer(sim)
	t.Cleanup(server.Close)
	t.Cleanup(sim.Close)
	provider := a.Provider(t, rig.Provider{BaseURL: server.URL, Credentials: []rig.Credential{
		{Name: "one", Secret: "sk-bad-1"}, {Name: "two", Secret: "sk-good"}, {Name: "three", Secret: "sk-bad-2"},
	}})
	model := a.Model(t, rig.Model{Routes: []rig.Route{{Provider: provider, UpstreamModel: "m"}}})
	const asked = 6
	for range asked {
		a.AwaitStatus(t, rig.Request{Path: chat.path, Key: a.account.Key, Body: chat.body(model)}, http.StatusOK)
	}
	refused := 0
	for _, entry := range sim.Journal() {
		if entry.Status == http.StatusUnauthorized {
			refused++
		}
	}
	if refused > 2 {
		t.Errorf("bad credentials were tried %d times; want each once at most", refused)
	}
}

func TestUnreachableProviderIsUnavailable(t *testing.T) {
	a := newAPI(t)
	// nothing listens there, and the port is never assigned as an ephemeral one
	gone := a.Provider(t, rig.Provider{BaseURL: "http://127.0.0.1:1"})
	models := a.Models(t,
		rig.Model{Routes: []rig.Route{{Provider: gone, UpstreamModel: "m"}}},
		rig.Model{Routes: []rig.Route{{Provider: gone, UpstreamModel: "m"}, {UpstreamModel: "n", Priority: 1}}})
	message := a.refusedPost(t, chat.path, chat.body(models[0]), refusal{502, "upstream_unavailable", ""})
	if strings.Contains(message, "127.0.0.1") || strings.Contains(message, "refused") {
		t.Errorf("the message %q reveals something about the provider", message)
	}
	a.ok(t, chat.path, chat.body(models[1]))
}

func TestTimeLimitsOfProviders(t *testing.T) {
	a := newAPI(t)
	// A response that must come within a limit has seconds for it, and one that must exceed it
	// never comes. Package upstream tests with a fake clock that a slow answer may take longer
	// than one limit.
	impatient := a.Provider(t, rig.Provider{BaseURL: a.Sim.URL, FirstByteTimeout: "200ms"})
	uneasy := a.Provider(t, rig.Provider{BaseURL: a.Sim.URL, IdleTimeout: "3s"})
	brief := a.Provider(t, rig.Provider{BaseURL: a.Sim.URL, TotalTimeout: "3s"})
	on := func(provider, upstream string) rig.Model {
		return rig.Model{Routes: []rig.Route{{Provider: provider, UpstreamModel: upstream + "-" + rig.Unique() + "@" + upstream}}}
	}
	models := a.Models(t, on(impatient, "hang"), on(uneasy, "stall=6"), on(brief, "out=1000,chunk=20ms"))
	a.refusedPost(t, chat.path, chat.body(models[0]), refusal{502, "upstream_unavailable", ""})
	for _, model := range models[1:] {
		answer := a.ok(t, chat.path, chat.with(model, "stream", true))
		if !strings.Contains(string(answer.Body), "upstream_unavailable") {
			t.Errorf("%s: the stream ends without the reason: %s", model, answer.Body[max(0, len(answer.Body)-300):])
		}
		if usage := a.AwaitUsage(t, answer.RequestID()); usage.Status != "failed" || !usage.Estimated || usage.Cost == "0.00" {
			t.Errorf("%s: billed %s as %s, estimated %t; want what was delivered", model, usage.Cost, usage.Status, usage.Estimated)
		}
	}
	a.account.AwaitIdle(t)
}

// Static headers and the pseudonym that a provider wants are set.
func TestProviderSettingsReachTheProvider(t *testing.T) {
	a := newAPI(t)
	var mu sync.Mutex
	var seen []http.Header
	sim := providersim.New(providersim.Config{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		mu.Lock()
		seen = append(seen, q.Header.Clone())
		mu.Unlock()
		sim.ServeHTTP(w, q)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(sim.Close)
	provider := a.Provider(t, rig.Provider{
		BaseURL: server.URL, Auth: "x-api-key", AnthropicVersion: "2026-10-21", Headers: map[string]string{"x-team": "gateway"}, WantsUser: true,
		Credentials: []rig.Credential{{Name: "main", Secret: "sk-secret"}},
	})
	model := a.Model(t, rig.Model{Routes: []rig.Route{{Provider: provider, UpstreamModel: "m"}}})
	for _, e := range texts {
		a.ok(t, e.path, e.body(model))
	}
	for _, header := range seen {
		if header.Get("X-Api-Key") != "sk-secret" || header.Get("Authorization") != "" || header.Get("X-Team") != "gateway" {
			t.Errorf("the provider got %v", header)
		}
	}
	for _, entry := range sim.Journal() {
		if entry.Format == providersim.Messages && entry.Headers["anthropic-version"][0] != "2026-10-21" {
			t.Errorf("the provider got the version %v", entry.Headers["anthropic-version"])
		}
		if name := map[providersim.Format]string{"chat": `"user":"`, "responses": `"user":"`, "messages": `"user_id":"`}[entry.Format]; !strings.Contains(entry.Body, name) &&
			!strings.Contains(entry.Body, `"safety_identifier":"`) {
			t.Errorf("%s: the provider got no pseudonym: %s", entry.Format, entry.Body)
		}
	}
}
