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
	"modelgateway/controlplane/internal/signin"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

func TestPoolsShowWhoHoldsTheUnits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.account(3)
	b.credit(a.ID, "10.00", "r")
	k := b.key(a.ID, "5.00")
	p1, p2 := b.proxy("p1"), b.proxy("p2")
	id, err := ident.Account.Parse(a.ID)
	check(t, err)
	pools := map[int16]int64{}
	for kind := range int16(3) {
		var pool int64
		check(t, b.db.Pool().QueryRow(t.Context(), "select id from pools where account_id = $1 and kind = $2", id, kind+1).Scan(&pool))
		pools[kind+1] = pool
	}
	lease := func(pool, session, granted, returned, charged int64) {
		b.exec("insert into leases (pool_id, session_id, granted, returned, charged) values ($1, $2, $3, $4, $5)", pool, session, granted, returned, charged)
		b.exec("update pools set free = free - $2 + $3, settled = settled + $4 where id = $1", pool, granted, returned, charged)
	}
	lease(pools[1], p1.session, 4_000_000_000, 1_000_000_000, 500_000_000)
	lease(pools[1], p2.session, 1_000_000_000, 0, 0)
	lease(pools[3], p1.session, 2, 0, 0)
	lease(pools[2], p1.session, 1, 1, 0) // holds nothing
	b.exec("update pools set central = true, generation = 3 where id = $1", pools[1])
	b.exec("update pools set central = false where id <> $1", pools[1])
	b.exec("update leases set recalled_generation = 3 where pool_id = $1 and session_id = $2", pools[1], p1.session)
	b.exec("update proxy_sessions set valid_until = now() - interval '1 second' where id = $1", p2.session)
	b.running = map[wire.SessionID]map[wire.PoolID]int64{wire.SessionID(p1.session): {wire.PoolID(pools[1]): 2_000_000_000, wire.PoolID(pools[3]): 1}}
	b.silent = []string{"p2"}

	got, err := answered(b.api.ListAccountPools(t.Context(), a.ID, nil))
	check(t, err)
	want := []adminclient.Pool{
		{
			ID: pools[1], Kind: adminclient.PoolKindBalance, Total: "10.00", Free: "6.00", Settled: "0.50", Outstanding: "3.50", Late: "0.00", Overrun: "0.00", Central: true,
			Leases: []adminclient.PoolLease{
				{Session: p1.session, Proxy: "p1", State: adminclient.ProxyStateActive, Outstanding: "2.50", Running: new("2.00"), Recall: adminclient.PoolLeaseRecallAnswered},
				{Session: p2.session, Proxy: "p2", State: adminclient.ProxyStateExpired, Outstanding: "1.00", Recall: adminclient.PoolLeaseRecallPending},
			},
		},
		{
			ID: pools[3], Kind: adminclient.PoolKindSlots, Total: "3", Free: "1", Settled: "0", Outstanding: "2", Late: "0", Overrun: "0",
			Leases: []adminclient.PoolLease{
				{Session: p1.session, Proxy: "p1", State: adminclient.ProxyStateActive, Outstanding: "2", Running: new("1"), Recall: adminclient.PoolLeaseRecallNone},
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
	paged := walk(t, func(limit *int, cursor *string) ([]string, *string) {
		r, err := answered(b.api.ListAccountPools(t.Context(), a.ID, &adminclient.ListAccountPoolsParams{Limit: limit, Cursor: cursor}))
		check(t, err)
		return idsOf(r.Value.Data, func(p adminclient.Pool) string { return string(p.Kind) }), r.Value.NextCursor
	}, func() {})
	if !slices.Equal(paged, []string{"balance", "slots", "spend_limit"}) {
		t.Errorf("by pages: %v", paged)
	}
	unknown, err := answered(b.api.ListAccountPools(t.Context(), ident.Account.New(), nil))
	check(t, err)
	problem(t, unknown.Problem, http.StatusNotFound, "not_found")
}

func TestSearch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(demoCatalog)
	made, err := answered(b.api.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: "Demo_Corp", ExternalID: new("cust-7")}))
	check(t, err)
	a := made.Value
	key, err := answered(b.api.CreateKey(t.Context(), a.ID, nil, adminclient.KeyCreate{Name: "Production", ExternalID: new("key-9")}))
	check(t, err)
	k := key.Value
	b.credit(a.ID, "5.00", "invoice-of-a")
	request := b.proxy("p1").report(k, time.Now(), b.sheet("demo-chat"), price.Usage{Input: 1})
	b.exec("alter table usage_records_" + time.Now().UTC().Format("200601") + " disable trigger all")
	b.exec("alter table usage_records disable trigger all")
	b.exec("update usage_records set provider_request_id = 'chatcmpl-1'")
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
		r, err := answered(b.api.Search(t.Context(), &adminclient.SearchParams{Q: text}))
		check(t, err)
		if r.StatusCode != http.StatusOK {
			t.Fatalf("%q: %s", text, r.Body)
		}
		got := idsOf(r.Value.Data, func(r adminclient.SearchResult) string { return string(r.Type) + " " + r.ID })
		if !slices.Equal(got, want) {
			t.Errorf("%q: got %v; want %v", text, got, want)
		}
	}
	if strings.Contains(b.logs.String(), k.Secret) {
		t.Error("the API key is in the log")
	}
	for _, text := range []string{"", "  ", strings.Repeat("x", 201)} {
		r, err := answered(b.api.Search(t.Context(), &adminclient.SearchParams{Q: text}))
		check(t, err)
		problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
	}
}

