package billingapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
)

func TestUsageAndReceipt(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	a := b.Account(1)
	b.Credit(a.ID, "10.00", "r")
	k := b.Key(a.ID, "5.00")
	old := b.Sheet("demo-chat")
	at := time.Now().Truncate(time.Millisecond)
	id := b.Proxy("p1").Report(k, at, old, price.Usage{Input: 1_000_000, CachedInput: 333, Output: 200_000})

	// A new price does not change earlier charges.
	b.Apply(strings.Replace(servertest.DemoCatalog, `input: "1.00"`, `input: "9.00"`, 1))

	r, err := servertest.Answered(b.API.GetUsage(t.Context(), id))
	servertest.Check(t, err)
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
	balance, err := servertest.Answered(b.API.GetBalance(t.Context(), a.ID))
	servertest.Check(t, err)
	if balance.Value.Balance != "7.9999667" {
		t.Errorf("balance %s; want 7.9999667", balance.Value.Balance)
	}
	spent, err := servertest.Answered(b.API.GetKey(t.Context(), k.ID))
	servertest.Check(t, err)
	if spent.Value.Spent != "2.0000333" {
		t.Errorf("key has spent %s; want 2.0000333", spent.Value.Spent)
	}
	booked, err := servertest.Answered(b.API.ListLedger(t.Context(), a.ID, nil))
	servertest.Check(t, err)
	if len(booked.Value.Data) != 2 || booked.Value.Data[0].Kind != adminclient.TransactionKindUsage || booked.Value.Data[0].Amount != "-2.0000333" {
		t.Errorf("ledger: %s", booked.Body)
	}
	b.CheckLedger()
	receipts, err := servertest.Answered(b.API.CheckReceipts(t.Context()))
	servertest.Check(t, err)
	if got := receipts.Value; got == nil || !got.OK || got.Compared != 1 {
		t.Errorf("check of receipts: %s", receipts.Body)
	}
}

func TestUsageShowsTheAttempts(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	k, p := b.Key(b.Account(1).ID, ""), b.Proxy("p1")
	id := p.Report(k, time.Now(), b.Sheet("demo-chat"), price.Usage{Input: 1},
		event.Attempt{Route: "r1", Skipped: event.SkippedMaintenance}, event.Attempt{
			Route: "r2", Provider: "sim", Credential: "crd_1", CredentialName: "main", Class: "timeout", MS: 84,
			Usage: price.Usage{Input: 12, Output: 3}, Estimated: true, ProviderRequestID: "up-1",
		},
		event.Attempt{Route: "r3", Credential: "crd_2", CredentialName: "spare", MS: 310})
	r, err := servertest.Answered(b.API.GetUsage(t.Context(), id))
	servertest.Check(t, err)
	got := r.Value.Attempts
	want := []adminclient.RouteAttempt{
		{Route: "r1", Result: adminclient.RouteAttemptResultSkipped, Skipped: new("maintenance")},
		{
			Route: "r2", Result: adminclient.RouteAttemptResultFailed, Provider: new("sim"), CredentialID: new("crd_1"), Credential: new("main"), Class: new("timeout"), MS: new(int64(84)),
			Usage: map[string]any{"input": 12.0, "output": 3.0}, Estimated: new(true), ProviderRequestID: new("up-1"),
		},
		{Route: "r3", Result: adminclient.RouteAttemptResultServed, CredentialID: new("crd_2"), Credential: new("spare"), MS: new(int64(310))},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	plain, err := servertest.Answered(b.API.GetUsage(t.Context(), p.Report(k, time.Now(), b.Sheet("demo-chat"), price.Usage{Input: 1})))
	servertest.Check(t, err)
	if len(plain.Value.Attempts) != 0 {
		t.Errorf("a request that the first route served: %s", plain.Body)
	}
}

func TestUsageList(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	sheet := b.Sheet("demo-chat")
	k1, k2 := b.Key(b.Account(1).ID, ""), b.Key(b.Account(1).ID, "")
	k3 := b.Key(k1.AccountID, "")
	p := b.Proxy("p1")
	base := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	ids := map[string]string{} // id to a name that a test can say
	var first string
	for i, k := range []*adminclient.IssuedKey{k1, k2, k3, k1, k1} {
		id := p.Report(k, base.Add(time.Duration(i)*time.Minute), sheet, price.Usage{Input: 10})
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
		{"of a credential", adminclient.ListUsageParams{Credential: new("main"), KeyID: &k2.ID}, []string{"r1"}},
		{"of another credential", adminclient.ListUsageParams{Credential: new("spare")}, nil},
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
				r, err := servertest.Answered(b.API.ListUsage(t.Context(), &params))
				servertest.Check(t, err)
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

			slices.Reverse(got)
			var exported []string
			text, _ := b.exported(exportOf(&test.params))
			for _, u := range records(t, text) {
				exported = append(exported, ids[u.RequestID])
			}
			if diff := cmp.Diff(got, exported); diff != "" {
				t.Errorf("requests (-list +export):\n%s", diff)
			}
		})
	}
	for _, id := range []string{"req_1", "req_00000000000070008000000000000000"} {
		r, err := servertest.Answered(b.API.GetUsage(t.Context(), id))
		servertest.Check(t, err)
		servertest.Problem(t, r.Problem, http.StatusNotFound, "not_found")
	}
	faulty, err := servertest.Answered(b.API.ListUsage(t.Context(), &adminclient.ListUsageParams{AccountID: new("x"), KeyID: new("y")}))
	servertest.Check(t, err)
	servertest.Problem(t, faulty.Problem, http.StatusBadRequest, "invalid_input")
	faulty, err = servertest.Answered(b.API.ListUsage(t.Context(), &adminclient.ListUsageParams{
		Status: new(adminclient.UsageStatus("great")), MinCost: new("much"), RequestIDPrefix: new("acc_"),
	}))
	servertest.Check(t, err)
	servertest.Problem(t, faulty.Problem, http.StatusBadRequest, "invalid_input")
	if p := faulty.Problem; p != nil && len(p.Errors) != 3 {
		t.Errorf("got %+v; want all three fields", p.Errors)
	}
}

