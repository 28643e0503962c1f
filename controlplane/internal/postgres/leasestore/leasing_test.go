package leasestore_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/changestream"
	"modelgateway/controlplane/internal/leasing"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// Only an active session gets units; returns of a session count until it is closed.
func TestRequestsOfEndedSessions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		end  func(w *leaseWorld, store *leasestore.Leases, s wire.SessionID)
		op   wire.Status
		ret  wire.Status
	}{
		{"active", func(*leaseWorld, *leasestore.Leases, wire.SessionID) {}, wire.Done, wire.Done},
		// A session that has expired by the clock of Postgres is active until a replica fences it.
		{"expired", func(w *leaseWorld, _ *leasestore.Leases, s wire.SessionID) { w.Expire(s, 1) }, wire.Done, wire.Done},
		{"fenced", func(w *leaseWorld, store *leasestore.Leases, s wire.SessionID) {
			w.CloseSession(store, s, "proxy", 9, false)
		}, wire.Fenced, wire.Done},
		{"ended at its proxy, where requests run", func(w *leaseWorld, store *leasestore.Leases, s wire.SessionID) {
			w.CloseSession(store, s, "proxy", wire.NotFinal, false)
		}, wire.Fenced, wire.Done},
		{"closed", func(w *leaseWorld, store *leasestore.Leases, s wire.SessionID) {
			w.CloseSession(store, s, "proxy", 0, true)
		}, wire.Fenced, wire.Fenced},
		{"unknown", func(w *leaseWorld, _ *leasestore.Leases, s wire.SessionID) {
			w.Exec("delete from lease_responses")
			w.Exec("delete from leases")
			w.Exec("update pools set free = total")
			w.Exec("delete from proxy_sessions where id = $1", s)
		}, wire.Fenced, wire.Fenced},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newLeaseWorld(t)
			db := w.Replica()
			store := leasestore.NewLeases(db)
			service := w.Service(db)
			c := w.Customer(100, storetest.Unlimited, 5)
			s := w.Session(store, "proxy")
			h := holder.NewHolder(s, "proxy", c.AccountID())
			running := h.Reserve(c.Needs(10))
			reply := storetest.Ask(service, h.NextRequest())
			h.HandleResponse(&reply)
			tt.end(w, store, s)

			h.Release(running, 0)
			if got := storetest.ReturnUnits(service, h.NextReturn()).Status; got != tt.ret {
				t.Errorf("return: got %s; want %s", got, tt.ret)
			}
			h.Reserve(c.Needs(10))
			if got := storetest.Ask(service, h.NextRequest()).Status; got != tt.op {
				t.Errorf("op: got %s; want %s", got, tt.op)
			}
			w.Check()
		})
	}
}

func TestLeaseResponseIsRepeated(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	one, two := w.Replica(), w.Replica()
	first, second := w.Service(one), w.Service(two)
	c := w.Customer(100, 50, 5)
	s := w.Session(leasestore.NewLeases(one), "proxy")
	h := holder.NewHolder(s, "proxy", c.AccountID())
	for range 3 {
		h.Reserve(c.Needs(20))
	}
	op := h.NextRequest()
	want := storetest.Ask(first, op)
	if len(want.Decisions) != 3 || !want.Decisions[1].Granted || want.Decisions[2].Granted {
		t.Fatalf("got %+v; want two of three granted", want.Decisions)
	}
	before := w.Figures(c.Balance)
	for _, service := range []*leasing.Service{first, second} {
		if diff := cmp.Diff(want, storetest.Ask(service, op)); diff != "" {
			t.Errorf("repeated op (-first +repeated):\n%s", diff)
		}
	}
	if diff := cmp.Diff(before, w.Figures(c.Balance)); diff != "" {
		t.Errorf("a repetition changed the pool:\n%s", diff)
	}
	// An older request gets the last response, which its sender ignores by the number.
	h.HandleResponse(&want)
	h.Reserve(c.Needs(1))
	storetest.Ask(second, h.NextRequest())
	if got := storetest.Ask(first, op).Number; got != 2 {
		t.Errorf("an older lease request got the response number %d; want 2", got)
	}
	w.Check()
}

