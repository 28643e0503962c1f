package httpapi_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/api"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/propagation"
)

// sendText sends a request without the generated client and returns the problem.
func (b *server) sendText(method, path, body string, headers ...string) (*http.Response, adminclient.Problem) {
	b.T.Helper()
	r, err := http.NewRequestWithContext(b.T.Context(), method, b.URL+path, strings.NewReader(body))
	servertest.Check(b.T, err)
	r.Header.Set("Authorization", "Bearer "+servertest.BootstrapToken)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	servertest.Check(b.T, err)
	defer func() { _ = answer.Body.Close() }()
	var p adminclient.Problem
	if answer.StatusCode >= http.StatusBadRequest {
		servertest.Check(b.T, json.NewDecoder(answer.Body).Decode(&p))
	}
	return answer, p
}

// fields returns the fields of a problem, sorted.
func fields(p *adminclient.Problem) []string {
	var names []string
	for _, e := range p.Errors {
		names = append(names, e.Field)
	}
	slices.Sort(names)
	return names
}

// Malformed and invalid fields are reported in one response.
func TestAllFieldErrorsAreReported(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	k := b.Key(a.ID, "")
	account := "/admin/v1/accounts/" + a.ID
	for _, tt := range []struct {
		name, method, path, body string
		want                     []string
	}{
		{"account", "POST", "/admin/v1/accounts", `{"name":"","max_concurrent_requests":-1,"price_multiplier":"x","model_multipliers":{"m":"y"}}`, []string{"max_concurrent_requests", "model_multipliers[m]", "name", "price_multiplier"}},
		{"account with a member that is not known", "POST", "/admin/v1/accounts", `{"name":"","foo":1,"max_concurrent_requests":-1}`, []string{"foo", "max_concurrent_requests", "name"}},
		{"account with a member of a wrong type", "POST", "/admin/v1/accounts", `{"name":1,"max_concurrent_requests":-1}`, []string{"max_concurrent_requests", "name"}},
		{"nothing else is invalid", "POST", "/admin/v1/accounts", `{"name":"made by mistake","max_concurrent_requests":1,"foo":1}`, []string{"foo"}},
		{"changed, and not known", "PATCH", account, `{"name":"made by mistake","bar":1,"price_multiplier":"x"}`, []string{"bar", "price_multiplier"}},
		{"account, changed", "PATCH", account, `{"name":"","status":"x","price_multiplier":"x"}`, []string{"name", "price_multiplier", "status"}},
		{"account, by null", "PATCH", account, `{"name":null,"max_concurrent_requests":null,"max_open_video_jobs":null}`, []string{"max_concurrent_requests", "name"}},
		{"key", "POST", account + "/keys", `{"name":"","spend_limit":"1e3"}`, []string{"name", "spend_limit"}},
		{"key, changed", "PATCH", "/admin/v1/keys/" + k.ID, `{"name":"","spend_limit":"1e3"}`, []string{"name", "spend_limit"}},
		{"credit", "POST", account + "/credits", `{"amount":"x","kind":"y","reference":""}`, []string{"amount", "kind", "reference"}},
		{"credit beyond all amounts", "POST", account + "/credits", `{"amount":"99999999999","kind":"correction","reference":"r"}`, []string{"amount", "reason"}},
		{"span of usage", "GET", "/admin/v1/usage?from=2026-02-02T00:00:00Z&to=2026-02-01T00:00:00Z&key_id=x", "", []string{"key_id", "to"}},
		{"span of totals", "GET", "/admin/v1/usage/totals?from=2026-02-02&to=2026-02-01", "", []string{"to"}},
		{"span of an export", "GET", "/admin/v1/usage/export?from=2026-02-02T00:00:00Z&to=2026-02-01T00:00:00Z", "", []string{"to"}},
		{"span of the ledger", "GET", "/admin/v1/ledger/export?from=2026-02-02T00:00:00Z&to=2026-02-01T00:00:00Z", "", []string{"to"}},
		{"alerts", "PUT", account + "/alerts", `{"low_balance":"x","spend_limit_percent":101}`, []string{"low_balance", "spend_limit_percent"}},
		{
			"import", "POST", "/admin/v1/keys:import", `{"keys":[{"account_id":"x","name":"","hash":"z","hint":"12345","pepper":"p","spend_limit":"-"}]}`,
			[]string{"keys[0].account_id", "keys[0].hash", "keys[0].hint", "keys[0].name", "keys[0].pepper", "keys[0].spend_limit"},
		},
	} {
		answer, p := b.sendText(tt.method, tt.path, tt.body)
		if got := fields(&p); answer.StatusCode != http.StatusBadRequest || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %d, %v; want %v", tt.name, answer.StatusCode, got, tt.want)
		}
	}
	_, p := b.sendText("POST", account+"/credits", `{"amount":"99999999999","kind":"correction","reference":"r","reason":"x"}`)
	if len(p.Errors) != 1 || p.Errors[0].Detail != "is too large" {
		t.Errorf("an amount that is too large: %+v", p.Errors)
	}
}

