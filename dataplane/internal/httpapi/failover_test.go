package httpapi_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
)

const (
	chatBody       = `{"model":"text","messages":[{"role":"user","content":"hi"}]}`
	chatStreamBody = `{"model":"text","messages":[{"role":"user","content":"hi"}],"stream":true}`
	chatEventError = `data: {"error":{"message":"The server had an error","type":"server_error","param":null,"code":null}}` + "\n\n"
)

// unreachable is an address without a listener. A port that was just free may belong to another test by now.
const unreachable = "http://127.0.0.1:1"

func stall(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// firstFailure is one way in which the first route of a request fails.
type firstFailure struct {
	name     string
	answer   http.HandlerFunc
	provider func(p *catalogkv.Provider)
	// stream: the case applies only to requests for a stream; nonStreaming: only to non-streaming requests.
	stream, nonStreaming bool
}

func failures() []firstFailure {
	slow := func(p *catalogkv.Provider) { p.FirstByteTimeoutMS = 20 }
	refused := func(p *catalogkv.Provider) { p.BaseURL = unreachable }
	return []firstFailure{
		{name: "connection refused", provider: refused},
		{name: "no host", provider: func(p *catalogkv.Provider) { p.BaseURL = "http://nowhere.invalid" }},
		{name: "connection dropped", answer: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{name: "500", answer: jsonAnswer(500, `{"error":{"message":"Internal error","type":"server_error"}}`)},
		{name: "502 of a proxy", answer: jsonAnswer(502, `<html><body>Bad Gateway</body></html>`)},
		{name: "529 overloaded", answer: jsonAnswer(529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)},
		{name: "429", answer: jsonAnswer(429, `{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`)},
		{name: "401", answer: jsonAnswer(401, `{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}`)},
		{name: "gateway account refused with a 400", answer: jsonAnswer(400, `{"error":{"message":"Your account is suspended due to insufficient balance","type":"invalid_request_error"}}`)},
		{name: "unknown upstream model name", answer: jsonAnswer(404, `{"error":{"message":"The model up-model does not exist","type":"invalid_request_error","code":"model_not_found"}}`)},
		{name: "no first byte", answer: stall, provider: slow},
		{name: "headers, but no first byte", provider: slow, answer: func(w http.ResponseWriter, r *http.Request) {
			sendEvents(w, "")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}},
		{name: "error in a 200", answer: jsonAnswer(200, `{"error":{"message":"The server had an error","code":500}}`)},
		{name: "200 that is no JSON", answer: jsonAnswer(200, `<html>Welcome</html>`)},
		{name: "200 with nothing", answer: jsonAnswer(200, ``)},
		{name: "truncated body", nonStreaming: true, answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, chatJSON[:50])
			panic(http.ErrAbortHandler)
		}},
		{name: "events for a non-streaming request", nonStreaming: true, answer: streamAnswer(chatHead, chatText, chatDone)},
		{name: "error as the first event", stream: true, answer: streamAnswer(chatEventError, chatDone)},
		{name: "error in the same read as the first event", stream: true, answer: streamAnswer(chatHead + chatText + chatEventError)},
		{name: "no event", stream: true, answer: streamAnswer("")},
		{name: "half an event", stream: true, answer: streamAnswer(chatHead[:40])},
		{name: "stream without any event", stream: true, answer: cutAfter("")},
	}
}

