package httpapi_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/api"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

// operations are those of the admin API, below /admin/v1, by the scope that each needs. It repeats the API document, so that nobody opens
// an operation to a scope without deciding it: what a portal does with accounts, projects, keys, limits, models and its webhooks needs
// `cabinet`, never `operator`; what shows or changes the operator's own things needs `observe` or `operator`.
var operations = map[adminclient.Scope][]string{
	"any": {
		"GET /whoami",
	},
	adminclient.ScopeRead: {
		"GET /accounts",
		"GET /accounts/{account_id}",
		"GET /accounts/{account_id}/alerts",
		"GET /accounts/{account_id}/balance",
		"GET /accounts/{account_id}/credits",
		"GET /accounts/{account_id}/keys",
		"GET /accounts/{account_id}/ledger",
		"GET /accounts/{account_id}/limits",
		"GET /accounts/{account_id}/models",
		"GET /accounts/{account_id}/projects",
		"GET /accounts/{account_id}/statements",
		"GET /catalog",
		"GET /deliveries/{delivery_id}",
		"GET /events",
		"GET /keys/{key_id}",
		"GET /ledger/export",
		"GET /limits/{limit_id}",
		"GET /limits/{limit_id}/windows",
		"GET /maintenance",
		"GET /models",
		"GET /models/{model_id}",
		"GET /models/{model_id}/prices",
		"GET /models/{model_id}/routes",
		"GET /models/{model_id}/routes/{route_id}",
		"GET /projects/{project_id}",
		"GET /providers",
		"GET /providers/{provider_id}",
		"GET /providers/{provider_id}/credentials",
		"GET /providers/{provider_id}/credentials/{credential}",
		"GET /refusals",
		"GET /search",
		"GET /settings",
		"GET /traffic/series",
		"GET /usage",
		"GET /usage/export",
		"GET /usage/totals",
		"GET /usage/{request_id}",
		"GET /video-jobs",
		"GET /video-jobs/{video_id}",
		"GET /webhooks",
		"GET /webhooks/{webhook_id}",
		"GET /webhooks/{webhook_id}/deliveries",
	},
	adminclient.ScopeCabinet: {
		"POST /accounts",
		"PATCH /accounts/{account_id}",
		"PUT /accounts/{account_id}/alerts",
		"POST /accounts/{account_id}/keys",
		"POST /accounts/{account_id}/limits",
		"DELETE /accounts/{account_id}/models/{model_id}",
		"PUT /accounts/{account_id}/models/{model_id}",
		"POST /accounts/{account_id}/projects",
		"POST /deliveries/{delivery_id}/redeliver",
		"PATCH /keys/{key_id}",
		"POST /keys/{key_id}/revoke",
		"POST /keys/{key_id}/rotate",
		"POST /keys:import",
		"DELETE /limits/{limit_id}",
		"PATCH /limits/{limit_id}",
		"POST /limits/{limit_id}/reset",
		"DELETE /projects/{project_id}",
		"PATCH /projects/{project_id}",
		"POST /webhooks",
		"DELETE /webhooks/{webhook_id}",
		"PATCH /webhooks/{webhook_id}",
		"POST /webhooks/{webhook_id}/redeliver",
		"POST /webhooks/{webhook_id}/rotate-secret",
		"POST /webhooks/{webhook_id}/test",
	},
	adminclient.ScopeCredits: {
		"POST /accounts/{account_id}/credits",
	},
	adminclient.ScopeKeysReveal: {
		"POST /keys/{key_id}/reveal",
	},
	adminclient.ScopeObserve: {
		"GET /accounts/{account_id}/pools",
		"GET /audit",
		"GET /diagnosis",
		"GET /ledger/books",
		"GET /ledger/check",
		"GET /ledger/check/receipts",
		"GET /ledger/checks",
		"GET /ledger/checks/{check_id}",
		"GET /master-key",
		"GET /pepper",
		"GET /pepper/hash-only",
		"GET /proxies",
		"GET /quarantine",
		"GET /quarantine/{quarantine_id}",
		"GET /requests/explain",
		"GET /requests/tail",
		"GET /routes/health",
		"GET /tokens",
		"GET /traffic",
		"GET /traffic/stream",
		"GET /usage/months",
	},
	adminclient.ScopeOperator: {
		"GET /bills",
		"POST /bills",
		"DELETE /bills/{bill_id}",
		"GET /bills/{bill_id}",
		"POST /bills/{bill_id}/accept",
		"GET /bills/{bill_id}/differences",
		"GET /bills/{bill_id}/differences/{number}",
		"PUT /catalog",
		"POST /catalog/price-list",
		"GET /console-sessions",
		"DELETE /console-sessions/{session_id}",
		"POST /ledger/checks",
		"DELETE /maintenance/models/{model_id}",
		"PUT /maintenance/models/{model_id}",
		"DELETE /maintenance/providers/{provider_id}",
		"PUT /maintenance/providers/{provider_id}",
		"DELETE /maintenance/system",
		"PUT /maintenance/system",
		"GET /margin",
		"GET /margin/export",
		"POST /master-key:rotate",
		"DELETE /models/{model_id}",
		"PATCH /models/{model_id}",
		"PUT /models/{model_id}",
		"POST /models/{model_id}/prices",
		"DELETE /models/{model_id}/prices/{price_id}",
		"POST /models/{model_id}/prices:preview",
		"DELETE /models/{model_id}/routes/{route_id}",
		"PATCH /models/{model_id}/routes/{route_id}",
		"PUT /models/{model_id}/routes/{route_id}",
		"POST /pepper:rotate",
		"DELETE /providers/{provider_id}",
		"PATCH /providers/{provider_id}",
		"PUT /providers/{provider_id}",
		"POST /providers/{provider_id}/check",
		"DELETE /providers/{provider_id}/credentials/{credential}",
		"PATCH /providers/{provider_id}/credentials/{credential}",
		"PUT /providers/{provider_id}/credentials/{credential}",
		"POST /quarantine/{quarantine_id}/dismiss",
		"POST /quarantine/{quarantine_id}/release",
		"POST /routes/{route_id}/reset",
		"PUT /settings",
		"POST /tokens",
		"DELETE /tokens/{token_id}",
		"POST /usage/months/{month}/exported",
	},
}

