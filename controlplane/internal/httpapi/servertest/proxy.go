package servertest

import (
	"context"
	"encoding/json"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/usagestore"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

// Proxy is a session that reports usage.
type Proxy struct {
	Server  *Server
	Session int64
	N       int64
	// Route is the route of the requests that it reports; empty for none.
	Route string
}

// Proxy registers a proxy.
func (b *Server) Proxy(name string) *Proxy {
	b.T.Helper()
	r, err := leasestore.NewLeases(b.DB).Register(b.T.Context(), &wire.RegisterRequest{
		V:        1,
		Name:     name,
		BootID:   "boot",
		Build:    "v1",
		Capacity: 100,
	}, time.Minute)
	Check(b.T, err)
	return &Proxy{Server: b, Session: int64(r.Session)}
}

// Report settles one finished request of a key and returns its id.
func (p *Proxy) Report(k *adminclient.IssuedKey, at time.Time, sheet price.Sheet, u price.Usage, attempts ...event.Attempt) string {
	p.Server.T.Helper()
	cost, err := price.Cost(&u, &sheet)
	Check(p.Server.T, err)
	p.N++
	return p.Settle(&event.Usage{
		V:               event.Version,
		RequestID:       ident.Request.Format(ident.NewAt(at)),
		Session:         p.Session,
		Seq:             p.N,
		AccountID:       k.AccountID,
		KeyID:           k.ID,
		ProjectID:       convert.Text(k.ProjectID),
		Model:           "demo-chat",
		Format:          "chat",
		Provider:        "sim",
		Credential:      "main",
		Route:           p.Route,
		Status:          event.Completed,
		HTTPStatus:      200,
		StartedMS:       at.UnixMilli(),
		FinishedMS:      at.UnixMilli() + 1500,
		Usage:           u,
		Rule:            event.RuleReported,
		PriceVersion:    sheet.Version,
		PriceMultiplier: sheet.Multiplier,
		Cost:            cost,
		Reservation:     2 * money.Unit,
		Attempts:        attempts,
	})
}

// Settle settles the event of a request and returns the id of the request.
func (p *Proxy) Settle(e *event.Usage) string {
	p.Server.T.Helper()
	raw, err := json.Marshal(e)
	Check(p.Server.T, err)
	batch, err := json.Marshal(event.Batch{V: 1, Session: p.Session, Events: []json.RawMessage{raw}})
	Check(p.Server.T, err)
	store := moneystore.NewSettlement(p.Server.DB)
	var facts settle.Facts
	if p.Route != "" {
		facts = pricedRoutes{store}
	}
	result, err := settle.New(store, facts).Settle(p.Server.T.Context(), settle.DecodeBatch(batch))
	Check(p.Server.T, err)
	if result.Settled != 1 {
		p.Server.T.Fatalf("settled %+v", result)
	}
	return e.RequestID
}

// pricedRoutes has the prices of providers, by which settlement computes the provider cost. Sessions of Proxy hold no leases, which
// settlement would put into quarantine.
type pricedRoutes struct{ *moneystore.Settlement }

func (pricedRoutes) WithoutLease(context.Context, []settle.Holder) ([]settle.Holder, error) {
	return nil, nil
}

// Sheet returns the current price sheet of a model.
func (b *Server) Sheet(model string) price.Sheet {
	b.T.Helper()
	var version int64
	Check(b.T, b.DB.Pool().QueryRow(b.T.Context(), "select max(version) from model_prices where model_id = $1", model).Scan(&version))
	s, err := usagestore.NewUsage(b.DB).Sheet(b.T.Context(), version)
	Check(b.T, err)
	return s
}