// The client does not notice the failure.
func TestAnotherRouteServesAfterAFailureBeforeTheFirstByte(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		for _, tt := range failures() {
			if (tt.stream && !stream) || (tt.nonStreaming && stream) {
				continue
			}
			name := tt.name + ", non-streaming"
			body, answers, want := chatBody, jsonAnswer(200, chatJSON), strings.Replace(chatJSON, "up-model", "text", 1)
			if stream {
				name = tt.name + ", stream"
				body, answers = chatStreamBody, streamAnswer(chatHead, chatText, chatStop, chatUsage, chatDone)
				want = strings.ReplaceAll(chatHead+chatText+chatStop+chatDone, "up-model", "text")
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				g := newGatewayWith(t, options{provider: func(i int, p *catalogkv.Provider) {
					if i == 0 && tt.provider != nil {
						tt.provider(p)
					}
				}}, tt.answer, answers)
				got := g.post("/v1/chat/completions", body)
				if got.status != http.StatusOK || got.body != want {
					t.Errorf("got %d %s\nwant %s", got.status, got.body, want)
				}
				e := g.spool.next(t)
				if e.Status != event.Completed || e.Provider != "prv_1" || e.Route != "rte_1_text" || e.Credential != "name of crd_1" || e.Cost != chatCost || e.Rule != event.RuleReported || e.HTTPStatus != 200 {
					t.Errorf("got event %+v", e)
				}
				if calls := g.sims[1].received(); len(calls) != 1 || calls[0].header.Get("Authorization") != "Bearer secret-1" {
					t.Errorf("got calls of the second provider: %+v", calls)
				}
			})
		}
	}
}

// The error says that the providers are unavailable or, after a rate limit, when to try again.
func TestErrorAfterAllRoutesHaveFailed(t *testing.T) {
	t.Parallel()
	broken := jsonAnswer(500, `{"error":{"message":"vendor0 at secret-0 is down"}}`)
	limited := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "7")
		jsonAnswer(429, `{"error":{"message":"Rate limit reached for org-abc","code":"rate_limit_exceeded"}}`)(w, r)
	}
	tests := []struct {
		name    string
		answers []http.HandlerFunc
		want    apiError
	}{
		{"broken", []http.HandlerFunc{broken, broken}, apiError{Status: 502, Code: "upstream_unavailable"}},
		{"limited first", []http.HandlerFunc{limited, broken}, apiError{Status: 429, Code: "rate_limit_exceeded", RetryAfter: "7"}},
		{"limited last", []http.HandlerFunc{broken, limited}, apiError{Status: 429, Code: "rate_limit_exceeded", RetryAfter: "7"}},
	}
	for _, tt := range tests {
		for _, body := range []string{chatBody, chatStreamBody} {
			g := newGateway(t, tt.answers...)
			got := g.post("/v1/chat/completions", body).apiError(t)
			if diff := cmp.Diff(tt.want, got, ignoreTexts); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.name, diff)
			}
			if strings.Contains(got.Message, "vendor") || strings.Contains(got.Message, "secret") || strings.Contains(got.Message, "org-") {
				t.Errorf("%s: %q identifies the provider", tt.name, got.Message)
			}
			e := g.spool.next(t)
			if e.Status != event.Failed || e.Cost != 0 || e.Rule != event.RuleNone || e.HTTPStatus != tt.want.Status {
				t.Errorf("%s: got event %+v", tt.name, e)
			}
			for i, s := range g.sims {
				if n := len(s.received()); n != 1 {
					t.Errorf("%s: provider %d was called %d times", tt.name, i, n)
				}
			}
		}
	}
}

// The provider may work again.
func TestOnlyRouteIsCalledDuringItsCooldown(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(403, `{"error":{"message":"Your account has been suspended"}}`))
	for range 2 {
		if got := g.post("/v1/messages", `{"model":"text","messages":[],"max_tokens":5}`).apiError(t); got.Status != 502 || got.Code != "upstream_unavailable" {
			t.Errorf("got %+v", got)
		}
	}
	if n := len(g.sims[0].received()); n != 2 {
		t.Errorf("the provider was called %d times; want 2", n)
	}
}

// calledRoute is the attempt of a route for text with the credential of its provider. class is that of its failure, empty for none.
func calledRoute(n int, class string) event.Attempt {
	i := strconv.Itoa(n)
	return event.Attempt{Route: "rte_" + i + "_text", Provider: "prv_" + i, Credential: "crd_" + i, CredentialName: "name of crd_" + i, Class: class}
}