// The catalog is written by people: a price may be a number, which counts as it is written, and a wrong type is said in words of
// JSON and not of a programming language.
func TestTypesInTheCatalogAreToldInWords(t *testing.T) {
	t.Parallel()
	b := start(t)
	const model = `{"currency":"USD","models":[{"id":"x","type":"text",`
	for body, want := range map[string]string{
		model + `"max_output_tokens":"many","price":{"input":"1","output":"2"}}]}`: "models[0].max_output_tokens must be a number, not a string",
		model + `"public":"no way","price":{"input":"1","output":"2"}}]}`:          "models[0].public must be a boolean, not a string",
		model + `"routes":"x","price":{"input":"1","output":"2"}}]}`:               "models[0].routes must be a list, not a string",
	} {
		for _, mediaType := range []string{"application/json", "application/yaml"} {
			answer, p := b.sendText("PUT", "/admin/v1/catalog", body, "Content-Type", mediaType)
			if answer.StatusCode != http.StatusBadRequest || len(p.Errors) != 1 || p.Errors[0].Field+" "+p.Errors[0].Detail != want {
				t.Errorf("%s as %s: %d %+v; want %s", body, mediaType, answer.StatusCode, p.Errors, want)
			}
		}
	}
	answer, _ := b.sendText("PUT", "/admin/v1/catalog", model+`"price":{"input":0.1,"output":1.200000001}}]}`, "Content-Type", "application/json")
	written, err := b.API.GetModel(t.Context(), "x")
	servertest.Check(t, err)
	if price := written.Value.Price; answer.StatusCode != http.StatusOK || *price.Input != "0.10" || *price.Output != "1.200000001" {
		t.Errorf("got %d and the price %+v", answer.StatusCode, written.Value.Price)
	}
}

// A member that is not known makes every operation fail, though it is asked what else is wrong, and none changes anything.
func TestNothingIsDoneForABodyWithAMemberThatIsNotKnown(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	k := b.Key(a.ID, "")
	b.Credit(a.ID, "10", "before")
	var doc struct {
		Paths map[string]map[string]yaml.Node `yaml:"paths"`
	}
	servertest.Check(t, yaml.Unmarshal(api.Document, &doc))
	entries := func() (n int) {
		servertest.Check(t, b.DB.Pool().QueryRow(t.Context(), "select (select count(*) from audit_log) + (select count(*) from idempotency_keys)").Scan(&n))
		return n
	}
	before, operations := entries(), 0
	for path, item := range doc.Paths {
		for method, node := range item {
			var op struct {
				Body struct {
					Content map[string]struct{ Example map[string]any } `yaml:"content"`
				} `yaml:"requestBody"` //nolint:tagliatelle // the name is that of OpenAPI
			}
			if method == "parameters" || node.Decode(&op) != nil || op.Body.Content["application/json"].Example == nil {
				continue
			}
			operations++
			body := op.Body.Content["application/json"].Example
			body["foo"] = 1
			text, err := json.Marshal(body)
			servertest.Check(t, err)
			at := strings.NewReplacer("{account_id}", a.ID, "{key_id}", k.ID, "{model_id}", "m", "{month}", "2026-01").Replace(path)
			at = regexp.MustCompile(`\{[a-z]+_id\}`).ReplaceAllString(at, "x_1")
			// Some look for the object first, which does not exist.
			if answer, p := b.sendText(strings.ToUpper(method), at, string(text)); answer.StatusCode != http.StatusBadRequest && answer.StatusCode != http.StatusNotFound {
				t.Errorf("%s %s: %d, %v; want 400 or 404", method, path, answer.StatusCode, fields(&p))
			}
		}
	}
	if after := entries(); after != before || operations < 15 {
		t.Errorf("%d operations wrote %d entries of the audit log or idempotency keys", operations, after-before)
	}
	b.CheckLedger()
}

// Text that the database cannot store is a client error in any position.
func TestTextThatCannotBeStoredIsRejected(t *testing.T) {
	t.Parallel()
	b := start(t)
	for _, tt := range []struct {
		name, method, path, body string
		headers                  []string
		want                     string
	}{
		{"zero character", "POST", "/admin/v1/accounts", `{"name":"a\u0000b"}`, nil, "name"},
		{"no UTF-8", "POST", "/admin/v1/accounts", "{\"name\":\"a\xff\"}", nil, ""},
		{"half a surrogate pair", "POST", "/admin/v1/accounts", `{"name":"\ud800"}`, nil, ""},
		{"in a query", "GET", "/admin/v1/accounts?external_id=a%00", "", nil, "external_id"},
		{"no UTF-8 in a query", "GET", "/admin/v1/usage?model=%ff", "", nil, "model"},
		{"in a path", "GET", "/admin/v1/models/a%00b", "", nil, "model_id"},
		{"no UTF-8 in a path", "GET", "/admin/v1/models/%ff/prices", "", nil, "model_id"},
		{"no UTF-8 in a key", "POST", "/admin/v1/accounts", `{"name":"x"}`, []string{"Idempotency-Key", "a\xff"}, "Idempotency-Key"},
		{"in a catalog", "PUT", "/admin/v1/catalog", "currency: \"U\\0D\"", []string{"Content-Type", "application/yaml"}, "currency"},
	} {
		answer, p := b.sendText(tt.method, tt.path, tt.body, tt.headers...)
		if got := fields(&p); answer.StatusCode != http.StatusBadRequest || !slices.Equal(got, []string{tt.want}) {
			t.Errorf("%s: %d, %q; want %q", tt.name, answer.StatusCode, got, tt.want)
		}
	}
}