func TestListProxies(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.Proxy("proxy-1")
	r, err := servertest.Answered(b.API.ListProxies(t.Context()))
	servertest.Check(t, err)
	if len(r.Value.Data) != 1 || len(r.Value.Maintenance) != 0 {
		t.Fatalf("fleet: %s", r.Body)
	}
	got := r.Value.Data[0]
	want := adminclient.Proxy{
		Session: p.Session, Name: "proxy-1", BootID: "boot", Build: "v1", State: adminclient.ProxyStateActive, SpoolCapacity: 100,
		ValidUntil: got.ValidUntil, RegisteredAt: got.RegisteredAt, RenewedAt: got.RenewedAt, AppliedRevision: got.AppliedRevision,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("proxy (-want +got):\n%s", diff)
	}
	_, err = b.DB.Pool().Exec(t.Context(), "update proxy_sessions set valid_until = now() - interval '1 minute', draining = true, running = 2, spool_used = 7")
	servertest.Check(t, err)
	r, err = servertest.Answered(b.API.ListProxies(t.Context()))
	servertest.Check(t, err)
	if got := r.Value.Data[0]; got.State != adminclient.ProxyStateExpired || !got.Draining || got.Running != 2 || got.Unsettled != 5 {
		t.Errorf("got %+v; want it expired, with 2 requests running and 5 unsettled", got)
	}
}

// A refused request has no usage. Whoever asks for it is told where the reason is.
func TestUnknownRequestPointsToTheRefusals(t *testing.T) {
	t.Parallel()
	b := start(t)
	got, err := servertest.Answered(b.API.GetUsage(t.Context(), ident.Request.New()))
	servertest.Check(t, err)
	if p := got.Problem; p == nil || p.Status != http.StatusNotFound || p.Detail == nil || !strings.Contains(*p.Detail, "`gwctl usage explain`") ||
		!strings.Contains(*p.Detail, "/admin/v1/refusals?request_id=") {
		t.Errorf("got %d %s", got.StatusCode, got.Body)
	}
}

// exportOf returns the filters of a list for an export.
func exportOf(p *adminclient.ListUsageParams) adminclient.ExportUsageParams {
	return adminclient.ExportUsageParams{
		AccountID:       p.AccountID,
		ProjectID:       p.ProjectID,
		KeyID:           p.KeyID,
		Model:           p.Model,
		From:            p.From,
		To:              p.To,
		Status:          p.Status,
		Provider:        p.Provider,
		Route:           p.Route,
		Credential:      p.Credential,
		RequestFormat:   p.Format,
		Stream:          p.Stream,
		Estimated:       p.Estimated,
		MinCost:         p.MinCost,
		RequestIDPrefix: p.RequestIDPrefix,
	}
}