func TestConsoleSessionsAreListedAndEnded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	from := signin.Client{Address: netip.MustParseAddr("192.0.2.7"), Agent: "browser"}
	first, secret, err := b.sessions.WithToken(t.Context(), bootstrapToken, from)
	check(t, err)
	second, _, err := b.sessions.WithToken(t.Context(), bootstrapToken, from)
	check(t, err)
	list, err := answered(b.api.ListConsoleSessions(t.Context(), nil))
	check(t, err)
	if got := idsOf(list.Value.Data, func(s adminclient.ConsoleSession) string { return s.ID }); !slices.Equal(got, []string{first.ID.String(), second.ID.String()}) {
		t.Errorf("sessions: %s", list.Body)
	}
	if s := list.Value.Data[0]; s.Address != "192.0.2.7" || s.Agent != "browser" || s.Method != adminclient.ConsoleSessionMethodBootstrap || len(s.Scopes) == 0 {
		t.Errorf("session: %+v", s)
	}
	for range 2 { // ending a session again is no error
		if r, err := answered(b.api.EndConsoleSession(t.Context(), first.ID.String())); err != nil || r.StatusCode != http.StatusNoContent {
			t.Fatalf("end: %v, %v", r, err)
		}
	}
	if _, err := b.sessions.Resume(t.Context(), secret); err == nil {
		t.Error("an ended session was resumed")
	}
	list, err = answered(b.api.ListConsoleSessions(t.Context(), nil))
	check(t, err)
	if len(list.Value.Data) != 1 {
		t.Errorf("left: %s", list.Body)
	}
	for _, id := range []string{"ses_1", ident.Session.New()} {
		r, err := answered(b.api.EndConsoleSession(t.Context(), id))
		check(t, err)
		problem(t, r.Problem, http.StatusNotFound, "not_found")
	}
}

// pull returns the events after a cursor, oldest first, and the next cursor.
func (b *bundle) pull(cursor *string, limit int) (ids []string, next *string) {
	b.t.Helper()
	r, err := answered(b.api.ListEvents(b.t.Context(), &adminclient.ListEventsParams{Order: new(adminclient.EventOrderOldest), Cursor: cursor, Limit: &limit}))
	check(b.t, err)
	if r.StatusCode != http.StatusOK {
		b.t.Fatalf("list events: %s", r.Body)
	}
	return idsOf(r.Value.Data, func(e adminclient.ListedEvent) string { return e.Event.Type }), r.Value.NextCursor
}

func TestEventsAreListedAndPulled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := answered(b.api.CreateWebhook(t.Context(), nil, adminclient.WebhookCreate{URL: "https://hooks.example/1"}))
	check(t, err)
	a, other := b.account(1), b.account(1)
	b.credit(a.ID, "1.00", "1")
	b.credit(other.ID, "2.00", "2")
	_, err = answered(b.api.RevokeKey(t.Context(), b.key(a.ID, "").ID, nil))
	check(t, err)
	if got, next := b.pull(nil, 10); len(got) != 0 || next != nil {
		t.Errorf("pulled %v before the events have bodies", got)
	}
	_, err = b.hooks.FanOut(t.Context(), 10, (*webhook.Event).Body)
	check(t, err)

	list, err := answered(b.api.ListEvents(t.Context(), nil))
	check(t, err)
	if got := idsOf(list.Value.Data, func(e adminclient.ListedEvent) string { return e.Event.Type }); !slices.Equal(got, []string{"key.revoked", "account.credited", "account.credited"}) {
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
		r, err := answered(b.api.ListEvents(t.Context(), &params))
		check(t, err)
		if len(r.Value.Data) != 1 {
			t.Errorf("%s: %s", name, r.Body)
		}
	}
	first, next := b.pull(nil, 2)
	second, next := b.pull(next, 2)
	if want := []string{"account.credited", "account.credited", "key.revoked"}; !slices.Equal(append(first, second...), want) {
		t.Errorf("pulled %v, then %v", first, second)
	}
	if none, same := b.pull(next, 2); len(none) != 0 || same == nil || *same != *next {
		t.Errorf("pulled %v at the end, cursor %v", none, same)
	}

	// An event of a transaction that is still running is neither skipped nor overtaken.
	tx, err := b.db.Pool().Begin(t.Context())
	check(t, err)
	defer tx.Rollback(t.Context())
	_, err = tx.Exec(t.Context(), "insert into webhook_events (id, type, facts, body) values ($1, 'slow', '{}', $2)", ident.New(), []byte(`{"id":"evt_1","type":"slow","timestamp":"2026-01-01T00:00:00Z","data":{}}`))
	check(t, err)
	b.credit(a.ID, "3.00", "3")
	_, err = b.hooks.FanOut(t.Context(), 10, (*webhook.Event).Body)
	check(t, err)
	if got, _ := b.pull(next, 9); len(got) != 0 {
		t.Errorf("pulled %v past an event that is not committed", got)
	}
	check(t, tx.Commit(t.Context()))
	if got, _ := b.pull(next, 9); !slices.Equal(got, []string{"slow", "account.credited"}) {
		t.Errorf("pulled %v", got)
	}
	for _, params := range []adminclient.ListEventsParams{{Order: new(adminclient.EventOrder("x"))}, {Cursor: new("AAAA")}, {AccountID: new("x")}} {
		r, err := answered(b.api.ListEvents(t.Context(), &params))
		check(t, err)
		problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
	}
}