// With a balance of 37, exactly 37 of 100 requests from two sessions through two
// replicas are admitted.
func TestLastUnitsAreGrantedOnce(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                   string
		sessions, ops, batched int
		slots                  int64
		granted                int
		reason                 wire.RefusalReason
	}{
		{"two sessions, one request an op", 2, 50, 1, 1000, 37, wire.BalanceReserved},
		{"two sessions, many requests an op", 2, 5, 10, 1000, 37, wire.BalanceReserved},
		{"a hundred sessions at once", 100, 1, 1, 1000, 37, wire.BalanceReserved},
		{"slots", 20, 1, 5, 11, 11, wire.NoSlot},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newLeaseWorld(t)
			one, two := w.Replica(), w.Replica()
			services := []*leasing.Service{w.Service(one), w.Service(two)}
			c := w.Customer(37, storetest.Unlimited, tt.slots)
			store := leasestore.NewLeases(one)
			decisions := make(chan wire.Decision, tt.sessions*tt.ops*tt.batched)
			done := make(chan bool)
			for i := range tt.sessions {
				h := holder.NewHolder(w.Session(store, "proxy"), "proxy", c.AccountID())
				go func() {
					for n := range tt.ops {
						for range tt.batched {
							h.Reserve(c.Needs(1))
						}
						reply := storetest.Ask(services[(i+n)%2], h.NextRequest())
						h.HandleResponse(&reply)
						for _, d := range reply.Decisions {
							decisions <- d
						}
					}
					done <- true
				}()
			}
			for range tt.sessions {
				<-done
			}
			close(decisions)
			granted := 0
			for d := range decisions {
				switch {
				case d.Granted:
					granted++
				case d.Reason != tt.reason || d.Free != 0:
					t.Errorf("refused with %+v; want %s with nothing free", d, tt.reason)
				}
			}
			if granted != tt.granted {
				t.Errorf("%d granted; want %d", granted, tt.granted)
			}
			w.Check()
			w.CheckNoDeadlock(one, two)
		})
	}
}

// A request waits for the units of running requests, whichever replica they are
// returned to.
func TestRefusalWaitsForReturns(t *testing.T) {
	t.Parallel()
	for _, elsewhere := range []bool{false, true} {
		t.Run(map[bool]string{false: "same replica", true: "another replica"}[elsewhere], func(t *testing.T) {
			t.Parallel()
			w := newLeaseWorld(t)
			one, two := w.Replica(), w.Replica()
			asked := w.PatientService(one)
			returned := asked
			if elsewhere {
				returned = w.PatientService(two)
			}
			c := w.Customer(100, storetest.Unlimited, 1)
			store := leasestore.NewLeases(one)
			holding := holder.NewHolder(w.Session(store, "holding"), "holding", c.AccountID())
			running := holding.Reserve(c.Needs(10))
			reply := storetest.Ask(asked, holding.NextRequest())
			holding.HandleResponse(&reply)

			waiting := holder.NewHolder(w.Session(store, "waiting"), "waiting", c.AccountID())
			waiting.Reserve(c.Needs(10))
			op, answer := waiting.NextRequest(), make(chan wire.LeaseResponse, 1)
			asked.Request(op, func(r wire.LeaseResponse) { answer <- r })
			holding.Release(running, 0)
			storetest.ReturnUnits(returned, holding.NextReturn())
			got := <-answer
			if got.Status != wire.Done { // a slow machine: its time is over
				got = storetest.Ask(asked, op)
			}
			if !got.Decisions[0].Granted {
				t.Errorf("got %+v; want it granted after the return", got.Decisions[0])
			}
			w.Check()
		})
	}
}

func TestCloseWaitsForEvents(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	store, service := leasestore.NewLeases(db), w.Service(db)
	c := w.Customer(100, 100, 5)
	s := w.Session(store, "proxy")
	h := holder.NewHolder(s, "proxy", c.AccountID())
	for range 2 {
		h.Reserve(c.Needs(30))
	}
	reply := storetest.Ask(service, h.NextRequest())
	h.HandleResponse(&reply)

	w.CloseSession(store, s, "proxy", wire.NotFinal, false) // while requests run
	w.CloseSession(store, s, "proxy", 2, false)
	w.Settle(db, c.Event(s, 2, 7))
	w.CloseSession(store, s, "proxy", 2, false)
	if got := w.Figures(c.Balance); got.Held != 53 {
		t.Errorf("an open session holds %d; want 53", got.Held)
	}
	w.Settle(db, c.Event(s, 1, 5))
	w.CloseSession(store, s, "proxy", 2, true)
	w.CloseSession(store, s, "proxy", 2, true)
	w.CloseSession(store, s, "another boot", 2, true)
	w.CloseSession(store, s+1, "proxy", 2, true)
	w.Settle(db, c.Event(s, 3, 4))
	for pool, want := range map[wire.PoolID]storetest.Figures{
		c.Balance: {Total: 100, Free: 84, Settled: 16, Late: 4},
		c.Limit:   {Total: 100, Free: 84, Settled: 16, Late: 4},
		c.Slots:   {Total: 5, Free: 5},
	} {
		if diff := cmp.Diff(want, w.Figures(pool)); diff != "" {
			t.Errorf("pool %d after closing and a late charge (-want +got):\n%s", pool, diff)
		}
	}
	w.Check()
}

