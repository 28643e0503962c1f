package httpapi_test

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/signin"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

func TestPoolsShowWhoHoldsTheUnits(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(3)
	b.Credit(a.ID, "10.00", "r")
	k := b.Key(a.ID, "5.00")
	p1, p2 := b.Proxy("p1"), b.Proxy("p2")
	id, err := ident.Account.Parse(a.ID)
	servertest.Check(t, err)
	pools := map[int16]int64{}
	for kind := range int16(3) {
		var pool int64
		servertest.Check(t, b.DB.Pool().QueryRow(t.Context(), "select id from pools where account_id = $1 and kind = $2", id, kind+1).Scan(&pool))
		pools[kind+1] = pool
	}
	lease := func(pool, session, granted, returned, charged int64) {
		b.Exec("insert into leases (pool_id, session_id, granted, returned, charged) values ($1, $2, $3, $4, $5)", pool, session, granted, returned, charged)
		b.Exec("update pools set free = free - $2 + $3, settled = settled + $4 where id = $1", pool, granted, returned, charged)
	}
	lease(pools[1], p1.Session, 4_000_000_000, 1_000_000_000, 500_000_000)
	lease(pools[1], p2.Session, 1_000_000_000, 0, 0)
	lease(pools[3], p1.Session, 2, 0, 0)
	lease(pools[2], p1.Session, 1, 1, 0) // holds nothing
	b.Exec("update pools set central = true, generation = 3 where id = $1", pools[1])
	b.Exec("update pools set central = false where id <> $1", pools[1])
	b.Exec("update leases set recalled_generation = 3 where pool_id = $1 and session_id = $2", pools[1], p1.Session)
	b.Exec("update proxy_sessions set valid_until = now() - interval '1 second' where id = $1", p2.Session)
	b.Running = map[wire.SessionID]map[wire.PoolID]int64{wire.SessionID(p1.Session): {wire.PoolID(pools[1]): 2_000_000_000, wire.PoolID(pools[3]): 1}}
	b.Silent = []string{"p2"}

	got, err := servertest.Answered(b.API.ListAccountPools(t.Context(), a.ID, nil))
	servertest.Check(t, err)
	want := []adminclient.Pool{
		{
			ID: pools[1], Kind: adminclient.PoolKindBalance, Total: "10.00", Free: "6.00", Settled: "0.50", Outstanding: "3.50", Late: "0.00", Overrun: "0.00", Central: true,
			Leases: []adminclient.PoolLease{
				{Session: p1.Session, Proxy: "p1", State: adminclient.ProxyStateActive, Outstanding: "2.50", Running: new("2.00"), Recall: adminclient.PoolLeaseRecallAnswered},
				{Session: p2.Session, Proxy: "p2", State: adminclient.ProxyStateExpired, Outstanding: "1.00", Recall: adminclient.PoolLeaseRecallPending},
			},
		},
		{
			ID: pools[3], Kind: adminclient.PoolKindSlots, Total: "3", Free: "1", Settled: "0", Outstanding: "2", Late: "0", Overrun: "0",
			Leases: []adminclient.PoolLease{
				{Session: p1.Session, Proxy: "p1", State: adminclient.ProxyStateActive, Outstanding: "2", Running: new("1"), Recall: adminclient.PoolLeaseRecallNone},
			},
		},
		{
			ID: pools[2], Kind: adminclient.PoolKindSpendLimit, KeyID: &k.ID, Total: "5.00", Free: "5.00", Settled: "0.00", Outstanding: "0.00", Late: "0.00", Overrun: "0.00",
			Leases: []adminclient.PoolLease{},
		},
	}
	if diff := cmp.Diff(want, got.Value.Data); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
	if !slices.Equal(got.Value.SilentProxies, []string{"p2"}) {
		t.Errorf("silent: %v", got.Value.SilentProxies)
	}
	paged := servertest.Walk(t, func(limit *int, cursor *string) ([]string, *string) {
		r, err := servertest.Answered(b.API.ListAccountPools(t.Context(), a.ID, &adminclient.ListAccountPoolsParams{Limit: limit, Cursor: cursor}))
		servertest.Check(t, err)
		return servertest.IDsOf(r.Value.Data, func(p adminclient.Pool) string { return string(p.Kind) }), r.Value.NextCursor
	}, func() {})
	if !slices.Equal(paged, []string{"balance", "slots", "spend_limit"}) {
		t.Errorf("by pages: %v", paged)
	}
	unknown, err := servertest.Answered(b.API.ListAccountPools(t.Context(), ident.Account.New(), nil))
	servertest.Check(t, err)
	servertest.Problem(t, unknown.Problem, http.StatusNotFound, "not_found")
}