// A cooldown only means that others are preferred: the route with it may serve a request that they have failed. The usage
// event has each route once.
func TestRouteWithACooldownIsCalledAfterAllOthersHaveFailed(t *testing.T) {
	t.Parallel()
	broken := jsonAnswer(500, `{}`)
	for _, body := range []string{chatBody, chatStreamBody} {
		answers, first := jsonAnswer(200, chatJSON), calledRoute(0, "unavailable")
		if body == chatStreamBody {
			answers = streamAnswer(chatHead, chatText, chatStop, chatUsage, chatDone)
		}
		g := newGateway(t, broken, answers, broken)
		g.picker.StartCooldown("crd_1", time.Hour)
		g.picker.StartCooldown("rte_2_text", 2*time.Hour)
		if got := g.post("/v1/chat/completions", body); got.status != http.StatusOK {
			t.Errorf("got %d %s", got.status, got.body)
		}
		want := []event.Attempt{{Route: "rte_2_text", Skipped: event.SkippedCooldown}, first, calledRoute(1, "")}
		if diff := cmp.Diff(want, g.spool.next(t).Attempts, cmpopts.IgnoreFields(event.Attempt{}, "MS")); diff != "" {
			t.Errorf("attempts (-want +got):\n%s", diff)
		}
		if n := len(g.sims[2].received()); n != 0 {
			t.Errorf("the route whose cooldown ends last was called %d times", n)
		}
	}
}

// The client learns that no route is available, and when to try again.
func TestRepeatedFailuresOpenTheBreaker(t *testing.T) {
	t.Parallel()
	opened := time.Now() // the breaker stays open for seconds
	g := newGatewayWith(t, options{now: func() time.Time { return opened }}, jsonAnswer(503, `{"error":{"message":"The server had an error"}}`))
	bodies := map[string]string{"/v1/chat/completions": chatBody, "/v1/responses": `{"model":"text","input":"x"}`}
	calls := 0
	for ; calls < 100; calls++ {
		got := g.post("/v1/chat/completions", chatBody).apiError(t)
		if got.Status == http.StatusServiceUnavailable {
			break
		}
		if got.Status != http.StatusBadGateway {
			t.Fatalf("got %+v", got)
		}
	}
	for path, body := range bodies {
		got := g.post(path, body).apiError(t)
		if pause, err := strconv.Atoi(got.RetryAfter); got.Status != 503 || got.Code != "" || err != nil || pause < 1 || pause > 5 {
			t.Errorf("%s, with the breaker open: got %+v", path, got)
		}
	}
	if n := len(g.sims[0].received()); n != calls || calls == 100 {
		t.Errorf("the provider was called %d times; want %d", n, calls)
	}
	// The image route to the same provider has a breaker of its own.
	if got := g.post("/v1/images/generations", `{"model":"image","prompt":"x"}`).apiError(t); got.Status != http.StatusBadGateway {
		t.Errorf("another route: got %+v", got)
	}
}