// neededScopes returns the scope that each operation needs, as "GET /accounts".
func neededScopes() map[string]adminclient.Scope {
	needed := map[string]adminclient.Scope{}
	for scope, names := range operations {
		for _, name := range names {
			needed[name] = scope
		}
	}
	return needed
}

// Every operation accepts its scope and those that include it, and rejects all others.
func TestOperationsRequireTheirScope(t *testing.T) {
	t.Parallel()
	b := start(t)
	includes := map[adminclient.Scope][]adminclient.Scope{
		adminclient.ScopeRead:       {adminclient.ScopeRead},
		adminclient.ScopeObserve:    {adminclient.ScopeRead, adminclient.ScopeObserve},
		adminclient.ScopeCabinet:    {adminclient.ScopeRead, adminclient.ScopeCabinet},
		adminclient.ScopeCredits:    {adminclient.ScopeCredits},
		adminclient.ScopeKeysReveal: {adminclient.ScopeKeysReveal},
		adminclient.ScopeOperator: {
			adminclient.ScopeRead, adminclient.ScopeObserve, adminclient.ScopeCabinet, adminclient.ScopeCredits, adminclient.ScopeKeysReveal,
			adminclient.ScopeOperator,
		},
	}
	tokens := map[adminclient.Scope]string{}
	for scope := range includes {
		tokens[scope] = "Bearer " + b.Token(scope)
	}
	var doc struct {
		Paths map[string]map[string]yaml.Node `yaml:"paths"`
	}
	servertest.Check(t, yaml.Unmarshal(api.Document, &doc))
	undecided := neededScopes()
	for path, item := range doc.Paths {
		for method, node := range item {
			if method == "parameters" {
				continue
			}
			name := strings.ToUpper(method) + strings.TrimPrefix(" "+path, " /admin/v1")
			name = strings.Replace(name, "/", " /", 1)
			needed, decided := undecided[name]
			if delete(undecided, name); !decided {
				t.Errorf("decide which scope may call %s: add it to operations", name)
				continue
			}
			var op struct {
				Security []map[string][]adminclient.Scope `yaml:"security"`
			}
			servertest.Check(t, node.Decode(&op))
			if documented := op.Security[0]["adminToken"][0]; documented != needed {
				t.Errorf("%s needs %s; the document says %s", name, needed, documented)
			}
			// The ids do not exist, so an accepted request ends with 400, 404 or 415 and changes nothing.
			at := regexp.MustCompile(`\{(account|key|project|limit|provider|token|webhook|delivery)_id\}`).ReplaceAllString(
				strings.NewReplacer("{model_id}", "m", "{request_id}", "req_1").Replace(path), "${1}_1")
			for scope, included := range includes {
				answer, text := b.Send(tokens[scope], strings.ToUpper(method), at, "text/plain", "?")
				if passes := needed == "any" || slices.Contains(included, needed); passes == (answer.StatusCode == http.StatusForbidden) {
					t.Errorf("%s with scope %s: got %d %s; the operation needs %s", name, scope, answer.StatusCode, text, needed)
				}
			}
			for _, none := range []string{"", "Bearer ", "Bearer mgwa_wrong", "Basic " + servertest.BootstrapToken, servertest.BootstrapToken} {
				if answer, _ := b.Send(none, strings.ToUpper(method), at, "", ""); answer.StatusCode != http.StatusUnauthorized && answer.StatusCode != http.StatusTooManyRequests {
					t.Errorf("%s with %q: got %d; want 401, or 429 after many", name, none, answer.StatusCode)
				}
			}
		}
	}
	for name := range undecided {
		t.Errorf("there is no operation %s", name)
	}
}