// A field error names the expected format.
func TestFieldErrorsNameTheExpectedFormat(t *testing.T) {
	t.Parallel()
	b := start(t)
	reader, err := servertest.Answered(b.API.CreateToken(t.Context(), nil, adminclient.TokenCreate{Name: "r", Scopes: []adminclient.Scope{adminclient.ScopeRead}}))
	servertest.Check(t, err)
	for _, tt := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		detail                   string
	}{
		{"form", "POST", "/admin/v1/accounts", "name=x", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "application/json"},
		{"another charset", "POST", "/admin/v1/accounts", `{"name":"x"}`, []string{"Content-Type", "application/json; charset=latin1"}, 415, "application/json"},
		{"catalog", "PUT", "/admin/v1/catalog", "{}", []string{"Content-Type", "text/plain"}, 415, "application/yaml"},
		{"scope", "POST", "/admin/v1/accounts", `{"name":"x"}`, []string{"Authorization", "Bearer " + reader.Value.Secret}, 403, "cabinet"},
	} {
		answer, p := b.sendText(tt.method, tt.path, tt.body, tt.headers...)
		if answer.StatusCode != tt.status || p.Detail == nil || !strings.Contains(*p.Detail, tt.detail) {
			t.Errorf("%s: %d %+v; want %d with %q", tt.name, answer.StatusCode, p, tt.status, tt.detail)
		}
	}
	if answer, _ := b.sendText("POST", "/admin/v1/accounts", `{"name":"x"}`, "Content-Type", `application/json; charset="UTF-8"`); answer.StatusCode != http.StatusCreated {
		t.Errorf("UTF-8 by name: %d", answer.StatusCode)
	}
}

// A patch that changes nothing changes neither ETag, time nor audit log.
func TestEmptyPatchChangesNothing(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(3)
	k := b.Key(a.ID, "5.00")
	for path, body := range map[string]string{
		"/admin/v1/accounts/" + a.ID: `{"name":"` + a.Name + `","max_concurrent_requests":3}`,
		"/admin/v1/keys/" + k.ID:     `{"name":"` + k.Name + `","spend_limit":"5"}`,
	} {
		var entries, later int
		count := func(n *int) {
			servertest.Check(t, b.DB.Pool().QueryRow(t.Context(), "select count(*) from audit_log").Scan(n))
		}
		count(&entries)
		before, _ := b.sendText("GET", path, "")
		for _, patch := range []string{"{}", body} {
			if after, p := b.sendText("PATCH", path, patch); after.StatusCode != http.StatusOK || after.Header.Get("ETag") != before.Header.Get("ETag") {
				t.Errorf("%s %s: %d, tag %s, was %s (%+v)", path, patch, after.StatusCode, after.Header.Get("ETag"), before.Header.Get("ETag"), p)
			}
		}
		if count(&later); later != entries {
			t.Errorf("%s: %d entries in the audit log, were %d", path, later, entries)
		}
	}
}

// A new key changes nothing that a proxy has cached. Earlier changes are confirmed at once,
// without waiting for a heartbeat.
func TestNewKeyConfirmsEarlierChanges(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	b.session("proxy-1", 0, 0)
	wait := adminclient.WaitForApplied
	_, err := servertest.Answered(b.API.UpdateAccount(t.Context(), a.ID, nil, adminclient.AccountPatch{MaxConcurrentRequests: new(7)}))
	servertest.Check(t, err)
	b.Announcer.Told, b.Announcer.Answer = nil, propagation.Confirmation{Effective: true}
	made, err := servertest.Answered(b.API.CreateKey(t.Context(), a.ID, &adminclient.CreateKeyParams{Wait: &wait}, adminclient.KeyCreate{Name: "k"}))
	servertest.Check(t, err)
	if h := made.Header; h.Get("Applied") != "true" || h.Get("Applied-By") != "proxy-1" {
		t.Errorf("applied %q by %q", h.Get("Applied"), h.Get("Applied-By"))
	}
	if told := b.Announcer.Told; len(told) != 1 || told[0].Account != a.ID {
		t.Errorf("received %+v; want the change of the account once more", told)
	}
}
