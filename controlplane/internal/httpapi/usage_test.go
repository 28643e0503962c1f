package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
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

// proxy is a session that reports usage.
type proxy struct {
	b       *bundle
	session int64
	n       int64
}

func (b *bundle) proxy(name string) *proxy {
	b.t.Helper()
	r, err := leasestore.NewLeases(b.db).Register(b.t.Context(), &wire.RegisterRequest{V: 1, Name: name, BootID: "boot", Build: "v1", Capacity: 100}, time.Minute)
	check(b.t, err)
	return &proxy{b: b, session: int64(r.Session)}
}

// report settles one finished request of a key and returns its id.
func (p *proxy) report(k *adminclient.IssuedKey, at time.Time, sheet price.Sheet, u price.Usage, attempts ...event.Attempt) string {
	p.b.t.Helper()
	cost, err := price.Cost(&u, &sheet)
	check(p.b.t, err)
	p.n++
	e := event.Usage{
		V: event.Version, RequestID: ident.Request.Format(ident.NewAt(at)), Session: p.session, Seq: p.n,
		AccountID: k.AccountID, KeyID: k.ID, Model: "demo-chat", Format: "chat", Provider: "sim", Status: event.Completed, HTTPStatus: 200,
		StartedMS: at.UnixMilli(), FinishedMS: at.UnixMilli() + 1500, Usage: u, Rule: event.RuleReported,
		PriceVersion: sheet.Version, PriceMultiplier: sheet.Multiplier, Cost: cost, Reservation: 2 * money.Unit,
		Attempts: attempts,
	}
	raw, err := json.Marshal(e)
	check(p.b.t, err)
	batch, err := json.Marshal(event.Batch{V: 1, Session: p.session, Events: []json.RawMessage{raw}})
	check(p.b.t, err)
	result, err := settle.New(moneystore.NewSettlement(p.b.db), nil).Settle(p.b.t.Context(), settle.DecodeBatch(batch))
	check(p.b.t, err)
	if result.Settled != 1 {
		p.b.t.Fatalf("settled %+v", result)
	}
	return e.RequestID
}

// sheet returns the current price sheet of a model.
func (b *bundle) sheet(model string) price.Sheet {
	b.t.Helper()
	var version int64
	check(b.t, b.db.Pool().QueryRow(b.t.Context(), "select max(version) from model_prices where model_id = $1", model).Scan(&version))
	s, err := usagestore.NewUsage(b.db).Sheet(b.t.Context(), version)
	check(b.t, err)
	return s
}

func TestUsageAndReceipt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(demoCatalog)
	a := b.account(1)
	b.credit(a.ID, "10.00", "r")
	k := b.key(a.ID, "5.00")
	old := b.sheet("demo-chat")
	at := time.Now().Truncate(time.Millisecond)
	id := b.proxy("p1").report(k, at, old, price.Usage{Input: 1_000_000, CachedInput: 333, Output: 200_000})

	// A new price does not change earlier charges.
	b.apply(strings.Replace(demoCatalog, `input: "1.00"`, `input: "9.00"`, 1))

	r, err := answered(b.api.GetUsage(t.Context(), id))
	check(t, err)
	if r.StatusCode != http.StatusOK {
		t.Fatalf("get usage: %s", r.Body)
	}
	want := adminclient.Receipt{
		PriceVersion: old.Version, Currency: "USD", ListCost: "2.0000333", PriceMultiplier: "1", Cost: "2.0000333", Reservation: "2.00", Rule: "reported",
		Lines: []adminclient.ReceiptLine{
			{Line: "input", Quantity: 1_000_000, UnitPrice: "1.00", Per: 1_000_000, Amount: "1.00"},
			{Line: "cached_input", Quantity: 333, UnitPrice: "0.10", Per: 1_000_000, Amount: "0.0000333"},
			{Line: "output", Quantity: 200_000, UnitPrice: "5.00", Per: 1_000_000, Amount: "1.00"},
		},
	}
	if diff := cmp.Diff(want, r.Value.Receipt); diff != "" {
		t.Errorf("receipt (-want +got):\n%s", diff)
	}
	if got := r.Value; got.RequestID != id || got.AccountID != a.ID || got.KeyID != k.ID || got.Cost != "2.0000333" ||
		!got.StartedAt.Equal(at) || !got.FinishedAt.Equal(at.Add(1500*time.Millisecond)) || got.Usage["input"] != float64(1_000_000) {
		t.Errorf("record: %s", r.Body)
	}
	balance, err := answered(b.api.GetBalance(t.Context(), a.ID))
	check(t, err)
	if balance.Value.Balance != "7.9999667" {
		t.Errorf("balance %s; want 7.9999667", balance.Value.Balance)
	}
	spent, err := answered(b.api.GetKey(t.Context(), k.ID))
	check(t, err)
	if spent.Value.Spent != "2.0000333" {
		t.Errorf("key has spent %s; want 2.0000333", spent.Value.Spent)
	}
	booked, err := answered(b.api.ListLedger(t.Context(), a.ID, nil))
	check(t, err)
	if len(booked.Value.Data) != 2 || booked.Value.Data[0].Kind != adminclient.TransactionKindUsage || booked.Value.Data[0].Amount != "-2.0000333" {
		t.Errorf("ledger: %s", booked.Body)
	}
	b.checkLedger()
	receipts, err := answered(b.api.CheckReceipts(t.Context()))
	check(t, err)
	if got := receipts.Value; got == nil || !got.OK || got.Compared != 1 {
		t.Errorf("check of receipts: %s", receipts.Body)
	}
}

