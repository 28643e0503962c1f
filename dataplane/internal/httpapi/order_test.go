package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"modelgateway/shared/catalogkv"
	"modelgateway/shared/subject"
)

// ignoreTexts leaves out the members that other tests check.
var ignoreTexts = cmpopts.IgnoreFields(apiError{}, "Message", "RequestID", "Type")

// Each row corrects the error of the row before it and keeps the others, which proves that each check comes before all
// those below it.
func TestChecksHaveTheDocumentedOrder(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusOK, chatJSON))
	disabled := func(g *gateway, aside bool) {
		g.set(subject.KindProvider, "prv_0", catalogkv.Provider{
			ID: "prv_0", Name: "vendor0", BaseURL: g.sims[0].URL, Enabled: !aside, Credentials: []catalogkv.Credential{g.credential("crd_0", "secret-0")},
		})
		g.apply()
	}
	g.plane.spend(theAccount, balanceOffset, 0)
	g.set(subject.KindSettings, "", catalogkv.Settings{Currency: "USD", Maintenance: &catalogkv.Maintenance{Message: "Back soon."}})
	disabled(g, true)
	large := `{"model":"text","x":"` + strings.Repeat("x", 25<<20) + `"}`
	tests := []struct {
		name string
		// fix corrects an error before the request.
		fix              func()
		path, body, auth string
		want             apiError
	}{
		{name: "path before key", path: "/v1/embeddings", auth: "none", body: large, want: apiError{Status: 404, Code: "not_found", Final: true}},
		{name: "key before maintenance", auth: "none", body: large, want: apiError{Status: 401, Code: "invalid_api_key", Final: true}},
		{name: "maintenance before size", body: large, want: apiError{Status: 503, Code: "service_unavailable", RetryAfter: "1"}},
		{
			name: "size before JSON", body: large, want: apiError{Status: 413, Code: "invalid_request", Final: true},
			fix: func() { g.set(subject.KindSettings, "", catalogkv.Settings{Currency: "USD"}); g.apply() },
		},
		{name: "JSON before model", body: `{"model":"none","bad":`, want: apiError{Status: 400, Code: "invalid_request", Final: true}},
		{name: "model name before model", body: `{"bad":1}`, want: apiError{Status: 400, Code: "invalid_request", Param: "model", Final: true}},
		{name: "model before parameters", body: `{"model":"none","bad":1}`, want: apiError{Status: 404, Code: "model_not_found", Param: "model", Final: true}},
		{name: "parameters before admission", body: `{"model":"text","messages":[],"bad":1}`, want: apiError{Status: 400, Code: "unsupported_parameter", Param: "bad", Final: true}},
		{name: "admission before routes", body: `{"model":"text","messages":[]}`, want: apiError{Status: 402, Code: "insufficient_quota", Final: true}},
		{
			name: "routes before the provider", body: `{"model":"text","messages":[]}`, want: apiError{Status: 503},
			fix: func() { g.plane.spend(theAccount, balanceOffset, 1_000_000) },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.fix != nil {
				tt.fix()
			}
			path, header := "/v1/chat/completions", "Bearer "+g.key
			if tt.path != "" {
				path = tt.path
			}
			if tt.auth == "none" {
				header = ""
			}
			got := g.post(path, tt.body, "Authorization", header).apiError(t)
			if diff := cmp.Diff(tt.want, got, ignoreTexts); diff != "" {
				t.Errorf("wrong refusal (-want +got):\n%s", diff)
			}
		})
	}
	if calls := g.sims[0].received(); len(calls) != 0 {
		t.Errorf("refused requests made %d calls", len(calls))
	}
	if events := g.spool.all(); len(events) != 0 {
		t.Errorf("refused requests have events: %+v", events)
	}
	disabled(g, false)
	if got := g.post("/v1/chat/completions", `{"model":"text","messages":[]}`); got.status != http.StatusOK {
		t.Errorf("with every error corrected: got %d %s", got.status, got.body)
	}
}

func TestAdmissionRefusalsHaveTheDocumentedOrder(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	entered := make(chan struct{}, 20)
	g := newGateway(t, func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
		jsonAnswer(http.StatusOK, chatJSON)(w, r)
	})
	// The reservation is 200 nano-units for an answer of 100 tokens, and one for the prompt.
	const body = `{"model":"text","messages":[],"max_tokens":100}`
	tests := []struct {
		name                  string
		balance, limit, slots int64
		// runs keeps another request running during the one under test.
		runs bool
		says string
		want apiError
	}{
		{name: "limit before balance", want: apiError{Status: 403, Code: "spend_limit_exceeded", Final: true}},
		{name: "limit too small", says: "leaves 0.00000015, and this request may cost 0.000000201", limit: 150, balance: 300, slots: 1, want: apiError{Status: 403, Code: "spend_limit_exceeded", Final: true}},
		{name: "balance before slots", says: "exhausted: 0.00 is available, 0.00 is reserved", limit: 1000, want: apiError{Status: 402, Code: "insufficient_quota", Final: true}},
		{name: "no slot before reservations", limit: 300, balance: 300, slots: 1, runs: true, want: apiError{Status: 429, Code: "rate_limit_exceeded", RetryAfter: "1"}},
		{name: "limit held before balance held", says: "reserved for running requests: 0.000000099 is available, 0.000000201 is reserved", limit: 300, balance: 300, slots: 2, runs: true, want: apiError{Status: 403, Code: "spend_limit_exceeded", Final: true}},
		{name: "balance held", says: "reserved for running requests: 0.000000099 is available, 0.000000201 is reserved", limit: 1000, balance: 300, slots: 2, runs: true, want: apiError{Status: 402, Code: "insufficient_quota", Final: true}},
	}
	for i, tt := range tests {
		account := "acc_t" + string(rune('0'+i))
		g.plane.open(account, tt.balance, tt.limit, tt.slots)
		key := "Bearer " + g.issue("key_t", account)
		if tt.runs {
			done := make(chan struct{})
			go func() {
				defer close(done)
				if response, err := g.try(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(body), "Authorization", key); err == nil {
					_ = response.Body.Close()
				}
			}()
			defer func() { <-done }()
			<-entered
		}
		got := g.post("/v1/chat/completions", body, "Authorization", key).apiError(t)
		if diff := cmp.Diff(tt.want, got, ignoreTexts); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if !strings.Contains(got.Message, tt.says) {
			t.Errorf("%s: got message %q; want %q in it", tt.name, got.Message, tt.says)
		}
	}
	release <- struct{}{}
	release <- struct{}{}
	release <- struct{}{}
}

func TestUncertainAdmissionIsAnsweredWith503(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		in   func(g *gateway)
	}{
		{"spool is full", func(g *gateway) { g.spool.full = errDown }},
		{"control plane is silent", func(g *gateway) { g.plane.set(func(p *controlPlane) { p.down = true }) }},
		{"key cannot be looked up", func(g *gateway) { g.plane.set(func(p *controlPlane) { p.loadsDown = true }) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, jsonAnswer(http.StatusOK, chatJSON))
			tt.in(g)
			got := g.post("/v1/chat/completions", `{"model":"text","messages":[]}`).apiError(t)
			if diff := cmp.Diff(apiError{Status: 503, Code: "service_unavailable", RetryAfter: "1"}, got, ignoreTexts); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if calls := g.sims[0].received(); len(calls) != 0 {
				t.Errorf("%d calls were made", len(calls))
			}
			g.plane.set(func(p *controlPlane) { p.down = false })
		})
	}
}
