package leasestore_test

import (
	"fmt"
	"testing"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/event"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

const (
	nextRev   = "update cluster_state set revision = revision + 1"
	addChange = "insert into key_changes (revision, previous_revision, kind, account_id) select revision, 0, 'account_updated', $1 from cluster_state"
)

// waiting returns the sessions that a change at a revision waits for.
func waiting(t *testing.T, store *leasestore.Leases, revision int64) []session.ActiveSession {
	t.Helper()
	active, err := store.ActiveSessions(t.Context(), wire.KeyChange{Revision: revision})
	if err != nil {
		t.Fatal(err)
	}
	return session.NewBarrier(revision, active).Waiting()
}

// Administrative changes hold the row of the cluster's state until they commit.
// The change that a registration or heartbeat does not see is not confirmed before
// its session has applied it.
func TestRegistrationAndHeartbeatDoNotWaitForChanges(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	store := leasestore.NewLeases(w.Replica())
	c := w.Customer(0, storetest.Unlimited, 1)
	s := w.Session(store, "proxy")
	rev := storetest.Scalar[int64](w, "select revision from cluster_state")
	change := w.Begin()
	w.In(change, nextRev)
	w.In(change, addChange, c.Account)
	registered, err := store.Register(t.Context(), &wire.RegisterRequest{Name: "other", BootID: "boot"}, storetest.Window)
	if err != nil || registered.Revision != rev {
		t.Fatalf("registered %+v, %v; want revision %d", registered, err, rev)
	}
	renewed, err := store.Heartbeat(t.Context(), &wire.HeartbeatRequest{Session: s, BootID: "proxy", AppliedRevision: rev}, storetest.Window, 500)
	if err != nil || renewed.Status != wire.Done || len(renewed.Changes) != 0 {
		t.Fatalf("heartbeat %+v, %v; want no change", renewed, err)
	}
	w.Commit(change)
	if got := waiting(t, store, rev+1); len(got) != 2 {
		t.Errorf("the change waits for %+v; want both sessions", got)
	}
	renewed, err = store.Heartbeat(t.Context(), &wire.HeartbeatRequest{Session: s, BootID: "proxy", AppliedRevision: rev}, storetest.Window, 500)
	if err != nil || len(renewed.Changes) != 1 {
		t.Errorf("heartbeat %+v, %v; want the change", renewed, err)
	}
}

// A heartbeat may extend a session that has expired while it waited. The session
// is marked before the heartbeat or not at all.
func TestSessionDoesNotEndDuringItsHeartbeat(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	store := leasestore.NewLeases(w.Replica())
	w.Customer(0, storetest.Unlimited, 1)
	s := w.Session(store, "proxy")
	rev := storetest.Scalar[int64](w, "select revision from cluster_state")
	ending := func() bool {
		t.Helper()
		if _, err := store.Sweep(t.Context(), storetest.Window, session.CloseAfter, true); err != nil {
			t.Fatal(err)
		}
		return storetest.Scalar[bool](w, "select ending from proxy_sessions where id = $1", s)
	}
	w.Expire(s, 1)
	heartbeat := w.Begin()
	w.In(heartbeat, "update proxy_sessions set valid_until = clock_timestamp() + interval '10 minutes' where id = $1", s)
	if ending() {
		t.Error("the session is to end during its heartbeat")
	}
	w.Commit(heartbeat)
	if ending() {
		t.Error("the session is to end after its heartbeat")
	}
	w.Expire(s, 1)
	if !ending() {
		t.Error("the session is not to end although its proxy is silent")
	}
	if got := waiting(t, store, rev+1); len(got) != 1 || got[0].Window != storetest.Window {
		t.Errorf("the change waits for %+v; want the session, whose proxy may admit", got)
	}
	reply, err := store.Heartbeat(t.Context(), &wire.HeartbeatRequest{Session: s, BootID: "proxy", AppliedRevision: rev}, storetest.Window, 500)
	if err != nil || reply.Status != wire.Fenced {
		t.Errorf("heartbeat %+v, %v; want fenced", reply, err)
	}
}

func TestRenew(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	store := leasestore.NewLeases(w.Replica())
	c := w.Customer(0, storetest.Unlimited, 1)
	s := w.Session(store, "proxy")
	first := storetest.Scalar[int64](w, "select revision from cluster_state")
	for range 3 {
		w.Exec(nextRev)
		w.Exec(addChange, c.Account)
	}
	renew := func(applied int64, boot string) *wire.HeartbeatResponse {
		reply, err := store.Heartbeat(t.Context(), &wire.HeartbeatRequest{Session: s, BootID: boot, AppliedRevision: applied}, storetest.Window, 2)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	if got := renew(first, "proxy"); len(got.Changes) != 2 || !got.More || got.StreamIncarnation == "" {
		t.Errorf("first heartbeat: %+v; want two changes and more", got)
	}
	if got := renew(first+2, "proxy"); len(got.Changes) != 1 || got.More || got.Changes[0].Revision != first+3 {
		t.Errorf("second heartbeat: %+v; want the last change", got)
	}
	if got := renew(first+3, "proxy"); len(got.Changes) != 0 || got.More {
		t.Errorf("third renewal: %+v; want nothing", got)
	}
	renew(first, "proxy") // late: what was applied once stays applied
	if got := storetest.Scalar[int64](w, "select applied_revision from proxy_sessions where id = $1", s); got != first+3 {
		t.Errorf("applied revision %d; want %d", got, first+3)
	}
	if got := renew(first, "another life").Status; got != wire.Fenced {
		t.Errorf("heartbeat of another process of the proxy: %s; want fenced", got)
	}
	if got := waiting(t, store, first+4); len(got) != 1 || got[0].Proxy != "proxy" {
		t.Errorf("the next change waits for %+v; want the session", got)
	}
	w.Exec("update proxy_sessions set state = 2")
	if got := waiting(t, store, first+4); len(got) != 0 {
		t.Errorf("the next change waits for %+v; want none that is fenced", got)
	}
	if got := renew(first, "proxy").Status; got != wire.Fenced {
		t.Errorf("heartbeat of a fenced session: %s; want fenced", got)
	}
}

// A session is closed while its events are settled, new ones and repeated ones. Both
// transactions need the same rows, so they must lock them in one order.
func TestConcurrentCloseAndSettlement(t *testing.T) {
	t.Parallel()
	for _, repeated := range []bool{false, true} {
		t.Run(map[bool]string{false: "new event", true: "repeated event"}[repeated], func(t *testing.T) {
			t.Parallel()
			w := newLeaseWorld(t)
			db, other := w.Replica(), w.Replica()
			store, service := leasestore.NewLeases(other), w.Service(db)
			c := w.Customer(100, storetest.Unlimited, 5)
			var sessions []wire.SessionID
			for range 2 {
				s := w.Session(store, "proxy")
				h := holder.NewHolder(s, "proxy", c.AccountID())
				h.Reserve(c.Needs(10))
				storetest.Ask(service, h.NextRequest())
				sessions = append(sessions, s)
			}
			closing := sessions[0]
			w.Settle(db, c.Event(closing, 1, 3))
			again := c.Event(closing, 2, 4)
			items := settle.DecodeBatch(storetest.Batch(t, int64(closing), again))
			if repeated {
				w.Settle(db, again)
				items = append(items, settle.DecodeBatch(storetest.Batch(t, int64(sessions[1]), c.Event(sessions[1], 1, 5)))...)
			}

			tx := w.Begin()
			w.In(tx, "select from pools where id = $1 for update", c.Balance)
			settled, closed := make(chan settle.Result, 1), make(chan bool, 1)
			go func() { settled <- w.SettleItems(db, items) }()
			w.WaitBlocked(1)
			go func() {
				done, err := store.Close(t.Context(), &wire.CloseRequest{Session: closing, BootID: "proxy", FinalCount: 2})
				if err != nil {
					t.Error(err)
				}
				closed <- done
			}()
			w.WaitBlocked(2)
			w.Commit(tx)
			if got := <-settled; got.Settled != 1 {
				t.Errorf("settled %+v; want one event", got)
			}
			if !<-closed {
				t.Error("the session is not closed with all its events settled")
			}
			w.Check()
			service.Stop()
			w.CheckNoDeadlock(db, other)
		})
	}
}

// Two replicas settle the same events, in different batches and orders, without a
// deadlock (see TestChaos_settle_two_workers_no_deadlock).
func TestConcurrentSettlementsOfOneSession(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	replicas := []*postgres.DB{w.Replica(), w.Replica()}
	store := leasestore.NewLeases(replicas[0])
	var customers []*storetest.Customer
	for range 10 {
		customers = append(customers, w.Customer(1_000_000, 1_000_000, 5))
	}
	var sessions []wire.SessionID
	var messages [][]byte
	total := int64(0)
	for range 3 {
		s := w.Session(store, "proxy")
		sessions = append(sessions, s)
		for m := range 20 {
			var events []event.Usage
			for i := range 25 {
				cost := int64((m*25 + i) % 17)
				total += cost
				events = append(events, customers[(m+i*7)%len(customers)].Event(s, int64(m*25+i+1), cost))
			}
			messages = append(messages, storetest.Batch(t, int64(s), events...), []byte("no batch at all"))
		}
	}
	done := make(chan int)
	for i, db := range replicas {
		go func() {
			fresh := 0
			for m := range messages {
				if i == 1 {
					m = len(messages) - 1 - m
				}
				pair := append(settle.DecodeBatch(messages[m]), settle.DecodeBatch(messages[(m+1)%len(messages)])...)
				fresh += w.SettleItems(db, pair).Settled
			}
			done <- fresh
		}()
	}
	if got := <-done + <-done; got != 1500 {
		t.Errorf("%d events were settled; want 1500, each once", got)
	}
	if got := storetest.Scalar[int64](w, "select sum(settled)::bigint from pools where kind = 1"); got != total {
		t.Errorf("%d charged; want %d", got, total)
	}
	for _, s := range sessions {
		if got := storetest.Scalar[string](w, "select settled_seqs::text from proxy_sessions where id = $1", s); got != "{[1,501)}" {
			t.Errorf("session %d: settled %s; want {[1,501)}", s, got)
		}
	}
	w.Check()
	w.CheckNoDeadlock(replicas...)
}

// A proxy has served very many accounts in a session. Its end locks the pools of
// which it still holds units, some at a time, and no others.
func TestClosingSessionLocksFewPools(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	store := leasestore.NewLeases(w.Replica())
	s := w.Session(store, "proxy")
	const addLeases = `with a as (insert into accounts (id, name, max_concurrent_requests, revision) select gen_random_uuid(), 'x', 5, 1 from generate_series(1, $1::int) returning id),
		p as (insert into pools (account_id, kind, total, free) select id, 1, 1000, $3::bigint from a returning id)
		insert into leases (pool_id, session_id, granted, returned, charged) select id, $2, 700, 700 - (1000 - $3::bigint), 0 from p`
	w.Exec(addLeases, 3, s, 1000)
	w.Exec(addLeases, 1200, s, 700)
	lock := "select from pools where id = (select %s(pool_id) from leases where session_id = $1 and granted - returned - charged %s 0) for no key update %s"
	unused, last := w.Begin(), w.Begin()
	w.In(unused, fmt.Sprintf(lock, "min", "=", ""), s)
	w.In(last, fmt.Sprintf(lock, "max", ">", ""), s)
	closed := make(chan bool)
	go func() {
		w.CloseSession(store, s, "proxy", 0, true)
		close(closed)
	}()
	w.WaitBlocked(1) // by the last pool that it holds units of
	free := w.Begin()
	w.In(free, "select from pools where id = (select min(pool_id) + 3 from leases where session_id = $1) for no key update nowait", s)
	w.Commit(free)
	w.Commit(last)
	<-closed
	w.Commit(unused)
	if held := storetest.Scalar[int64](w, "select count(*) from leases where session_id = $1 and granted - returned - charged > 0", s); held != 0 {
		t.Errorf("%d leases of the closed session hold units", held)
	}
	if short := storetest.Scalar[int64](w, "select count(*) from pools where free <> total"); short != 0 {
		t.Errorf("%d pools did not get their units back", short)
	}
}
