package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// providerSpoiledBy returns provider i of a gateway, which answers requests with a certain role by bad and all others
// properly.
func providerSpoiledBy(g **gateway, i int, role string, bad http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		calls := (*g).sims[i].received()
		if strings.Contains(calls[len(calls)-1].body, role) {
			bad(w, r)
			return
		}
		jsonAnswer(http.StatusOK, chatJSON)(w, r)
	}
}

// The requests of one account are answered with errors, which repeat its words or not. Meanwhile another account is
// served, by the route that serves it at other times, whether there are other routes or not.
func TestErrorsOfOneAccountDoNotStopAnother(t *testing.T) {
	t.Parallel()
	const attacks, alternations = 15, 5 // ten failures in a row open a breaker
	openAI := `{"error":{"message":"Invalid value: '%s'. Supported values are: 'system', 'assistant', and 'user'.","type":"invalid_request_error","param":"messages[0].role","code":"invalid_value"}}`
	anthropic := `{"type":"error","error":{"type":"invalid_request_error","message":"messages: Unexpected role \"%s\". Allowed roles are \"user\" or \"assistant\"."}}`
	vLLM := `{"object":"error","message":"[{'type': 'literal_error', 'loc': ('body', 'messages', 0, 'role'), 'msg': \"Input should be 'user'\", 'input': '%s'}]","type":"BadRequestError","code":400}`
	echo := func(format, role string) http.HandlerFunc {
		return jsonAnswer(http.StatusBadRequest, fmt.Sprintf(format, role))
	}
	for _, tt := range []struct {
		name, role string
		bad        http.HandlerFunc
		// echo: the error is about the request, so the first route answers it and no other one is called.
		echo bool
	}{
		{"OpenAI, permission denied", "permission denied", echo(openAI, "permission denied"), true},
		{"OpenAI, unauthorized", "unauthorized", echo(openAI, "unauthorized"), true},
		{"OpenAI, key expired", "api key expired", echo(openAI, "api key expired"), true},
		{"Anthropic, no credits", "insufficient credits", echo(anthropic, "insufficient credits"), true},
		{"vLLM, invalid key", "invalid api key", echo(vLLM, "invalid api key"), true},
		{"OpenAI, rate limit", "rate limit exceeded", echo(openAI, "rate limit exceeded"), true},
		{"OpenAI, overloaded", "server overloaded", echo(openAI, "server overloaded"), true},
		{"words about the rate alone", "rate limit exceeded", jsonAnswer(http.StatusBadRequest, `{"error":{"message":"rate limit exceeded"}}`), false},
		{"words about the key alone", "api key expired", jsonAnswer(http.StatusBadRequest, `{"error":{"message":"api key expired"}}`), false},
		{"internal error", "crash", jsonAnswer(http.StatusInternalServerError, `{"error":{"message":"The server had an error"}}`), false},
		{"connection that breaks", "crash", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false},
	} {
		for _, routes := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, %d routes", tt.name, routes), func(t *testing.T) {
				t.Parallel()
				var g *gateway
				var providers []http.HandlerFunc
				for i := range routes {
					providers = append(providers, providerSpoiledBy(&g, i, tt.role, tt.bad))
				}
				g = newGatewayWith(t, options{}, providers...)
				g.plane.open("acc_2", 1_000_000, 1_000_000, 10)
				other := g.issue("key_2", "acc_2")
				attack := func() {
					t.Helper()
					got := g.post("/v1/chat/completions", `{"model":"text","messages":[{"role":"`+tt.role+`","content":"x"}]}`).apiError(t)
					if (got.Status == http.StatusBadRequest) != tt.echo {
						t.Fatalf("the request with errors got %+v", got)
					}
				}
				served := func() {
					t.Helper()
					before := len(g.sims[0].received())
					got := g.post("/v1/chat/completions", chatBody, "Authorization", "Bearer "+other)
					if got.status != http.StatusOK || len(g.sims[0].received()) != before+1 {
						t.Fatalf("the other account got %d %s, and %d calls of its route; want 200 and one", got.status, got.body, len(g.sims[0].received())-before)
					}
				}
				served()
				for range attacks {
					attack()
				}
				served()
				for range alternations {
					attack()
					served()
				}
				for i, sim := range g.sims[1:] {
					if n := len(sim.received()); tt.echo && n != 0 {
						t.Errorf("provider %d got %d calls; want none, because the error is about the request", i+1, n)
					}
				}
				if refused := g.picker.RefusedCredentials(func(string) bool { return true }); len(refused) > 0 {
					t.Errorf("refused credentials: %v", refused)
				}
				for _, e := range g.spool.all() {
					if e.AccountID == theAccount && e.Cost != 0 {
						t.Errorf("a request with an error is charged: %+v", e)
					}
				}
			})
		}
	}
}

// A provider refuses the gateway's credential in words that could be the client's. Requests of one account show nothing;
// those of a second one show that the credential is refused, and the others do not try it any more.
func TestRefusalConfirmedByASecondAccountRetiresTheCredential(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusBadRequest, `{"error":{"message":"api key expired"}}`), jsonAnswer(http.StatusOK, chatJSON))
	send := func(key string, wantFirst int) {
		t.Helper()
		first, second := len(g.sims[0].received()), len(g.sims[1].received())
		got := g.post("/v1/chat/completions", chatBody, "Authorization", "Bearer "+key)
		first, second = len(g.sims[0].received())-first, len(g.sims[1].received())-second
		if got.status != http.StatusOK || first != wantFirst || second != 1 {
			t.Errorf("got %d %s, and %d and %d calls; want 200, and %d and 1", got.status, got.body, first, second, wantFirst)
		}
	}
	refused := func() int { return len(g.picker.RefusedCredentials(func(string) bool { return true })) }
	for range 3 {
		send(g.key, 1)
	}
	if n := refused(); n != 0 {
		t.Errorf("%d credentials are refused after the requests of one account; want none", n)
	}
	var others []string
	for _, account := range []string{"acc_2", "acc_3"} {
		g.plane.open(account, 1_000_000, 1_000_000, 10)
		others = append(others, g.issue("key_of_"+account, account))
	}
	send(others[0], 1)
	if n := refused(); n != 1 {
		t.Errorf("%d credentials are refused after the request of a second account; want 1", n)
	}
	send(others[1], 0)
	send(g.key, 0)
}

// The words of a rate limit come with a status that does not say so, at the requests of one account alone: the calls of
// the others are not paced.
func TestRateLimitInWordsOfOneAccountDoesNotSlowAnother(t *testing.T) {
	t.Parallel()
	const role = "rate limit exceeded"
	var clock atomic.Int64
	var g *gateway
	limited := jsonAnswer(http.StatusBadRequest, `{"error":{"message":"rate limit exceeded"}}`)
	g = newGatewayWith(t, options{now: func() time.Time { return time.Unix(1000, clock.Load()) }}, providerSpoiledBy(&g, 0, role, limited))
	g.plane.open("acc_2", 1_000_000, 1_000_000, 10)
	other := g.issue("key_2", "acc_2")
	for range 4 {
		for range 3 {
			if got := g.post("/v1/chat/completions", `{"model":"text","messages":[{"role":"`+role+`","content":"x"}]}`).apiError(t); got.Status != http.StatusTooManyRequests {
				t.Fatalf("the request with errors got %+v", got)
			}
		}
		clock.Add(int64(time.Second))
	}
	for range 3 {
		if got := g.post("/v1/chat/completions", chatBody, "Authorization", "Bearer "+other); got.status != http.StatusOK {
			t.Fatalf("the other account got %d %s", got.status, got.body)
		}
	}
}
