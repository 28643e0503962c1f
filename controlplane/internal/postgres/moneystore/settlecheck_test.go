package moneystore_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/event"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

// checkedWorld settles with the checks of production: model "model" costs 2 units
// per input token and 3 per second of video, in price version 1.
type checkedWorld struct {
	*leaseWorld
	db      *postgres.DB
	settler *settle.Settler
	session wire.SessionID
	n       int64
}

func newCheckedWorld(t *testing.T) *checkedWorld {
	t.Helper()
	w := newLeaseWorld(t)
	db := w.Replica()
	w.Exec(`insert into models (id, enabled, type, public, spec, revision)
		select id, true, 'text', true, '{}', 1 from unnest(array['model', 'other']) as id`)
	w.Exec(`insert into model_prices (model_id, sheet, effective_from) values
		('model', '{"rates": {"input": 2000000}, "seconds": [{"price": 3}]}', now()), ('other', '{"rates": {"input": 1000000}}', now())`)
	store := moneystore.NewSettlement(db)
	return &checkedWorld{leaseWorld: w, db: db, settler: settle.New(store, store), session: w.Session(leasestore.NewLeases(db), "proxy")}
}

// lease gives the session an empty lease of the account.
func (w *checkedWorld) lease(c *storetest.Customer) {
	w.T.Helper()
	w.Exec("insert into leases (pool_id, session_id) values ($1, $2)", c.Balance, w.session)
}

// event returns an honest event of ten input tokens.
func (w *checkedWorld) event(c *storetest.Customer) event.Usage {
	w.n++
	e := c.Event(w.session, w.n, 20)
	e.Usage.Input = 10
	return e
}

// settleOne settles an event and returns why it is in quarantine, or an empty string.
func (w *checkedWorld) settleOne(e event.Usage) string {
	w.T.Helper()
	result, err := w.settler.Settle(w.T.Context(), settle.DecodeBatch(storetest.Batch(w.T, e.Session, e)))
	if err != nil {
		w.T.Fatal(err)
	}
	if result.Quarantined == 0 {
		return ""
	}
	return storetest.Scalar[string](w.leaseWorld, "select reason from quarantine order by id desc limit 1")
}

func TestEventsThatAProxyCannotHaveReportedAreQuarantined(t *testing.T) {
	t.Parallel()
	w := newCheckedWorld(t)
	c := w.Customer(100_000, storetest.Unlimited, 5)
	w.lease(c)
	charged := int64(0)
	for name, tt := range map[string]struct {
		change func(e *event.Usage)
		want   string
	}{
		"honest":                     {func(*event.Usage) {}, ""},
		"with a multiplier":          {func(e *event.Usage) { e.PriceMultiplier, e.Cost = 500_000, 10 }, ""},
		"nothing billable":           {func(e *event.Usage) { e.Usage, e.Cost, e.Rule = price.Usage{}, 0, event.RuleNone }, ""},
		"free, of an invented model": {func(e *event.Usage) { e.Usage, e.Cost, e.Rule, e.Model = price.Usage{}, 0, event.RuleNone, "invented" }, "is of another model"},
		"thinking beyond the limit":  {func(e *event.Usage) { e.MaxInput, e.MaxOutput = 10, 1 }, ""},
		"too dear":                   {func(e *event.Usage) { e.Cost = 21 }, "differs from"},
		"too cheap":                  {func(e *event.Usage) { e.Cost = 19 }, "differs from"},
		"without the multiplier":     {func(e *event.Usage) { e.PriceMultiplier = 500_000 }, "differs from"},
		"price of another model":     {func(e *event.Usage) { e.PriceVersion, e.Cost = 2, 10 }, "is of another model"},
		"price that does not exist":  {func(e *event.Usage) { e.PriceVersion = 99 }, "there is no price version 99"},
		"cost without a rule":        {func(e *event.Usage) { e.Rule = event.RuleNone }, "the billing rule is none"},
		"usage without a price":      {func(e *event.Usage) { e.Usage.Output = 1 }, "has no price"},
		"more input than the window": {func(e *event.Usage) { e.Usage.Input, e.Cost, e.MaxInput = 50_000, 100_000, 8000 }, "implausible usage"},
		"a longer video": {func(e *event.Usage) {
			e.Usage, e.Cost, e.MaxSeconds, e.VideoJob = price.Usage{Seconds: 61}, 183, 4, "video_1"
		}, "implausible usage"},
		"video without a length": {func(e *event.Usage) { e.Usage, e.Cost, e.VideoJob = price.Usage{}, 0, "video_1" }, "without a length"},
		"video of the expected length": {func(e *event.Usage) {
			e.Usage, e.Cost, e.MaxSeconds, e.VideoJob = price.Usage{Seconds: 4}, 12, 4, "video_1"
		}, ""},
	} {
		e := w.event(c)
		tt.change(&e)
		got := w.settleOne(e)
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: quarantined because of %q; want %q", name, got, tt.want)
		}
		if got == "" {
			charged += int64(e.Cost)
		}
	}
	if got := w.Figures(c.Balance).Settled; got != charged {
		t.Errorf("settled %d; want %d", got, charged)
	}
	w.Check()
}

