package moneystore_test

import (
	"testing"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/postgres/accountstore"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/spendlimit"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/limit"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// A limit that is raised until a time grants by the raised amount until then, and by the old one afterwards, in windows that were open
// before, and in those that begin meanwhile.
func TestRaisedLimitFallsBackByItself(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	store, limits, service := leasestore.NewLeases(db), accountstore.NewSpendLimits(db), w.Service(db)
	c := w.Customer(10_000, storetest.Unlimited, 50)
	s := w.Session(store, "proxy")
	h := holder.NewHolder(s, "proxy", c.AccountID())
	open, later := w.limit(c, 100, limit.Window{Period: limit.Forever}), w.limit(c, 100, limit.Window{Period: limit.Forever})
	ids := map[int64]spendlimit.ID{}
	for _, number := range []int64{open, later} {
		ids[number] = spendlimit.ID(storetest.Scalar[ident.UUID](w, "select id from limits where number = $1", number))
	}
	ask := func(number, amount int64) *holder.Waiter {
		t.Helper()
		waiter := h.Reserve(append(c.Needs(amount), windowNeed(number, 0, amount)))
		for request := h.NextRequest(); request != nil; request = h.NextRequest() {
			reply := storetest.Ask(service, request)
			h.HandleResponse(&reply)
		}
		return waiter
	}
	want := func(what string, waiter *holder.Waiter, granted bool) {
		t.Helper()
		if waiter.Granted() != granted || !granted && waiter.Decision().Reason.Pool() != wire.Limit {
			t.Errorf("%s: granted %v, %+v", what, waiter.Granted(), waiter.Decision())
		}
	}
	amount := func(number int64) money.Nano {
		t.Helper()
		l, err := limits.Get(t.Context(), ids[number])
		if err != nil || l.Current == nil {
			t.Fatal(l, err)
		}
		return l.Current.Amount
	}

	small := ask(open, 1)
	want("before the raise", small, true)
	h.Release(small, 0)
	want("beyond the amount", ask(open, 101), false)
	until := time.Now().Add(time.Hour)
	for _, id := range ids {
		patch := spendlimit.Patch{SetRaise: true, RaisedTo: new(money.Nano(300)), RaisedUntil: &until}
		if _, _, err := limits.Update(t.Context(), id, patch.Apply); err != nil {
			t.Fatal(err)
		}
	}
	if windows, err := store.Windows(t.Context(), []int64{later}); err != nil || len(windows) != 1 || windows[0].Pool != 0 || windows[0].Amount != 300 {
		t.Errorf("a window that no request has needed yet: %+v, %v", windows, err)
	}
	running := map[int64]*holder.Waiter{}
	for _, number := range []int64{open, later} {
		running[number] = ask(number, 250)
		want("raised", running[number], true)
		want("beyond the raised amount", ask(number, 51), false)
		if got := amount(number); got != 300 {
			t.Errorf("raised: the amount is %d", got)
		}
	}

	w.Exec("update pools set raised_until = clock_timestamp() where raised_until is not null")
	w.Exec("update limits set raised_until = clock_timestamp() where raised_until is not null")
	for n, number := range []int64{open, later} {
		pool := wire.PoolID(limit.Pool(number, 0))
		shown, err := leasestore.NewHoldings(db).Pools(t.Context(), account.ID(c.Account), pool-1, 1, pool)
		if err != nil || len(shown) != 1 || shown[0].Total != 100 || shown[0].Free != -150 {
			t.Errorf("before a decision after the raise: %+v, %v", shown, err)
		}
		want("after the raise", ask(number, 1), false)
		if got := amount(number); got != 100 {
			t.Errorf("after the raise: the amount is %d", got)
		}
		e := c.Event(s, int64(n+1), 60)
		e.Limits = []int64{limit.Pool(number, 0)}
		w.Settle(db, e)
		h.Release(running[number], 60)
		want("beyond the rest of the old amount", ask(number, 41), false)
		want("the rest of the old amount", ask(number, 40), true)
		if p := w.Figures(wire.PoolID(limit.Pool(number, 0))); p.Total != 100 || p.Settled != 60 {
			t.Errorf("the window is %+v", p)
		}
	}
	w.Check()
}
