package moneystore_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/limit"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// project inserts a project of a customer, moves its key into it, and returns its id.
func (w *leaseWorld) project(c *storetest.Customer) ident.UUID {
	w.T.Helper()
	id := ident.New()
	w.Exec("insert into projects (id, account_id, name, revision) values ($1, $2, 'project', 1)", id, c.Account)
	w.Exec("update api_keys set project_id = $1 where id = $2", id, c.Key)
	return id
}

// limit inserts a limit of an account, and returns its number.
func (w *leaseWorld) limit(c *storetest.Customer, amount int64, window limit.Window) int64 {
	w.T.Helper()
	number := 1 + rand.Int64N(1<<34-1)
	w.Exec(`insert into limits (number, id, account_id, amount, period, time_zone, length_seconds, anchor_unix, revision)
		values ($1, $2, $3, $4, $5, $6, $7, $8, 1)`, number, ident.New(), c.Account, amount, window.Period, window.TimeZone, window.LengthSeconds, window.AnchorUnix)
	return number
}

func windowNeed(number, window, amount int64) wire.Need {
	return wire.Need{Pool: wire.PoolID(limit.Pool(number, window)), Kind: wire.Limit, Amount: amount}
}

// now returns the number of the current window.
func now(t *testing.T, w limit.Window) int64 {
	t.Helper()
	span, err := w.At(time.Now().UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	return span.Number
}

// 37 of 120 concurrent requests on 4 proxies fit in a limit of an account, a project and a key, with each kind of window, and each is
// charged to its window once.
func TestExactlySoManyRequestsFitInAWindow(t *testing.T) {
	t.Parallel()
	for _, window := range []limit.Window{
		{Period: limit.Forever},
		{Period: limit.Day, TimeZone: "Pacific/Kiritimati"},
		{Period: limit.Week, TimeZone: "America/New_York"},
		{Period: limit.Month, TimeZone: "Europe/Moscow"},
		{Period: limit.Fixed, LengthSeconds: 31 * 24 * 3600, AnchorUnix: 5},
		{Period: limit.FirstUse, LengthSeconds: 3600},
	} {
		for _, level := range []limit.Scope{limit.Account, limit.Project, limit.Key} {
			t.Run(string(window.Period)+" of "+string(level), func(t *testing.T) {
				t.Parallel()
				admitInWindow(t, window, level)
			})
		}
	}
}

func admitInWindow(t *testing.T, window limit.Window, level limit.Scope) {
	t.Helper()
	w := newLeaseWorld(t)
	db := w.Replica()
	store, service := leasestore.NewLeases(db), w.Service(db)
	c := w.Customer(1_000_000, storetest.Unlimited, 500)
	other, number := w.limit(c, 1_000_000, limit.Window{Period: limit.Forever}), w.limit(c, 37*10+9, window)
	project := ""
	switch level {
	case limit.Project:
		id := w.project(c)
		project = ident.Project.Format(id)
		w.Exec("update limits set project_id = $1 where number = $2", id, number)
	case limit.Key:
		w.Exec("update limits set key_id = $1 where number = $2", c.Key, number)
	case limit.Account:
	}
	current := int64(1)
	if window.Period != limit.FirstUse {
		current = now(t, window)
	}

	var all sync.WaitGroup
	var mu sync.Mutex
	granted, events := 0, map[wire.SessionID][]event.Usage{}
	for p := range 4 {
		s := w.Session(store, string(rune('a'+p)))
		all.Go(func() {
			h := holder.NewHolder(s, string(rune('a'+p)), c.AccountID())
			var waiters []*holder.Waiter
			for range 30 {
				waiters = append(waiters, h.Reserve(append(c.Needs(10), windowNeed(other, 0, 10), windowNeed(number, current, 10))))
			}
			for request := h.NextRequest(); request != nil; request = h.NextRequest() {
				for {
					reply := storetest.Ask(service, request)
					if reply.Status == wire.Done {
						h.HandleResponse(&reply)
						break
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for i, waiter := range waiters {
				if !waiter.Granted() {
					if d := waiter.Decision(); d.Reason.Pool() != wire.Limit || d.Pool != windowNeed(number, current, 0).Pool {
						t.Errorf("refused with %+v", d)
					}
					continue
				}
				granted++
				e := c.Event(s, int64(len(events[s])+1), 7)
				e.ProjectID = project
				e.Limits = []int64{limit.Pool(other, 0), limit.Pool(number, current)}
				events[s] = append(events[s], e)
				h.Release(waiters[i], 7)
			}
		})
	}
	all.Wait()
	if granted != 37 {
		t.Errorf("%d of 120 requests are granted; want 37", granted)
	}

	service.Stop()
	r := rand.New(rand.NewPCG(1, 2))
	w.deliver(db, events, r)
	for _, n := range []int64{other, number} {
		if got := storetest.Scalar[int64](w, "select sum(settled)::bigint from pools where limit_number = $1", n); got != 37*7 {
			t.Errorf("limit %d: %d is settled; want %d", n, got, 37*7)
		}
	}
	w.Check()
}

// 37 of 120 concurrent requests fit where the limits of the account and of two keys leave room for all: in the limit of their project.
// Each is charged to the windows at all three levels, and to the project, once.
func TestExactlySoManyRequestsOfTwoKeysFitInAProject(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	store, service := leasestore.NewLeases(db), w.Service(db)
	c := w.Customer(1_000_000, storetest.Unlimited, 500)
	project := w.project(c)
	second := ident.New()
	w.Exec(`insert into api_keys (id, account_id, project_id, name, lookup_hash, revision) values ($1, $2, $3, 'second', sha256('second'), 1)`,
		second, c.Account, project)
	w.Exec("insert into pools (account_id, kind, key_id, unlimited) values ($1, 2, $2, true)", c.Account, second)
	forever := limit.Window{Period: limit.Forever}
	ofAccount, ofProject, ofFirst, ofSecond := w.limit(c, 1200, forever), w.limit(c, 37*10+9, forever), w.limit(c, 600, forever), w.limit(c, 600, forever)
	w.Exec("update limits set project_id = $1 where number = $2", project, ofProject)
	w.Exec("update limits set key_id = $1 where number = $2", c.Key, ofFirst)
	w.Exec("update limits set key_id = $1 where number = $2", second, ofSecond)

	var all sync.WaitGroup
	var mu sync.Mutex
	granted, events := 0, map[wire.SessionID][]event.Usage{}
	for p := range 4 {
		s := w.Session(store, string(rune('a'+p)))
		key, own := c.Key, ofFirst
		if p%2 == 1 {
			key, own = second, ofSecond
		}
		all.Go(func() {
			h := holder.NewHolder(s, string(rune('a'+p)), c.AccountID())
			var waiters []*holder.Waiter
			for range 30 {
				waiters = append(waiters, h.Reserve(append(c.Needs(10), windowNeed(own, 0, 10), windowNeed(ofProject, 0, 10), windowNeed(ofAccount, 0, 10))))
			}
			for request := h.NextRequest(); request != nil; request = h.NextRequest() {
				for {
					reply := storetest.Ask(service, request)
					if reply.Status == wire.Done {
						h.HandleResponse(&reply)
						break
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for i, waiter := range waiters {
				if !waiter.Granted() {
					if d := waiter.Decision(); d.Reason.Pool() != wire.Limit || d.Pool != windowNeed(ofProject, 0, 0).Pool {
						t.Errorf("refused with %+v", d)
					}
					continue
				}
				granted++
				e := c.Event(s, int64(len(events[s])+1), 7)
				e.KeyID, e.ProjectID = ident.Key.Format(key), ident.Project.Format(project)
				e.Limits = []int64{limit.Pool(own, 0), limit.Pool(ofProject, 0), limit.Pool(ofAccount, 0)}
				events[s] = append(events[s], e)
				h.Release(waiters[i], 7)
			}
		})
	}
	all.Wait()
	if granted != 37 {
		t.Errorf("%d of 120 requests are granted; want 37", granted)
	}

	service.Stop()
	w.deliver(db, events, rand.New(rand.NewPCG(1, 2)))
	for name, numbers := range map[string][]int64{"account": {ofAccount}, "project": {ofProject}, "keys": {ofFirst, ofSecond}} {
		if got := storetest.Scalar[int64](w, "select sum(settled)::bigint from pools where limit_number = any($1)", numbers); got != 37*7 {
			t.Errorf("limits of the %s: %d is settled; want %d", name, got, 37*7)
		}
	}
	for _, table := range []string{"usage_records", "usage_daily", "usage_weekly"} {
		if got := storetest.Scalar[int64](w, "select sum(cost)::bigint from "+table+" where project_id = $1", project); got != 37*7 {
			t.Errorf("%s: %d of the project; want %d", table, got, 37*7)
		}
	}
	w.Check()
}

// A key that moves keeps what it has spent with its former project: its requests name the project, and charge the windows, of the time
// of their admission. An event goes into quarantine if its project is that of another account, or its windows are of another project.
func TestRequestsCountInTheProjectOfTheirAdmission(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	c, stranger := w.Customer(1000, storetest.Unlimited, 5), w.Customer(1000, storetest.Unlimited, 5)
	former, foreign := w.project(c), w.project(stranger)
	number, s := w.limit(c, 100, limit.Window{Period: limit.Forever}), w.Session(leasestore.NewLeases(db), "proxy")
	w.Exec("update limits set project_id = $1 where number = $2", former, number)
	w.Exec(`insert into pools (id, account_id, kind, limit_number, total, free, starts_at) overriding system value values ($1, $2, 2, $3, 100, 100, now())`,
		limit.Pool(number, 0), c.Account, number)
	now := w.project(c) // the key has moved when the events are settled
	pool := []int64{limit.Pool(number, 0)}
	for i, tt := range []struct {
		project ident.UUID
		limits  []int64
		want    string
	}{
		{former, pool, ""},
		{now, nil, ""},
		{ident.UUID{}, nil, ""},
		{now, pool, settle.ReasonUnknownWindow},
		{ident.UUID{}, pool, settle.ReasonUnknownWindow},
		{foreign, nil, settle.ReasonOtherProject},
		{ident.New(), nil, ""}, // Postgres has lost it with commits
	} {
		e := c.Event(s, int64(i+1), 4)
		e.Limits = tt.limits
		if !tt.project.IsZero() {
			e.ProjectID = ident.Project.Format(tt.project)
		}
		w.Settle(db, e)
		got := storetest.Scalar[string](w, "select coalesce((select reason from quarantine where seq = $1), '')", i+1)
		if recorded := storetest.Scalar[bool](w, `select exists (select from usage_records where seq = $1
			and coalesce(project_id, '00000000-0000-0000-0000-000000000000') = $2)`, i+1, tt.project); got != tt.want || recorded != (tt.want == "") {
			t.Errorf("event %d: quarantined for %q, recorded %t; want %q", i+1, got, recorded, tt.want)
		}
	}
	w.Check()
}

// Messages for windows that are not current are told of the right one, and take nothing.
func TestRequestsAreToldOfTheRightWindow(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	store, service := leasestore.NewLeases(db), w.Service(db)
	c := w.Customer(1000, storetest.Unlimited, 5)
	day, first := limit.Window{Period: limit.Day, TimeZone: "UTC"}, limit.Window{Period: limit.FirstUse, LengthSeconds: 3600}
	daily, used := w.limit(c, 100, day), w.limit(c, 100, first)
	today, s := now(t, day), w.Session(store, "proxy")
	h := holder.NewHolder(s, "proxy", c.AccountID())
	ask := func(needs ...wire.Need) wire.Decision {
		t.Helper()
		waiter := h.Reserve(append(c.Needs(10), needs...))
		reply := storetest.Ask(service, h.NextRequest())
		h.HandleResponse(&reply)
		h.Release(waiter, 0)
		return reply.Decisions[0]
	}

	for _, tt := range []struct {
		name  string
		need  wire.Need
		right wire.PoolID // zero: granted
	}{
		{"a day long ago", windowNeed(daily, today-30, 10), wire.PoolID(limit.Pool(daily, today))},
		{"a day to come", windowNeed(daily, today+30, 10), wire.PoolID(limit.Pool(daily, today))},
		{"today", windowNeed(daily, today, 10), 0},
		{"a window that comes too early", windowNeed(used, 7, 10), wire.PoolID(limit.Pool(used, 1))},
		{"the first", windowNeed(used, 1, 10), 0},
		{"the next one, while the first is open", windowNeed(used, 2, 10), wire.PoolID(limit.Pool(used, 1))},
	} {
		d := ask(tt.need)
		if want := tt.right == 0; d.Granted != want || !want && (d.Reason != wire.WrongWindow || d.Pool != tt.right) {
			t.Errorf("%s: got %+v; want window %d", tt.name, d, tt.right)
		}
	}
	if d := ask(windowNeed(4711, 1, 10)); d.Reason != wire.WrongWindow || d.Pool != 0 {
		t.Errorf("an unknown limit: got %+v", d)
	}

	w.Exec("update pools set starts_at = starts_at - interval '2 hours', ends_at = ends_at - interval '2 hours' where limit_number = $1", used)
	if d := ask(windowNeed(used, 1, 10)); d.Pool != wire.PoolID(limit.Pool(used, 2)) {
		t.Errorf("after its end: got %+v", d)
	}
	if d := ask(windowNeed(used, 2, 10)); !d.Granted {
		t.Errorf("the next window: got %+v", d)
	}
	if n := storetest.Scalar[int](w, "select count(*) from pools where limit_number is not null"); n != 3 {
		t.Errorf("%d windows were made; want 3", n)
	}
}

// An event names only windows that its key can have reserved units of, each once; otherwise it goes into quarantine.
func TestEventsOfOtherWindowsGoIntoQuarantine(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	store, service := leasestore.NewLeases(db), w.Service(db)
	c, stranger := w.Customer(1000, storetest.Unlimited, 5), w.Customer(1000, storetest.Unlimited, 5)
	number, s := w.limit(c, 100, limit.Window{Period: limit.Forever}), w.Session(store, "proxy")
	h := holder.NewHolder(s, "proxy", c.AccountID())
	waiter := h.Reserve(append(c.Needs(10), windowNeed(number, 0, 10)))
	reply := storetest.Ask(service, h.NextRequest())
	h.HandleResponse(&reply)
	if !waiter.Granted() {
		t.Fatal(reply)
	}

	pool := limit.Pool(number, 0)
	for i, tt := range []struct {
		of     *storetest.Customer
		limits []int64
		ok     bool
	}{
		{c, []int64{pool}, true},
		{stranger, []int64{pool}, false},
		{c, []int64{pool, pool}, false},
		{c, []int64{int64(c.Balance)}, false},
		{c, []int64{limit.Pool(number, 5)}, false},
	} {
		e := tt.of.Event(s, int64(i+1), 4)
		e.Limits = tt.limits
		result := w.Settle(db, e)
		if settled := result.Settled == 1; settled != tt.ok || result.Quarantined == 1 == tt.ok {
			t.Errorf("event %d of %v: got %+v", i, tt.limits, result)
		}
	}
	if reasons := storetest.Scalar[int](w, "select count(*) from quarantine where reason = $1", settle.ReasonUnknownWindow); reasons != 4 {
		t.Errorf("%d events have the reason; want 4", reasons)
	}
	if got := storetest.Scalar[int64](w, "select settled from pools where id = $1", pool); money.Nano(got) != 4 {
		t.Errorf("%d is settled; want 4", got)
	}
	w.Check()
}

// After a loss of commits, what proxies report and what requests have cost restores the windows that Postgres has lost.
func TestLostWindowsAreMadeAgain(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	store := leasestore.NewLeases(db)
	c := w.Customer(1000, storetest.Unlimited, 5)
	first, s := w.limit(c, 100, limit.Window{Period: limit.FirstUse, LengthSeconds: 3600}), w.Session(store, "proxy")
	e := c.Event(s, 1, 9)
	e.Limits = []int64{limit.Pool(first, 3)}
	if result := w.Settle(db, e); result.Quarantined != 1 {
		t.Fatalf("without a loss: got %+v", result)
	}

	w.Exec("update cluster_state set lost_at = clock_timestamp()")
	e = c.Event(s, 2, 9)
	e.Limits = []int64{limit.Pool(first, 3)}
	if result := w.Settle(db, e); result.Settled != 1 {
		t.Errorf("after a loss: got %+v", result)
	}
	if got := w.Figures(wire.PoolID(limit.Pool(first, 3))); got.Settled != 9 || got.Total != 100 {
		t.Errorf("the window is %+v", got)
	}
}

// An event with a time that cannot be goes into quarantine, and its batch is settled, although it names a window that does not exist.
func TestEventOfAnImpossibleTimeStopsNoOthers(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	c := w.Customer(1000, storetest.Unlimited, 5)
	number, s := w.limit(c, 100, limit.Window{Period: limit.Day, TimeZone: "UTC"}), w.Session(leasestore.NewLeases(db), "proxy")
	for _, lost := range []bool{false, true} {
		if lost {
			w.Exec("update cluster_state set lost_at = clock_timestamp()")
		}
		good, bad := c.Event(s, 1, 4), c.Event(s, 2, 4)
		if lost {
			good, bad = c.Event(s, 3, 4), c.Event(s, 4, 4)
		}
		bad.StartedMS, bad.Limits = -3e14, []int64{limit.Pool(number, 77)}
		if result := w.Settle(db, good, bad); result.Settled != 1 || result.Quarantined != 1 {
			t.Errorf("after a loss %t: got %+v; want one event settled", lost, result)
		}
		if n := storetest.Scalar[int](w, "select count(*) from pools where limit_number is not null"); n != 0 && !lost {
			t.Errorf("%d windows were made", n)
		}
	}
}