func TestSearch(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	made, err := servertest.Answered(b.API.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: "Demo_Corp", ExternalID: new("cust-7")}))
	servertest.Check(t, err)
	a := made.Value
	key, err := servertest.Answered(b.API.CreateKey(t.Context(), a.ID, nil, adminclient.KeyCreate{Name: "Production", ExternalID: new("key-9")}))
	servertest.Check(t, err)
	k := key.Value
	b.Credit(a.ID, "5.00", "invoice-of-a")
	request := b.Proxy("p1").Report(k, time.Now(), b.Sheet("demo-chat"), price.Usage{Input: 1})
	b.Exec("alter table usage_records_" + time.Now().UTC().Format("200601") + " disable trigger all")
	b.Exec("alter table usage_records disable trigger all")
	b.Exec("update usage_records set provider_request_id = 'chatcmpl-1'")
	for text, want := range map[string][]string{
		"demo":              {"account " + a.ID, "model demo-chat", "model demo/image"},
		" DEMO_c ":          {"account " + a.ID},
		"demo%":             nil,
		"cust-":             {"account " + a.ID},
		"prod":              {"key " + k.ID},
		"key-9":             {"key " + k.ID},
		k.Hint:              {"key " + k.ID},
		k.Secret:            {"key " + k.ID},
		a.ID:                {"account " + a.ID},
		a.ID[:20]:           {"account " + a.ID},
		k.ID:                {"key " + k.ID},
		request:             {"request " + request},
		request[:24]:        {"request " + request},
		"chatcmpl-1":        {"request " + request},
		"chatcmpl":          nil,
		"sim":               {"provider sim"},
		"corp":              {"account " + a.ID},
		"duct":              {"key " + k.ID},
		"chat":              {"model demo-chat"},
		"invoice-of-a":      {"account " + a.ID},
		"invoice-of":        nil,
		request[26:]:        {"request " + request},
		ident.Video.New():   nil,
		"nothing like it":   nil,
		"mgw_" + k.ID[4:10]: nil,
	} {
		r, err := servertest.Answered(b.API.Search(t.Context(), &adminclient.SearchParams{Q: text}))
		servertest.Check(t, err)
		if r.StatusCode != http.StatusOK {
			t.Fatalf("%q: %s", text, r.Body)
		}
		got := servertest.IDsOf(r.Value.Data, func(r adminclient.SearchResult) string { return string(r.Type) + " " + r.ID })
		if !slices.Equal(got, want) {
			t.Errorf("%q: got %v; want %v", text, got, want)
		}
	}
	if strings.Contains(b.Logs.String(), k.Secret) {
		t.Error("the API key is in the log")
	}
	for _, text := range []string{"", "  ", strings.Repeat("x", 201)} {
		r, err := servertest.Answered(b.API.Search(t.Context(), &adminclient.SearchParams{Q: text}))
		servertest.Check(t, err)
		servertest.Problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
	}
}

func TestConsoleSessionsAreListedAndEnded(t *testing.T) {
	t.Parallel()
	b := start(t)
	from := signin.Client{Address: netip.MustParseAddr("192.0.2.7"), Agent: "browser"}
	first, secret, err := b.Sessions.WithToken(t.Context(), servertest.BootstrapToken, from)
	servertest.Check(t, err)
	second, _, err := b.Sessions.WithToken(t.Context(), servertest.BootstrapToken, from)
	servertest.Check(t, err)
	list, err := servertest.Answered(b.API.ListConsoleSessions(t.Context(), nil))
	servertest.Check(t, err)
	if got := servertest.IDsOf(list.Value.Data, func(s adminclient.ConsoleSession) string { return s.ID }); !slices.Equal(got, []string{first.ID.String(), second.ID.String()}) {
		t.Errorf("sessions: %s", list.Body)
	}
	if s := list.Value.Data[0]; s.Address != "192.0.2.7" || s.Agent != "browser" || s.Method != adminclient.ConsoleSessionMethodBootstrap || len(s.Scopes) == 0 {
		t.Errorf("session: %+v", s)
	}
	for range 2 { // ending a session again is no error
		if r, err := servertest.Answered(b.API.EndConsoleSession(t.Context(), first.ID.String())); err != nil || r.StatusCode != http.StatusNoContent {
			t.Fatalf("end: %v, %v", r, err)
		}
	}
	if _, err := b.Sessions.Resume(t.Context(), secret); err == nil {
		t.Error("an ended session was resumed")
	}
	list, err = servertest.Answered(b.API.ListConsoleSessions(t.Context(), nil))
	servertest.Check(t, err)
	if len(list.Value.Data) != 1 {
		t.Errorf("left: %s", list.Body)
	}
	for _, id := range []string{"ses_1", ident.Session.New()} {
		r, err := servertest.Answered(b.API.EndConsoleSession(t.Context(), id))
		servertest.Check(t, err)
		servertest.Problem(t, r.Problem, http.StatusNotFound, "not_found")
	}
}

