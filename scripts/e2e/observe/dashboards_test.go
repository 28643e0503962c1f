package observe

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
	dashboards "modelgateway/scripts/observe"
)

// empty are the panels for which the traffic of this test makes no data, with the reason.
var empty = map[string]string{
	"Refusals / Turns refused": "needs a provider that limits the rate for longer than a request waits for its turn",
	"Money / Stranded usage":   "needs a proxy that does not come back",
}

// TestDashboardsShowData sends traffic of all kinds and checks that each query of each panel then returns a number.
func TestDashboardsShowData(t *testing.T) {
	r := rig.Get(t)
	rules, err := filepath.Abs(root + "/deploy/helm/modelgateway/files/rules/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := startPrometheus(t, r, rules)
	makeTraffic(t, r)
	for _, d := range dashboards.Dashboards() {
		for _, row := range d.Rows {
			for _, panel := range row.Panels {
				name := d.Title + " / " + panel.Title
				for _, q := range panel.Queries {
					expr := strings.ReplaceAll(q.Expr, "$__rate_interval", "15m") // some of the traffic comes once
					if empty[name] != "" {
						if found, err := p.query(t.Context(), expr); err != nil || len(found) > 0 {
							t.Errorf("%s returns %v, %v: it is listed as empty", name, found, err)
						}
						continue
					}
					rig.Await(t, name+" to show "+expr, func(ctx context.Context) error {
						found, err := p.query(ctx, expr)
						if err == nil && len(found) == 0 {
							err = errors.New("no data")
						}
						return err
					})
				}
			}
		}
	}
	checkMetricsOfRules(t, p, rules)
}

// checkMetricsOfRules checks that each metric that an alert names was scraped.
func checkMetricsOfRules(t *testing.T, p *server, rules string) {
	t.Helper()
	text, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	// The first is empty (see there). The stack has no TLS: TestExpiryOfCertificatesIsMeasured of both planes looks at the second.
	scraped := append(p.metrics(t), "mgw_sessions_unsettled", "mgw_certificate_expiry_timestamp_seconds")
	for _, name := range regexp.MustCompile(`\bmgw_[a-z_]+`).FindAllString(string(text), -1) {
		if !slices.Contains(scraped, name) {
			t.Errorf("an alert names %s, which neither plane has", name)
		}
	}
}

// makeTraffic sends requests of all kinds until the end of the test.
func makeTraffic(t *testing.T, r *rig.Rig) {
	t.Helper()
	account, poor, narrow := r.Account(t, rig.AccountSpec{}), r.Account(t, rig.AccountSpec{Credit: "0"}), r.Account(t, rig.AccountSpec{Slots: 1})
	_, limited := account.NewKey(t, "0.000001")
	absent := r.Provider(t, rig.Provider{BaseURL: "http://127.0.0.1:1"})
	// A provider of its own: the failures of the other's model would open its breakers before the first failover.
	another := r.Provider(t, rig.Provider{BaseURL: "http://127.0.0.1:1"})
	// A provider of its own: its refusals give the credential a cooldown.
	refusing := r.Provider(t, rig.Provider{BaseURL: r.Sim.URL})
	tools := r.Provider(t, rig.Provider{BaseURL: toolProvider(t)})
	strict := r.Provider(t, rig.Provider{BaseURL: strictProvider(t)})
	impatient := r.Provider(t, rig.Provider{BaseURL: r.Sim.URL, FirstByteTimeout: "200ms"})
	formats := []string{"chat"}
	m := r.Models(t,
		rig.Model{}, rig.Model{Type: "image"}, rig.Model{Type: "video"}, rig.Model{Directives: "cut=3"}, rig.Model{Directives: "status=429"},
		rig.Model{Directives: "delay=300ms"}, rig.Model{Routes: []rig.Route{{Provider: absent, UpstreamModel: "m", Formats: formats}}},
		rig.Model{Routes: []rig.Route{{UpstreamModel: "m", Formats: formats, Enabled: rig.False()}}},
		rig.Model{Routes: []rig.Route{{Provider: tools, UpstreamModel: "m", Formats: formats}}}, rig.Model{Directives: "nousage"},
		rig.Model{Routes: []rig.Route{{Provider: refusing, UpstreamModel: "m@status=401,code=invalid_api_key", Formats: formats}}},
		rig.Model{Routes: []rig.Route{{Provider: another, UpstreamModel: "m", Formats: formats}, {UpstreamModel: "m", Formats: formats, Priority: 1}}},
		rig.Model{Routes: []rig.Route{{Provider: strict, UpstreamModel: "m", Formats: formats}}},
		rig.Model{Routes: []rig.Route{{Provider: impatient, UpstreamModel: "m@delay=1s", Formats: formats}}},
		rig.Model{Routes: []rig.Route{{UpstreamModel: "m", Formats: formats, ProviderPrice: map[string]any{"input": "0.50", "output": "1.00"}}}})
	text, image, video, cut, limit, slow, dead, closed, tool := m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7], m[8]
	silent, refused, saved, without, late, bought := m[9], m[10], m[11], m[12], m[13], m[14]
	key := account.Key
	send(t, r, chat(key, renewed(t, r), false),
		chat(key, text, false), chat(key, text, true), chat(key, cut, true), chat(key, limit, false), chat(key, dead, false), chat(key, closed, false), chat(key, tool, false),
		chat(key, silent, false), chat(key, refused, false), chat(key, saved, false), chat(key, without, false),
		chat(key, late, false), chat(key, bought, false),
		chat("mgw_nobody", text, false), chat(poor.Key, text, false), chat(limited, text, false), chat(key, "no-such-model", false),
		chat(narrow.Key, slow, false), chat(narrow.Key, slow, false),
		rig.Request{Path: "/v1/images/generations", Key: key, Body: object{"model": image, "prompt": "Waves"}},
	)
	leave(t, r, chat(key, r.Model(t, rig.Model{Directives: "out=100,chunk=50ms"}), true))
	r.Do(t, rig.Request{Path: "/v1/videos", Key: key, Body: object{"model": video, "prompt": "Waves", "seconds": "4"}})
	large := rig.Request{Path: "/v1/chat/completions", Key: key, Body: io.LimitReader(zeros{}, 26<<20), Length: 26 << 20}
	_, _ = r.Try(t.Context(), large) // the answer may come before the body is sent
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	hook, err := r.Admin.CreateWebhook(t.Context(), nil, adminclient.WebhookCreate{URL: receiver.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Admin.TestWebhook(t.Context(), hook.Value.Webhook.ID, nil); err != nil {
		t.Fatal(err)
	}
	maintained := r.Model(t, rig.Model{})
	if _, err := r.Admin.MaintainModel(t.Context(), maintained, nil, adminclient.MaintenanceSet{}); err != nil {
		t.Fatal(err)
	}
	id, _ := account.NewKey(t, "")
	account.Revoke(t, id)
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// renewed adds a model whose provider has a certificate of its own and expects tokens, which have to be renewed.
func renewed(t *testing.T, r *rig.Rig) (model string) {
	t.Helper()
	provider := httptest.NewTLSServer(http.HandlerFunc(answer))
	t.Cleanup(provider.Close)
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"access_token":"token","token_type":"Bearer","expires_in":3600}`)
	}))
	t.Cleanup(tokens.Close)
	const id, name = "renewed", "observe-renewed"
	r.Add(t,
		[]any{object{
			"id": id, "base_url": provider.URL, "auth": "bearer",
			"ca": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: provider.Certificate().Raw})),
			"credentials": []any{object{"name": "main", "kind": "oauth", "parameters": object{
				"token_url": tokens.URL, "client_id": "gateway", "client_secret": "secret",
			}}},
		}},
		[]any{object{
			"id": name, "type": "text", "max_output_tokens": 1000, "reserve_output_tokens": 100,
			"price":  object{"input": "1.00", "output": "2.00"},
			"routes": []any{object{"provider": id, "upstream_model": "m", "formats": []any{"chat"}}},
		}})
	return name
}

// answer is a provider that reports usage.
func answer(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,`+
		`"message":{"role":"assistant","content":"Here."},"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`)
}

// strictProvider starts a provider that refuses the member store, which the gateway adds.
func strictProvider(t *testing.T) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if body, err := io.ReadAll(r.Body); err != nil || bytes.Contains(body, []byte(`"store"`)) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"Unknown parameter: 'store'.","type":"invalid_request_error",`+
				`"param":"store","code":"unknown_parameter"}}`)
			return
		}
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// toolProvider starts a provider that reports a call of a tool, which has no price.
func toolProvider(t *testing.T) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,`+
			`"message":{"role":"assistant","content":"Here."},"finish_reason":"stop"}],`+
			`"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"server_tool_use":{"web_search_requests":1}}}`)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