// The provider fails at the requests of one account, or repeats its words in a refusal of a value.
func TestRequestsOfOneAccountDoNotOpenTheBreakerOrRetireTheCredential(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"failure":             jsonAnswer(500, `{"error":{"message":"The server had an error"}}`),
		"echo":                jsonAnswer(400, `{"error":{"message":"Invalid value: 'api key expired'.","type":"invalid_request_error","param":"messages[0].role","code":"invalid_value"}}`),
		"words about the key": jsonAnswer(400, `{"error":{"message":"api key expired"}}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const calls = 30
			g := newGateway(t, answer)
			for range calls {
				if got := g.post("/v1/chat/completions", chatBody).apiError(t); got.Status != http.StatusBadGateway && got.Status != http.StatusBadRequest {
					t.Fatalf("got %+v", got)
				}
			}
			if refused := g.picker.RefusedCredentials(func(string) bool { return true }); len(refused) > 0 {
				t.Errorf("refused credentials: %v", refused)
			}
			if n := len(g.sims[0].received()); n != calls {
				t.Errorf("the provider was called %d times; want %d", n, calls)
			}
		})
	}
}

// The client gets the rate limit as such, and is served as soon as the provider accepts requests again.
func TestRateLimitsDoNotOpenTheBreaker(t *testing.T) {
	t.Parallel()
	const limits = 30
	var calls atomic.Int64
	g := newGateway(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) > limits {
			jsonAnswer(200, chatJSON)(w, r)
			return
		}
		jsonAnswer(429, `{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`)(w, r)
	})
	for i := range limits {
		if got := g.post("/v1/chat/completions", chatBody).apiError(t); got.Status != 429 || got.Code != "rate_limit_exceeded" || got.RetryAfter == "" {
			t.Fatalf("request %d: got %+v", i, got)
		}
	}
	if got := g.post("/v1/chat/completions", chatBody); got.status != http.StatusOK {
		t.Errorf("after the rate limit: got %d", got.status)
	}
}

func TestErrorsInTheRequestAreNotRetried(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, answer string
		want         apiError
	}{
		{
			"value", `{"error":{"message":"Invalid value for 'temperature': must be at most 2","type":"invalid_request_error","param":"temperature","code":"invalid_value"}}`,
			apiError{Status: 400, Code: "invalid_value", Param: "temperature", Final: true},
		},
		{
			"policy", `{"error":{"message":"Your request was rejected by our content policy","type":"invalid_request_error","code":"content_policy_violation"}}`,
			apiError{Status: 400, Code: "content_policy_violation", Final: true},
		},
	}
	for _, tt := range tests {
		inStream := streamAnswer("data: " + tt.answer + "\n\n")
		behind := streamAnswer(chatHead + "data: " + tt.answer + "\n\n")
		for how, answers := range map[string]http.HandlerFunc{"refused": jsonAnswer(400, tt.answer), "first event": inStream, "after the first event, in one read": behind} {
			g := newGateway(t, answers, jsonAnswer(200, chatJSON))
			body := chatStreamBody
			if how == "refused" {
				body = chatBody
			}
			got := g.post("/v1/chat/completions", body).apiError(t)
			if diff := cmp.Diff(tt.want, got, ignoreTexts); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", tt.name, how, diff)
			}
			if n := len(g.sims[1].received()); n != 0 {
				t.Errorf("%s, %s: the second provider was called", tt.name, how)
			}
			if e := g.spool.next(t); e.Status != event.Failed || e.Cost != 0 || e.HTTPStatus != 400 {
				t.Errorf("%s, %s: got event %+v", tt.name, how, e)
			}
			if again := g.post("/v1/chat/completions", body); again.status != http.StatusBadRequest {
				t.Errorf("%s, %s: the route has a cooldown: got %d", tt.name, how, again.status)
			}
		}
	}
}

func TestRejectedCredentialGetsACooldownAndAnotherIsUsed(t *testing.T) {
	t.Parallel()
	rejected := make(chan string, 10)
	var refused string
	g := newGatewayWith(t, options{}, jsonAnswer(200, chatJSON))
	g.set("provider", "prv_0", catalogkv.Provider{
		ID: "prv_0", Name: "vendor0", BaseURL: g.sims[0].URL, Enabled: true,
		Credentials: []catalogkv.Credential{g.credential("crd_a", "secret-a"), g.credential("crd_b", "secret-b")},
	})
	g.apply()
	g.sims[0].setAnswer(func(w http.ResponseWriter, r *http.Request) {
		if refused == "" {
			refused = r.Header.Get("Authorization")
		}
		if r.Header.Get("Authorization") == refused {
			rejected <- refused
			jsonAnswer(401, `{"error":{"message":"Incorrect API key provided: secret-a","code":"invalid_api_key"}}`)(w, r)
			return
		}
		jsonAnswer(200, chatJSON)(w, r)
	})
	for range 4 { // also the request that finds the credential rejected
		if got := g.post("/v1/chat/completions", chatBody); got.status != http.StatusOK {
			t.Errorf("with the other credential: got %d %s", got.status, got.body)
		}
	}
	if len(rejected) != 1 {
		t.Errorf("the rejected credential was used %d times", len(rejected))
	}
}

// The usage event says which routes were tried, and why the others were skipped. It says nothing if the first one serves.
func TestUsageEventHasTheAttempts(t *testing.T) {
	t.Parallel()
	g := newGatewayWith(t, options{provider: func(i int, p *catalogkv.Provider) {
		if i == 2 {
			p.Maintenance = &catalogkv.Maintenance{}
		}
	}}, jsonAnswer(500, `{}`), jsonAnswer(200, chatJSON), jsonAnswer(200, chatJSON))
	g.post("/v1/chat/completions", chatBody)
	got := g.spool.next(t).Attempts
	for i := range got {
		got[i].MS = 0
	}
	want := []event.Attempt{
		{Route: "rte_2_text", Skipped: event.SkippedMaintenance},
		calledRoute(0, "unavailable"),
		calledRoute(1, ""),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}

	broken := newGateway(t, jsonAnswer(500, `{}`))
	broken.post("/v1/chat/completions", chatBody)
	if got := broken.spool.next(t).Attempts; len(got) != 1 || got[0].Class == "" || got[0].Skipped != "" {
		t.Errorf("a request that no route serves has the attempts %+v", got)
	}

	cut := newGateway(t, cutAfter(chatHead, chatText))
	cut.post("/v1/chat/completions", chatStreamBody)
	want = []event.Attempt{calledRoute(0, "truncated")}
	if diff := cmp.Diff(want, cut.spool.next(t).Attempts, cmpopts.IgnoreFields(event.Attempt{}, "MS")); diff != "" {
		t.Errorf("the attempts of a stream that breaks off (-want +got):\n%s", diff)
	}

	for body, answer := range map[string]http.HandlerFunc{
		chatBody: jsonAnswer(200, chatJSON), chatStreamBody: streamAnswer(chatHead, chatText, chatStop, chatUsage, chatDone),
	} {
		whole := newGateway(t, answer, answer)
		whole.post("/v1/chat/completions", body)
		if got := whole.spool.next(t).Attempts; got != nil {
			t.Errorf("a request that the first route serves has the attempts %+v", got)
		}
	}
}

func TestAtMostThreeRoutesAreTried(t *testing.T) {
	t.Parallel()
	broken := jsonAnswer(500, `{}`)
	g := newGateway(t, broken, broken, broken, jsonAnswer(200, chatJSON))
	if got := g.post("/v1/chat/completions", chatBody).apiError(t); got.Status != 502 {
		t.Errorf("got %+v", got)
	}
	if n := len(g.sims[3].received()); n != 0 {
		t.Errorf("a fourth route was tried")
	}
}

// The provider accepts less than one call a second, and other requests have had the turns.
func TestRequestWithoutATurnAtARateLimitedRouteIsNotSent(t *testing.T) {
	t.Parallel()
	var clock atomic.Int64
	now := func() time.Time { return time.Unix(1000, clock.Load()) }
	limited := jsonAnswer(429, `{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`)
	g := newGatewayWith(t, options{now: now}, limited)
	send := func(calls int) {
		t.Helper()
		got := g.post("/v1/chat/completions", chatBody).apiError(t)
		if got.Status != 429 || got.Code != "rate_limit_exceeded" || got.RetryAfter != "1" {
			t.Errorf("got %+v; want 429", got)
		}
		if n := len(g.sims[0].received()); n != calls {
			t.Errorf("the provider got %d calls; want %d", n, calls)
		}
		if e := g.spool.next(t); e.Status != event.Failed || e.Cost != 0 || e.HTTPStatus != 429 {
			t.Errorf("got event %+v", e)
		}
	}
	send(1)
	send(2)
	clock.Add(int64(time.Second)) // the first window ends: one call a second is made
	send(3)
	send(3)
}
