package httpapi_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/postgres/videostore"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
)

// ownPrice is what the provider charges in portalCatalog; no other amount has these digits.
const ownPrice = "0.731731"

// portalCatalog has a route whose provider's price is known.
var portalCatalog = strings.Replace(servertest.DemoCatalog, "upstream_model: sim-chat, formats: [chat]",
	`id: r1, upstream_model: sim-chat, formats: [chat], provider_price: {input: "`+ownPrice+`", output: "`+ownPrice+`"}`, 1)

// portal calls operations with one token, and knows the ids of the objects that it has made.
type portal struct {
	*server
	token string
	ids   map[string]string
	done  map[string]bool
}

// do calls an operation, which must succeed, and returns the response. {name} in path and body stands for an id.
func (p *portal) do(operation, query, body string) string {
	p.T.Helper()
	var pairs []string
	for name, id := range p.ids {
		pairs = append(pairs, "{"+name+"}", id)
	}
	ids := strings.NewReplacer(pairs...)
	method, path, _ := strings.Cut(operation, " ")
	media := ""
	if body != "" {
		media = "application/json"
	}
	answer, text := p.Send("Bearer "+p.token, method, "/admin/v1"+ids.Replace(path)+query, media, ids.Replace(body))
	if answer.StatusCode/100 != 2 {
		p.T.Errorf("%s: got %d %s", operation, answer.StatusCode, text)
	}
	for _, hidden := range []string{"provider_cost", `"provider_price"`, "provider_price_version", ownPrice} {
		if strings.Contains(text, hidden) {
			p.T.Errorf("%s tells %s: %s", operation, hidden, text)
		}
	}
	p.done[operation] = true
	return text
}

// make calls an operation that makes an object, and keeps its id, which the response has at a path of members.
func (p *portal) make(name, operation, body string, members ...string) {
	p.T.Helper()
	at := any(nil)
	servertest.Check(p.T, json.Unmarshal([]byte(p.do(operation, "", body)), &at))
	for _, member := range append(members, "id") {
		object, _ := at.(map[string]any)
		at = object[member]
	}
	id, ok := at.(string)
	if !ok {
		p.T.Fatalf("%s: the response has no id", operation)
	}
	p.ids[name] = id
}

// The backend of a portal does all its work with a token of the scope cabinet, and no response tells it what the operator pays.
func TestPortalNeedsNoOtherScope(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(portalCatalog)
	p := &portal{b, b.Token(adminclient.ScopeCabinet), map[string]string{"model_id": "demo-chat", "provider_id": "sim", "credential": "main", "route_id": "r1"}, map[string]bool{}}

	p.make("account_id", "POST /accounts", `{"name": "a customer", "max_concurrent_requests": 3}`)
	p.do("PATCH /accounts/{account_id}", "?wait=applied", `{"max_concurrent_requests": 5}`)
	p.do("PUT /accounts/{account_id}/alerts", "", `{"low_balance": "1.00", "spend_limit_percent": 80}`)
	p.do("PUT /accounts/{account_id}/models/{model_id}", "", "")
	p.make("project_id", "POST /accounts/{account_id}/projects", `{"name": "a shop"}`)
	p.do("PATCH /projects/{project_id}", "", `{"name": "the shop"}`)
	p.make("key_id", "POST /accounts/{account_id}/keys", `{"name": "a key", "project_id": "{project_id}", "spend_limit": "5.00"}`)
	p.do("PATCH /keys/{key_id}", "?wait=applied", `{"paused": true, "max_concurrent_requests": 2, "models": ["demo-chat"], "networks": ["10.0.0.0/8"]}`)
	p.do("POST /keys/{key_id}/rotate", "", `{"overlap_seconds": 60}`)
	p.do("POST /keys:import", "", `{"keys": [{"account_id": "{account_id}", "name": "imported", "pepper": "`+b.Hasher.ID()+`", "hash": "`+strings.Repeat("ab", 32)+`"}]}`)
	for _, owner := range []string{"", `"project_id": "{project_id}", `, `"key_id": "{key_id}", `} {
		p.make("limit_id", "POST /accounts/{account_id}/limits", `{`+owner+`"amount": "1.00", "window": {"period": "month", "time_zone": "UTC"}}`)
	}
	p.do("PATCH /limits/{limit_id}", "?wait=applied", `{"amount": "2.00"}`)
	p.used()
	p.do("POST /limits/{limit_id}/reset", "", "")
	p.make("webhook_id", "POST /webhooks", `{"url": "https://cabinet.example.com/hooks", "event_types": ["limit.share_spent"]}`, "webhook")
	p.do("PATCH /webhooks/{webhook_id}", "", `{"description": "of the portal"}`)
	p.do("POST /webhooks/{webhook_id}/rotate-secret", "", `{"overlap_seconds": 60}`)
	p.do("POST /webhooks/{webhook_id}/test", "", "")
	p.ids["delivery_id"] = b.failDelivery()
	p.do("POST /deliveries/{delivery_id}/redeliver", "", "")
	p.do("POST /webhooks/{webhook_id}/redeliver", "", `{}`)

	p.do("GET /search", "?q=shop", "")
	p.do("GET /traffic/series", "?measure=requests", "")
	p.do("GET /accounts/{account_id}/statements", "?month="+time.Now().UTC().Format("2006-01"), "")
	p.do("GET /usage/totals", "?group_by=project", "")
	for _, form := range []string{"ndjson", "csv"} {
		p.do("GET /usage/export", "?format="+form, "")
	}
	for _, name := range slices.Concat(operations["any"], operations[adminclient.ScopeRead]) {
		if !p.done[name] {
			p.do(name, "", "")
		}
	}

	p.do("POST /keys/{key_id}/revoke", "", "")
	p.do("DELETE /limits/{limit_id}", "", "")
	p.do("DELETE /projects/{project_id}", "", "")
	p.do("DELETE /accounts/{account_id}/models/{model_id}", "", "")
	p.do("DELETE /webhooks/{webhook_id}", "", "")
	for name, scope := range neededScopes() {
		if called := p.done[name]; called != (scope == "any" || scope == adminclient.ScopeRead || scope == adminclient.ScopeCabinet) {
			t.Errorf("%s, which needs %s: called %t", name, scope, called)
		}
	}
}