// pull returns the events after a cursor, oldest first, and the next cursor.
func (b *server) pull(cursor *string, limit int) (ids []string, next *string) {
	b.T.Helper()
	r, err := servertest.Answered(b.API.ListEvents(b.T.Context(), &adminclient.ListEventsParams{Order: new(adminclient.EventOrderOldest), Cursor: cursor, Limit: &limit}))
	servertest.Check(b.T, err)
	if r.StatusCode != http.StatusOK {
		b.T.Fatalf("list events: %s", r.Body)
	}
	return servertest.IDsOf(r.Value.Data, func(e adminclient.ListedEvent) string { return e.Event.Type }), r.Value.NextCursor
}

func TestEventsAreListedAndPulled(t *testing.T) {
	t.Parallel()
	b := start(t)
	_, err := servertest.Answered(b.API.CreateWebhook(t.Context(), nil, adminclient.WebhookCreate{URL: "https://hooks.example/1"}))
	servertest.Check(t, err)
	a, other := b.Account(1), b.Account(1)
	b.Credit(a.ID, "1.00", "1")
	b.Credit(other.ID, "2.00", "2")
	_, err = servertest.Answered(b.API.RevokeKey(t.Context(), b.Key(a.ID, "").ID, nil))
	servertest.Check(t, err)
	if got, next := b.pull(nil, 10); len(got) != 0 || next != nil {
		t.Errorf("pulled %v before the events have bodies", got)
	}
	_, err = b.Hooks.FanOut(t.Context(), 10, (*webhook.Event).Body)
	servertest.Check(t, err)

	list, err := servertest.Answered(b.API.ListEvents(t.Context(), nil))
	servertest.Check(t, err)
	if got := servertest.IDsOf(list.Value.Data, func(e adminclient.ListedEvent) string { return e.Event.Type }); !slices.Equal(got, []string{"key.revoked", "key.created", "account.credited", "account.credited"}) {
		t.Errorf("newest first: %v", got)
	}
	for _, e := range list.Value.Data {
		if len(e.Deliveries) != 1 || e.Deliveries[0].EventID != e.Event.ID || e.Deliveries[0].State != adminclient.DeliveryStatePending {
			t.Errorf("deliveries of %s: %+v", e.Event.ID, e.Deliveries)
		}
	}
	for name, params := range map[string]adminclient.ListEventsParams{
		"type":            {Type: new("key.revoked")},
		"account":         {AccountID: &other.ID},
		"account, oldest": {AccountID: &other.ID, Order: new(adminclient.EventOrderOldest)},
	} {
		r, err := servertest.Answered(b.API.ListEvents(t.Context(), &params))
		servertest.Check(t, err)
		if len(r.Value.Data) != 1 {
			t.Errorf("%s: %s", name, r.Body)
		}
	}
	first, next := b.pull(nil, 2)
	second, next := b.pull(next, 2)
	if want := []string{"account.credited", "account.credited", "key.created", "key.revoked"}; !slices.Equal(append(first, second...), want) {
		t.Errorf("pulled %v, then %v", first, second)
	}
	if none, same := b.pull(next, 2); len(none) != 0 || same == nil || *same != *next {
		t.Errorf("pulled %v at the end, cursor %v", none, same)
	}

	// An event of a transaction that is still running is neither skipped nor overtaken.
	tx, err := b.DB.Pool().Begin(t.Context())
	servertest.Check(t, err)
	defer tx.Rollback(t.Context())
	_, err = tx.Exec(t.Context(), "insert into webhook_events (id, type, facts, body) values ($1, 'slow', '{}', $2)", ident.New(), []byte(`{"id":"evt_1","type":"slow","timestamp":"2026-01-01T00:00:00Z","data":{}}`))
	servertest.Check(t, err)
	b.Credit(a.ID, "3.00", "3")
	_, err = b.Hooks.FanOut(t.Context(), 10, (*webhook.Event).Body)
	servertest.Check(t, err)
	if got, _ := b.pull(next, 9); len(got) != 0 {
		t.Errorf("pulled %v past an event that is not committed", got)
	}
	servertest.Check(t, tx.Commit(t.Context()))
	if got, _ := b.pull(next, 9); !slices.Equal(got, []string{"slow", "account.credited"}) {
		t.Errorf("pulled %v", got)
	}
	for _, params := range []adminclient.ListEventsParams{{Order: new(adminclient.EventOrder("x"))}, {Cursor: new("AAAA")}, {AccountID: new("x")}} {
		r, err := servertest.Answered(b.API.ListEvents(t.Context(), &params))
		servertest.Check(t, err)
		servertest.Problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
	}
}