// The record has what the request costs the operator by the price of its route at the time of the request.
func TestRecordsHaveTheProviderCost(t *testing.T) {
	t.Parallel()
	w := newCheckedWorld(t)
	c := w.Customer(100_000, storetest.Unlimited, 5)
	w.lease(c)
	w.Exec(`insert into provider_prices (route_id, sheet, effective_from) values
		('r', '{"rates": {"input": 9000000}}', now() - interval '2 days'), ('r', '{"rates": {"input": 1500000}}', now() - interval '1 day'),
		('ended', '{"rates": {"input": 1500000}}', now() - interval '2 days'), ('ended', null, now() - interval '1 day'),
		('r', '{"rates": {"input": 7000000}}', now() + interval '1 day')`)
	for _, tt := range []struct{ route, want string }{
		{"r", "15 of version 2"}, {"ended", "unknown"}, {"other", "unknown"}, {"", "0 of version 0"},
	} {
		e := w.event(c)
		e.Route = tt.route
		if got := w.settleOne(e); got != "" {
			t.Fatalf("quarantined because of %q", got)
		}
		got := storetest.Scalar[string](w.leaseWorld, `select coalesce(provider_cost || ' of version ' || coalesce(provider_price_version, 0), 'unknown')
			from usage_records order by request_id desc limit 1`)
		if got != tt.want {
			t.Errorf("route %q: provider cost %s; want %s", tt.route, got, tt.want)
		}
	}

	e := w.event(c)
	e.Route = "r"
	e.Attempts = []event.Attempt{{Route: "ended", Usage: price.Usage{Input: 2}}, {Route: "r", Usage: price.Usage{Input: 2}}, {Route: "r"}}
	if got := w.settleOne(e); got != "" {
		t.Fatalf("quarantined because of %q", got)
	}
	got := storetest.Scalar[string](w.leaseWorld, "select attempts::text from usage_records order by request_id desc limit 1")
	want := `[{"route": "ended", "usage": {"input": 2}}, {"route": "r", "usage": {"input": 2}, "provider_cost": 3, "provider_price_version": 2}, {"route": "r"}]`
	if got != want {
		t.Errorf("attempts %s; want %s", got, want)
	}

	// The sums count each call once, by its own route, and an event that comes again not at all.
	again := e
	e = w.event(c)
	e.Route, e.Attempts = again.Route, again.Attempts
	result, err := w.settler.Settle(w.T.Context(), settle.DecodeBatch(storetest.Batch(w.T, e.Session, e, again)))
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]settle.RouteSums{"r": {Calls: 2, Charged: 20, ProviderCost: 15 + 3}}
	if diff := cmp.Diff(sums, result.Routes); diff != "" || result.UnknownCosts != 1 || result.Settled != 1 || result.Duplicates != 1 {
		t.Errorf("got %+v; sums (-want +got):\n%s", result, diff)
	}
	w.Check()
}