func TestSweep(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	store, service := leasestore.NewLeases(db), w.Service(db)
	c := w.Customer(100, storetest.Unlimited, 5)
	ages := map[string]int{"live": -600, "expired": 600, "forgotten": int(session.CloseAfter.Seconds()) + 600}
	sessions := map[string]wire.SessionID{}
	for name, age := range ages {
		s := w.Session(store, name)
		sessions[name] = s
		h := holder.NewHolder(s, name, c.AccountID())
		h.Reserve(c.Needs(10))
		if reply := storetest.Ask(service, h.NextRequest()); !reply.Decisions[0].Granted {
			t.Fatalf("%s: %+v", name, reply)
		}
		w.Expire(s, age)
	}
	for _, want := range [][2]int{{2, 0}, {0, 1}} {
		if fenced, closed, err := w.Sweep(store, true); err != nil || fenced != want[0] || closed != want[1] {
			t.Fatalf("fenced %d, closed %d, %v; want %v", fenced, closed, err, want)
		}
	}
	want := map[string]int{"live": 1, "expired": 2, "forgotten": 3}
	got := map[string]int{}
	for name, s := range sessions {
		got[name] = storetest.Scalar[int](w, "select state from proxy_sessions where id = $1", s)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(storetest.Figures{Total: 100, Free: 80, Held: 20}, w.Figures(c.Balance)); diff != "" {
		t.Errorf("balance (-want +got):\n%s", diff)
	}
	if fenced, closed, err := w.Sweep(store, true); err != nil || fenced+closed != 0 {
		t.Errorf("a third sweep: fenced %d, closed %d, %v; want nothing", fenced, closed, err)
	}
	w.Check()
}

// A proxy that is silent may still admit: its session is not fenced by time, nor extended any more.
func TestSweepMarksExpiredSessions(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	store := leasestore.NewLeases(w.Replica())
	silent, other := w.Session(store, "silent"), w.Session(store, "other")
	w.Expire(silent, 600)
	for range 2 { // the second sweep has nothing to do
		if closed, err := store.Sweep(t.Context(), storetest.Window, session.CloseAfter, true); err != nil || closed != 0 {
			t.Fatalf("closed %d, %v; want none", closed, err)
		}
	}
	reply, err := store.Heartbeat(t.Context(), &wire.HeartbeatRequest{V: wire.Version, Session: silent, BootID: "silent"}, storetest.Window, 10)
	if err != nil || reply.Status != wire.Fenced {
		t.Errorf("its heartbeat: %+v, %v; want it refused", reply, err)
	}
	if state := storetest.Scalar[int](w, "select state from proxy_sessions where id = $1", silent); state != 1 {
		t.Errorf("state %d; want it active until the stream of changes has confirmed its end", state)
	}
	ending, epoch, err := store.EndingSessions(t.Context())
	want := []changestream.EndingSession{{ID: silent, Window: storetest.Window}}
	if diff := cmp.Diff(want, ending); diff != "" || epoch != 0 || err != nil {
		t.Errorf("epoch %d, %v, ending sessions (-want +got):\n%s", epoch, err, diff)
	}
	if fenced, err := store.FenceEnding(t.Context(), []wire.SessionID{silent, other}); err != nil || fenced != 1 {
		t.Errorf("fenced %d, %v; want the one session", fenced, err)
	}
	w.Check()
}

// The control plane knows where keys without a MAC may be in use: imported ones, and those of a pepper that the proxy does not have.
func TestRegistrationSaysWhetherEveryKeyHasAMAC(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	store := leasestore.NewLeases(w.Replica())
	check := func(step string, want bool) {
		t.Helper()
		registered, err := store.Register(t.Context(), &wire.RegisterRequest{Name: "proxy", BootID: "boot", Peppers: []string{"p2", "p1"}}, storetest.Window)
		if err != nil || registered.AllHaveMAC != want {
			t.Errorf("%s: all have a MAC: %t, %v; want %t", step, registered.AllHaveMAC, err, want)
		}
	}
	check("no key", true)
	c := w.Customer(0, storetest.Unlimited, 1)
	check("an imported key", false)
	w.Exec("update api_keys set ciphertext = 'x', cipher_key_id = 'm1' where id = $1", c.Key)
	check("a key of an unknown pepper", false)
	w.Exec("update api_keys set pepper_id = 'p0' where id = $1", c.Key)
	check("a key of a pepper that the proxy does not have", false)
	w.Exec("update api_keys set pepper_id = 'p1' where id = $1", c.Key)
	check("a key of an earlier pepper", true)
	other := w.Customer(0, storetest.Unlimited, 1)
	check("another imported key", false)
	w.Exec("update api_keys set revoked_at = now() where id = $1", other.Key)
	check("which is revoked", true)
}

// A loss of commits fences all sessions, although their proxies may not know of it before the recovery wait is over.
func TestNoSessionIsClosedForSilenceDuringTheRecoveryWait(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	store := leasestore.NewLeases(w.Replica())
	w.Expire(w.Session(store, "forgotten"), int(session.CloseAfter.Seconds())+600)
	sweep := func(wantClosed int) {
		t.Helper()
		if _, closed, err := w.Sweep(store, true); err != nil || closed != wantClosed {
			t.Errorf("closed %d, %v; want %d", closed, err, wantClosed)
		}
	}
	sweep(0) // fenced
	w.Exec("update cluster_state set cluster_epoch = cluster_epoch + 1")
	sweep(0)
	w.Exec("update cluster_state set recovered_epoch = cluster_epoch")
	sweep(1)
}

// After an absence of Postgres, of the bus or of the control planes, the usage of a session may still wait in the
// stream or at its proxy: units that were freed then would be spent twice.
func TestSessionIsClosedOnlyAfterItsProxyCouldBeHeard(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	var clock session.Instant
	store, service := leasestore.NewLeasesWithClock(db, func() session.Instant { return clock }), w.Service(db)
	c := w.Customer(100, storetest.Unlimited, 5)
	s := w.Session(store, "proxy")
	h := holder.NewHolder(s, "proxy", c.AccountID())
	h.Reserve(c.Needs(10))
	storetest.Ask(service, h.NextRequest())
	sweep := func(connected bool, wantFenced, wantClosed int) {
		t.Helper()
		fenced, closed, err := w.Sweep(store, connected)
		if err != nil || fenced != wantFenced || closed != wantClosed {
			t.Fatalf("fenced %d, closed %d, %v; want %d and %d", fenced, closed, err, wantFenced, wantClosed)
		}
	}
	pass := func(d time.Duration, connected bool) { // with sweeps, none of which fences or closes the session
		t.Helper()
		for end := clock.Mono + d; clock.Mono < end; {
			clock = clock.Add(time.Minute)
			sweep(connected, 0, 0)
		}
	}
	w.Expire(s, int((10 * session.CloseAfter).Seconds()))
	clock.Boot += 10 * session.CloseAfter // the machine was suspended
	pass(storetest.Window, false)         // NATS is unavailable
	clock = clock.Add(time.Minute + time.Second)
	sweep(false, 1, 0)
	pass(session.CloseAfter, false)
	pass(session.CloseAfter, true)
	clock = clock.Add(2 * time.Minute)
	sweep(true, 0, 1)
	if diff := cmp.Diff(storetest.Figures{Total: 100, Free: 100}, w.Figures(c.Balance)); diff != "" {
		t.Errorf("balance (-want +got):\n%s", diff)
	}
	w.Check()
}

// A call may outlive its session by any time: while its process says that requests run, the session keeps their units.
func TestSessionWithRunningRequestsIsKeptWhileItsProcessIsHeard(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	store, service := leasestore.NewLeases(db), w.Service(db)
	c := w.Customer(100, storetest.Unlimited, 5)
	s := w.Session(store, "proxy")
	h := holder.NewHolder(s, "proxy", c.AccountID())
	h.Reserve(c.Needs(10))
	storetest.Ask(service, h.NextRequest())
	sweep := func(wantClosed int) {
		t.Helper()
		if _, closed, err := w.Sweep(store, true); err != nil || closed != wantClosed {
			t.Fatalf("closed %d, %v; want %d", closed, err, wantClosed)
		}
	}
	sweep(0)
	for range 3 { // each time for longer than the session is kept without a word
		w.CloseSession(store, s, "proxy", wire.NotFinal, false)
		w.Expire(s, int(session.CloseAfter.Seconds())+600)
		w.CloseSession(store, s, "proxy", wire.NotFinal, false)
		sweep(0)
		if got := w.Figures(c.Balance); got.Held < 10 {
			t.Fatalf("the session holds %d; want what its request has reserved", got.Held)
		}
	}
	w.Expire(s, int(session.CloseAfter.Seconds())+600)
	w.CloseSession(store, s, "another boot", wire.NotFinal, true)
	sweep(1)
	w.Check()
}

// An error with one session does not stop the others from being closed.
func TestSweepContinuesAfterError(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	store, service := leasestore.NewLeases(db), w.Service(db)
	bad, good := w.Customer(100, storetest.Unlimited, 5), w.Customer(100, storetest.Unlimited, 5)
	for _, c := range []*storetest.Customer{bad, good} {
		s := w.Session(store, "proxy")
		h := holder.NewHolder(s, "proxy", c.AccountID())
		h.Reserve(c.Needs(10))
		storetest.Ask(service, h.NextRequest())
		w.Expire(s, int(session.CloseAfter.Seconds())+3)
	}
	w.Exec("alter table pools add constraint broken check (id <> " + strconv.FormatInt(int64(bad.Balance), 10) + ") not valid")
	if fenced, _, err := w.Sweep(store, true); err != nil || fenced != 2 {
		t.Fatalf("fenced %d, %v; want both", fenced, err)
	}
	_, closed, err := w.Sweep(store, true)
	if err == nil || closed != 1 {
		t.Errorf("closed %d, %v; want one and an error", closed, err)
	}
	if got := w.Figures(good.Balance); got.Held != 0 {
		t.Errorf("the other session still holds %d", got.Held)
	}
}

func TestLoadKeys(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	store := leasestore.NewLeases(w.Replica())
	limited, free, revoked, suspended := w.Customer(1, 9, 1), w.Customer(1, storetest.Unlimited, 1), w.Customer(1, 9, 1), w.Customer(1, 9, 1)
	w.Exec("update api_keys set revoked_at = now() where id = $1", revoked.Key)
	w.Exec("update accounts set status = 'suspended' where id = $1", suspended.Account)
	w.Exec("update cluster_state set revision = 41")
	record := func(c *storetest.Customer, active bool) *wire.KeyRecord {
		r := &wire.KeyRecord{KeyID: c.KeyID(), AccountID: c.AccountID(), Active: active, BalancePool: c.Balance, SlotsPool: c.Slots, MaxConcurrent: 1}
		if c.Limited {
			r.LimitPool = c.Limit
		}
		return r
	}
	tests := []struct {
		name string
		key  *storetest.Customer
		want *wire.KeyRecord
	}{
		{"limited", limited, record(limited, true)},
		{"unlimited", free, record(free, true)},
		{"revoked", revoked, record(revoked, false)},
		{"suspended", suspended, record(suspended, false)},
		{"unknown", &storetest.Customer{}, nil},
	}
	var hashes []apikey.Hash
	for _, tt := range tests {
		hashes = append(hashes, tt.key.Hash)
	}
	got, err := store.LoadKeys(t.Context(), hashes)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		want := &wire.LoadKeyResponse{V: wire.Version, Status: wire.Done, ReadRevision: 41, Record: tt.want}
		if diff := cmp.Diff(want, got[tt.key.Hash]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestBalance(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	store, service := leasestore.NewLeases(db), w.Service(db)
	limited, free := w.Customer(100, 50, 5), w.Customer(100, storetest.Unlimited, 5)
	for _, c := range []*storetest.Customer{limited, free} {
		s := w.Session(store, "proxy")
		h := holder.NewHolder(s, "proxy", c.AccountID())
		h.Reserve(c.Needs(20))
		storetest.Ask(service, h.NextRequest())
		w.Settle(db, c.Event(s, 1, 5))
	}
	tests := []struct {
		name string
		of   *storetest.Customer
		want wire.BalanceResponse
	}{
		{"limited", limited, wire.BalanceResponse{Balance: 95, Reserved: 15, Limited: true, Limit: 50, KeySpent: 5, KeyReserved: 15}},
		{"unlimited", free, wire.BalanceResponse{Balance: 95, Reserved: 15, KeySpent: 5}},
	}
	for _, tt := range tests {
		tt.want.V, tt.want.Status, tt.want.BalancePool, tt.want.LimitPool = wire.Version, wire.Done, tt.of.Balance, tt.of.Limit
		got, err := store.Balance(t.Context(), &wire.BalanceRequest{V: wire.Version, AccountID: tt.of.AccountID(), KeyID: tt.of.KeyID()})
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(&tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	foreign := &wire.BalanceRequest{V: wire.Version, AccountID: limited.AccountID(), KeyID: free.KeyID()}
	if got, err := store.Balance(t.Context(), foreign); err == nil {
		t.Errorf("the key of another account: got %+v; want an error", got)
	}
	malformed := &wire.BalanceRequest{V: wire.Version, AccountID: ident.Key.New(), KeyID: free.KeyID()}
	if got, err := store.Balance(t.Context(), malformed); err == nil {
		t.Errorf("a malformed account: got %+v; want an error", got)
	}
}
