package consoletest

import (
	"encoding/json"
	"net/http"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

// SQL runs statements.
func (w *World) SQL(statements ...string) {
	w.T.Helper()
	for _, s := range statements {
		_, err := w.DB.Pool().Exec(w.T.Context(), s)
		servertest.Check(w.T, err)
	}
}

// Customer returns a new account with money, and a key of it.
func (w *World) Customer(name string) (a *adminclient.Account, k *adminclient.IssuedKey) {
	w.T.Helper()
	made, err := w.API.CreateAccount(w.T.Context(), nil, adminclient.AccountCreate{Name: name})
	servertest.Check(w.T, err)
	_, err = w.API.CreateCredit(w.T.Context(), made.Value.ID, nil, adminclient.CreditCreate{
		Amount: "25.000000001", Kind: adminclient.CreditKindPayment, Reference: "invoice of " + name,
	})
	servertest.Check(w.T, err)
	issued, err := w.API.CreateKey(w.T.Context(), made.Value.ID, nil, adminclient.KeyCreate{Name: "production"})
	servertest.Check(w.T, err)
	return made.Value, issued.Value
}

// NewToken returns a new admin token and its id.
func (w *World) NewToken(scopes ...adminclient.Scope) (id, text string) {
	w.T.Helper()
	made, err := w.API.CreateToken(w.T.Context(), nil, adminclient.TokenCreate{Name: "somebody", Scopes: scopes})
	servertest.Check(w.T, err)
	return made.Value.ID, made.Value.Secret
}

// SmallCatalog applies a catalog with a model, a provider and two credentials.
func (w *World) SmallCatalog() {
	w.T.Helper()
	w.Apply(smallCatalog)
}

const smallCatalog = `
currency: USD
providers:
  - id: acme
    base_url: https://api.example.com
    credentials: [{name: main, secret: sk-acme-main}, {name: backup, secret: sk-acme-backup}]
models:
  - id: example-small
    type: text
    price: {input: "0.10", output: "0.40"}
    params: {chat: {seed: {policy: drop}}}
    routes: [{id: small-main, provider: acme, upstream_model: small-2026, formats: [chat]}]
`

// Running is the statement that adds the session of a proxy that has applied every change.
const Running = `
	insert into proxy_sessions (name, boot_id, build, window_ms, valid_until, applied_revision, catalog_revision, spool_capacity)
	values ('proxy-1', 'boot', 'v1', 20000, now() + interval '1 hour', 1000000, 1000000, 1000)`

// OneProxy adds the session of a proxy that has applied every change.
func (w *World) OneProxy() {
	w.T.Helper()
	w.SQL(Running)
}

// Webhook returns a new endpoint that receives nothing.
func (w *World) Webhook() *adminclient.Webhook {
	w.T.Helper()
	made, err := w.API.CreateWebhook(w.T.Context(), nil, adminclient.WebhookCreate{
		URL: "https://receiver.example/events", Enabled: new(false),
	})
	servertest.Check(w.T, err)
	return &made.Value.Webhook
}

// catalogText is the catalog of Request.
const catalogText = `
currency: USD
providers:
  - {id: sim, base_url: "https://sim.example", credentials: [{name: main, secret: sk-test}]}
models:
  - id: example-small
    type: text
    context_window: 1000
    max_output_tokens: 100
    price: {input: "0.10", output: "0.40"}
    routes: [{provider: sim, upstream_model: u, formats: [chat]}]
`

// Request settles a finished request of a key that was answered with 200, and returns its id.
func (w *World) Request(k *adminclient.IssuedKey, status event.Status, u price.Usage, attempts ...event.Attempt) string {
	w.T.Helper()
	return w.Answered(http.StatusOK, k, status, u, attempts...)
}

// Answered is Request with another HTTP status.
func (w *World) Answered(code int, k *adminclient.IssuedKey, status event.Status, u price.Usage, attempts ...event.Attempt) string {
	w.T.Helper()
	w.Apply(catalogText)
	sheet := w.Sheet("example-small")
	cost, err := price.Cost(&u, &sheet)
	servertest.Check(w.T, err)
	p, at := w.Proxy(ident.Request.New()), time.Now().Add(-time.Minute)

	return p.Settle(&event.Usage{
		V:               event.Version,
		RequestID:       ident.Request.Format(ident.NewAt(at)),
		Session:         p.Session,
		Seq:             1,
		AccountID:       k.AccountID,
		KeyID:           k.ID,
		Model:           "example-small",
		Format:          "chat",
		Provider:        "sim",
		Status:          status,
		HTTPStatus:      code,
		StartedMS:       at.UnixMilli(),
		FinishedMS:      at.UnixMilli() + 4200,
		FirstByteMS:     310,
		Usage:           u,
		Rule:            event.RuleReported,
		PriceVersion:    sheet.Version,
		PriceMultiplier: sheet.Multiplier,
		Cost:            cost,
		Reservation:     2 * money.Unit,
		Attempts:        attempts,
	})
}

// Quarantined puts an event into quarantine: its key does not exist. It returns the request's id.
func (w *World) Quarantined(account string) string {
	w.T.Helper()
	id, now := ident.Request.New(), time.Now().UnixMilli()
	raw, err := json.Marshal(event.Usage{
		V:            event.Version,
		RequestID:    id,
		Session:      1,
		Seq:          1,
		AccountID:    account,
		KeyID:        ident.Key.New(),
		Model:        "m",
		Format:       "chat",
		Status:       event.Completed,
		StartedMS:    now,
		FinishedMS:   now,
		Usage:        price.Usage{Input: 1},
		Rule:         event.RuleReported,
		PriceVersion: 1,
		Cost:         9_007_199_254_740_993,
	})
	servertest.Check(w.T, err)
	batch, err := json.Marshal(event.Batch{V: 1, Session: 1, Events: []json.RawMessage{raw}})
	servertest.Check(w.T, err)
	_, err = settle.New(moneystore.NewSettlement(w.DB), nil).Settle(w.T.Context(), settle.DecodeBatch(batch))
	servertest.Check(w.T, err)
	return id
}