func TestRequestWithoutALeaseIsQuarantined(t *testing.T) {
	t.Parallel()
	w := newCheckedWorld(t)
	c := w.Customer(100_000, storetest.Unlimited, 5)
	if got := w.settleOne(w.event(c)); got != settle.ReasonNoLease {
		t.Errorf("without a lease: got %q; want %q", got, settle.ReasonNoLease)
	}
	video := w.event(w.Customer(100_000, storetest.Unlimited, 5)) // its charge makes a lease
	video.VideoJob, video.Usage, video.Cost = "video_1", price.Usage{Seconds: 4}, 12
	if got := w.settleOne(video); got != "" {
		t.Errorf("video job: got %q", got)
	}
	free := w.event(c)
	free.Usage, free.Cost, free.Rule = price.Usage{}, 0, event.RuleNone
	if got := w.settleOne(free); got != "" {
		t.Errorf("request without a cost: got %q", got)
	}
	w.lease(c)
	if got := w.settleOne(w.event(c)); got != "" {
		t.Errorf("with a lease: got %q", got)
	}
	// What Postgres has lost is no evidence.
	other := w.Customer(100_000, storetest.Unlimited, 5)
	w.Exec("update cluster_state set lost_at = clock_timestamp()")
	if got := w.settleOne(w.event(other)); got != "" {
		t.Errorf("session from before a loss of commits: got %q", got)
	}
	w.Exec("update cluster_state set lost_at = null")
	w.Exec("update proxy_sessions set state = 3 where id = $1", w.session)
	if got := w.settleOne(w.event(w.Customer(100_000, storetest.Unlimited, 5))); got != "" {
		t.Errorf("closed session: got %q", got)
	}
	w.Check()
}

func TestOperatorMayChargeImplausibleUsage(t *testing.T) {
	t.Parallel()
	w := newCheckedWorld(t)
	c := w.Customer(1_000_000, storetest.Unlimited, 5)
	w.lease(c)
	implausible, wrong := w.event(c), w.event(c)
	implausible.Usage.Input, implausible.Cost, implausible.MaxInput = 50_000, 100_000, 8000
	wrong.Cost = 21
	w.settleOne(implausible)
	w.settleOne(wrong)
	quarantine := settle.NewQuarantine(moneystore.NewQuarantine(w.db), w.settler)
	ids := storetest.Scalar[[]int64](w.leaseWorld, "select array_agg(id order by id) from quarantine")
	if _, err := quarantine.Release(t.Context(), ids[0]); err != nil {
		t.Errorf("release of implausible usage: %v", err)
	}
	if _, err := quarantine.Release(t.Context(), ids[1]); err == nil {
		t.Error("a cost that is not the price of its usage was released")
	}
	if got := w.Figures(c.Balance).Settled; money.Nano(got) != implausible.Cost {
		t.Errorf("settled %d; want %d", got, implausible.Cost)
	}
	w.Check()
}

// Postgres may refuse events of a message. The search for them can exceed the
// message's time, and then NATS delivers the message again: the second delivery
// skips the events that the first one found.
func TestRefusedEventsAreRememberedForTheNextDelivery(t *testing.T) {
	t.Parallel()
	w := newCheckedWorld(t)
	c := w.Customer(100_000, storetest.Unlimited, 5)
	w.lease(c)
	var events []event.Usage
	for n := range 64 {
		e := w.event(c)
		if n%8 == 0 {
			e.Provider = "a\x00b"
		}
		events = append(events, e)
	}
	store := &countingStore{Store: moneystore.NewSettlement(w.db)}
	settler := settle.New(store, nil)
	message := storetest.Batch(t, int64(w.session), events...)
	for delivery := range 2 {
		result, err := settler.Settle(t.Context(), settle.DecodeBatch(message))
		if err != nil {
			t.Fatal(err)
		}
		if result.Quarantined != 8 || result.Settled != 56*(1-delivery) {
			t.Errorf("delivery %d: %+v; want 8 events in quarantine and 56 settled once", delivery, result)
		}
		if delivery == 1 && store.settlements != 1 {
			t.Errorf("the second delivery took %d settlements; want 1", store.settlements)
		}
		store.settlements = 0
	}
	if got := storetest.Scalar[int](w.leaseWorld, "select count(*) from quarantine"); got != 8 {
		t.Errorf("%d events in quarantine; want 8", got)
	}
	w.Check()
}

// countingStore counts the transactions of a settlement.
type countingStore struct {
	settle.Store
	settlements int
}

func (s *countingStore) Settle(ctx context.Context, items []settle.Item) (settle.Result, error) {
	s.settlements++
	return s.Store.Settle(ctx, items)
}