func TestUsageShowsTheAttempts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(demoCatalog)
	k, p := b.key(b.account(1).ID, ""), b.proxy("p1")
	var credential string
	check(t, b.db.Pool().QueryRow(t.Context(), "select id from provider_credentials limit 1").Scan(&credential))
	id := p.report(k, time.Now(), b.sheet("demo-chat"), price.Usage{Input: 1},
		event.Attempt{Route: "r1", Skipped: event.SkippedMaintenance}, event.Attempt{Route: "r2", Credential: credential, Class: "timeout", MS: 84},
		event.Attempt{Route: "r3", Credential: "crd_gone", MS: 310})
	r, err := answered(b.api.GetUsage(t.Context(), id))
	check(t, err)
	got := r.Value.Attempts
	if len(got) != 3 || got[1].Credential == nil || *got[1].Credential == "" {
		t.Fatalf("attempts: %s", r.Body)
	}
	want := []adminclient.RouteAttempt{
		{Route: "r1", Result: adminclient.RouteAttemptResultSkipped, Skipped: new("maintenance")},
		{Route: "r2", Result: adminclient.RouteAttemptResultFailed, CredentialID: &credential, Credential: got[1].Credential, Class: new("timeout"), MS: new(int64(84))},
		{Route: "r3", Result: adminclient.RouteAttemptResultServed, CredentialID: new("crd_gone"), MS: new(int64(310))},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	plain, err := answered(b.api.GetUsage(t.Context(), p.report(k, time.Now(), b.sheet("demo-chat"), price.Usage{Input: 1})))
	check(t, err)
	if len(plain.Value.Attempts) != 0 {
		t.Errorf("a request that the first route served: %s", plain.Body)
	}
}