// What the operator pays is shown to the operator, and to no other scope that reads.
func TestOnlyTheOperatorSeesWhatProvidersCharge(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(portalCatalog)
	account := b.Account(1)
	p := &portal{server: b, ids: map[string]string{"account_id": account.ID, "key_id": b.Key(account.ID, "").ID}}
	p.used()
	request := p.ids["request_id"]
	for _, scope := range []adminclient.Scope{adminclient.ScopeOperator, adminclient.ScopeObserve, adminclient.ScopeCabinet, adminclient.ScopeRead} {
		token := "Bearer " + b.Token(scope)
		for _, path := range []string{
			"/catalog", "/models", "/models/demo-chat", "/models/demo-chat/routes", "/models/demo-chat/routes/r1", "/usage", "/usage/" + request, "/usage/export?format=ndjson",
			"/usage/export?format=csv", "/audit?action=catalog",
		} {
			answer, text := b.Send(token, "GET", "/admin/v1"+path, "", "")
			if path == "/audit?action=catalog" && answer.StatusCode == http.StatusForbidden {
				continue
			}
			if answer.StatusCode != http.StatusOK {
				t.Errorf("%s of %s: got %d %s", path, scope, answer.StatusCode, text)
			}
			shown := strings.Contains(text, ownPrice) || strings.Contains(text, "provider_cost")
			if shown != (scope == adminclient.ScopeOperator) {
				t.Errorf("%s with the scope %s tells what the provider charges: %t\n%s", path, scope, shown, text)
			}
		}
	}
}

// What was read without the prices of providers, a catalog, a model or a route, is not written: it would remove them.
func TestEntriesWithHiddenPricesAreNotWritten(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(portalCatalog)
	reader, operator := "Bearer "+b.Token(adminclient.ScopeRead), "Bearer "+servertest.BootstrapToken
	for _, path := range []string{"/admin/v1/catalog", "/admin/v1/models/demo-chat", "/admin/v1/models/demo-chat/routes/r1"} {
		_, hidden := b.Send(reader, "GET", path, "", "")
		answer, text := b.Send(operator, "PUT", path, "application/json", hidden)
		if answer.StatusCode != http.StatusBadRequest || !strings.Contains(text, "provider_price_hidden") {
			t.Errorf("%s: got %d %s; want 400", path, answer.StatusCode, text)
		}
		_, whole := b.Send(operator, "GET", path, "", "")
		if !strings.Contains(whole, ownPrice) || strings.Contains(whole, "provider_price_hidden") {
			t.Errorf("%s: the operator reads %s", path, whole)
		}
		if answer, text := b.Send(operator, "PUT", path, "application/json", whole); answer.StatusCode != http.StatusOK {
			t.Errorf("%s: what the operator has read: got %d %s; want 200", path, answer.StatusCode, text)
		}
	}
}

// failDelivery lets the delivery of the only event fail and returns its id.
func (b *server) failDelivery() string {
	b.T.Helper()
	ctx := b.T.Context()
	_, err := b.Hooks.FanOut(ctx, 10, (*webhook.Event).Body)
	servertest.Check(b.T, err)
	claims, err := b.Hooks.Claim(ctx, 1, 1, time.Minute)
	servertest.Check(b.T, err)
	if len(claims) != 1 {
		b.T.Fatalf("%d deliveries", len(claims))
	}
	failed := webhook.Attempt{At: time.Now(), Status: 404, Error: webhook.Refused}
	servertest.Check(b.T, b.Hooks.Conclude(ctx, &webhook.Outcome{Claim: &claims[0], State: webhook.Failed, Attempt: failed}))
	var id ident.UUID
	servertest.Check(b.T, b.DB.Pool().QueryRow(ctx, "select id from webhook_deliveries").Scan(&id))
	return ident.Delivery.Format(id)
}

// used lets the portal's key have a settled request, whose provider's cost is known, and a video job, which begins windows.
func (p *portal) used() {
	p.T.Helper()
	k := &adminclient.IssuedKey{ID: p.ids["key_id"], AccountID: p.ids["account_id"]}
	if id := p.ids["project_id"]; id != "" {
		k.ProjectID = &id
	}
	proxy := p.Proxy("p1")
	proxy.Route = "r1"
	p.ids["request_id"] = proxy.Report(k, time.Now(), p.Sheet("demo-chat"), price.Usage{Input: 1_000_000})
	p.ids["video_id"] = ident.Video.New()
	_, err := videostore.New(p.DB).Insert(p.T.Context(), &event.Video{
		V:         event.Version,
		ID:        p.ids["video_id"],
		RequestID: ident.Request.New(),
		AccountID: k.AccountID,
		KeyID:     k.ID,
		Model:     "demo-video",
		Status:    event.VideoQueued,
		Seconds:   4,
		Object:    []byte(`{}`),
	})
	servertest.Check(p.T, err)
}