func TestUsageList(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(demoCatalog)
	sheet := b.sheet("demo-chat")
	k1, k2 := b.key(b.account(1).ID, ""), b.key(b.account(1).ID, "")
	k3 := b.key(k1.AccountID, "")
	p := b.proxy("p1")
	base := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	ids := map[string]string{} // id to a name that a test can say
	var first string
	for i, k := range []*adminclient.IssuedKey{k1, k2, k3, k1, k1} {
		id := p.report(k, base.Add(time.Duration(i)*time.Minute), sheet, price.Usage{Input: 10})
		if ids[id] = fmt.Sprint("r", i); i == 0 {
			first = id[:len("req_")+14]
		}
	}
	for _, test := range []struct {
		name   string
		params adminclient.ListUsageParams
		want   []string
	}{
		{"all, newest first", adminclient.ListUsageParams{}, []string{"r4", "r3", "r2", "r1", "r0"}},
		{"of an account", adminclient.ListUsageParams{AccountID: &k1.AccountID}, []string{"r4", "r3", "r2", "r0"}},
		{"of a key", adminclient.ListUsageParams{KeyID: &k1.ID}, []string{"r4", "r3", "r0"}},
		{"of a key of another account", adminclient.ListUsageParams{KeyID: &k1.ID, AccountID: &k2.AccountID}, nil},
		{"of a model", adminclient.ListUsageParams{Model: new("demo-chat"), AccountID: &k2.AccountID}, []string{"r1"}},
		{"of a model never used", adminclient.ListUsageParams{Model: new("other")}, nil},
		{"from", adminclient.ListUsageParams{From: new(base.Add(3 * time.Minute))}, []string{"r4", "r3"}},
		{"to", adminclient.ListUsageParams{To: new(base.Add(2 * time.Minute))}, []string{"r1", "r0"}},
		{"from and to", adminclient.ListUsageParams{From: new(base.Add(time.Minute)), To: new(base.Add(2 * time.Minute))}, []string{"r1"}},
		{"of a status", adminclient.ListUsageParams{Status: new(adminclient.UsageStatusCompleted), AccountID: &k2.AccountID}, []string{"r1"}},
		{"of a status that no request has", adminclient.ListUsageParams{Status: new(adminclient.UsageStatusFailed)}, nil},
		{"of a provider, a format and no stream", adminclient.ListUsageParams{Provider: new("sim"), Format: new("chat"), Stream: new(false), KeyID: &k2.ID}, []string{"r1"}},
		{"of another provider", adminclient.ListUsageParams{Provider: new("other")}, nil},
		{"of a route", adminclient.ListUsageParams{Route: new("rte_1")}, nil},
		{"estimated", adminclient.ListUsageParams{Estimated: new(true)}, nil},
		{"not estimated", adminclient.ListUsageParams{Estimated: new(false), KeyID: &k2.ID}, []string{"r1"}},
		{"that cost at least", adminclient.ListUsageParams{MinCost: new("0.00001"), KeyID: &k2.ID}, []string{"r1"}},
		{"that cost more", adminclient.ListUsageParams{MinCost: new("0.000010001")}, nil},
		{"by the beginning of the id", adminclient.ListUsageParams{RequestIDPrefix: &first}, []string{"r0"}},
		{"page by page", adminclient.ListUsageParams{Limit: new(2)}, []string{"r4", "r3", "r2", "r1", "r0"}},
		{"page by page with a bound", adminclient.ListUsageParams{Limit: new(1), To: new(base.Add(2 * time.Minute))}, []string{"r1", "r0"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for params := test.params; ; {
				r, err := answered(b.api.ListUsage(t.Context(), &params))
				check(t, err)
				if r.StatusCode != http.StatusOK {
					t.Fatalf("list usage: %s", r.Body)
				}
				for _, u := range r.Value.Data {
					got = append(got, ids[u.RequestID])
				}
				if params.Cursor = r.Value.NextCursor; params.Cursor == nil {
					break
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
	for _, id := range []string{"req_1", "req_00000000000070008000000000000000"} {
		r, err := answered(b.api.GetUsage(t.Context(), id))
		check(t, err)
		problem(t, r.Problem, http.StatusNotFound, "not_found")
	}
	faulty, err := answered(b.api.ListUsage(t.Context(), &adminclient.ListUsageParams{AccountID: new("x"), KeyID: new("y")}))
	check(t, err)
	problem(t, faulty.Problem, http.StatusBadRequest, "invalid_input")
	faulty, err = answered(b.api.ListUsage(t.Context(), &adminclient.ListUsageParams{
		Status: new(adminclient.UsageStatus("great")), MinCost: new("much"), RequestIDPrefix: new("acc_"),
	}))
	check(t, err)
	problem(t, faulty.Problem, http.StatusBadRequest, "invalid_input")
	if p := faulty.Problem; p != nil && len(p.Errors) != 3 {
		t.Errorf("got %+v; want all three fields", p.Errors)
	}
}

func TestListProxies(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.proxy("proxy-1")
	r, err := answered(b.api.ListProxies(t.Context()))
	check(t, err)
	if len(r.Value.Data) != 1 || len(r.Value.Maintenance) != 0 {
		t.Fatalf("fleet: %s", r.Body)
	}
	got := r.Value.Data[0]
	want := adminclient.Proxy{
		Session: p.session, Name: "proxy-1", BootID: "boot", Build: "v1", State: adminclient.ProxyStateActive, SpoolCapacity: 100,
		ValidUntil: got.ValidUntil, RegisteredAt: got.RegisteredAt, RenewedAt: got.RenewedAt, AppliedRevision: got.AppliedRevision,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("proxy (-want +got):\n%s", diff)
	}
	_, err = b.db.Pool().Exec(t.Context(), "update proxy_sessions set valid_until = now() - interval '1 minute', draining = true, running = 2, spool_used = 7")
	check(t, err)
	r, err = answered(b.api.ListProxies(t.Context()))
	check(t, err)
	if got := r.Value.Data[0]; got.State != adminclient.ProxyStateExpired || !got.Draining || got.Running != 2 || got.Unsettled != 5 {
		t.Errorf("got %+v; want it expired, with 2 requests running and 5 unsettled", got)
	}
}
