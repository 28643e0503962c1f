package moneystore_test

import (
	"fmt"
	"sync"
	"testing"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/event"
	"modelgateway/shared/wire"
)

// settling settles events in another replica; the channel is closed at the end.
func (w *leaseWorld) settling(events ...event.Usage) (db *postgres.DB, over <-chan struct{}) {
	w.T.Helper()
	db = w.Replica()
	items, done := settle.DecodeBatch(storetest.Batch(w.T, events[0].Session, events...)), make(chan struct{})
	go func() {
		defer close(done)
		if _, err := settle.New(moneystore.NewSettlement(db), nil).Settle(w.T.Context(), items); err != nil {
			w.T.Error(err)
		}
	}()
	return db, done
}

// waiting counts the transactions that wait to write settled sequence numbers: for the
// advisory lock, and for the row.
func (w *leaseWorld) waiting() (queued, atRow int) {
	w.T.Helper()
	const here = "select count(*) from pg_locks l join pg_stat_activity a using (pid) where a.datname = current_database() and not l.granted"
	return storetest.Scalar[int](w, here+" and l.locktype = 'advisory'"), storetest.Scalar[int](w, here+" and l.locktype <> 'advisory'")
}

// Of many settlements of a session, one waits for the row during a heartbeat, and the
// others wait for the advisory lock: at the row they could deadlock. All of them
// succeed.
func TestSettlementsOfOneSessionRunInTurn(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	first := w.Replica()
	s := w.Session(leasestore.NewLeases(first), "proxy")
	renewal := w.Begin()
	w.In(renewal, "update proxy_sessions set valid_until = valid_until + interval '1 second' where id = $1", s)
	const settlers = 5
	replicas := []*postgres.DB{first}
	var all sync.WaitGroup
	for i := range settlers {
		e := w.Customer(1_000_000, storetest.Unlimited, 5).Event(s, int64(i+1), 7)
		e.Model = fmt.Sprint("model ", i) // its totals are in nobody's way
		db, over := w.settling(e)
		replicas = append(replicas, db)
		all.Go(func() { <-over })
	}
	w.WaitBlocked(settlers)
	if queued, atRow := w.waiting(); queued != settlers-1 || atRow != 1 {
		t.Errorf("%d settlements wait for the advisory lock and %d for the row; want %d and one", queued, atRow, settlers-1)
	}
	w.Commit(renewal)
	all.Wait()
	w.CheckNoDeadlock(replicas...)
	if got := storetest.Scalar[string](w, "select settled_seqs::text from proxy_sessions where id = $1", s); got != "{[1,6)}" {
		t.Errorf("settled %s; want {[1,6)}", got)
	}
	w.Check()
}

// A settlement of repeated events holds the advisory lock and does not wait for a
// transaction that closes the session. That one waits for another settlement, which
// waits for the advisory lock.
func TestConcurrentRepetitionAndClose(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	closer := w.Replica()
	store := leasestore.NewLeases(closer)
	s := w.Session(store, "proxy")
	c := w.Customer(1_000_000, storetest.Unlimited, 5)
	first := c.Event(s, 1, 7)
	w.Settle(closer, first)

	renewal, pool := w.Begin(), w.Begin()
	w.In(renewal, "update proxy_sessions set valid_until = valid_until + interval '1 second' where id = $1", s)
	w.In(pool, "select from pools where id = $1 for update", c.Balance)
	fresh, settled := w.settling(c.Event(s, 2, 7))
	w.WaitBlocked(1) // it has its share of the session
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := store.Close(t.Context(), &wire.CloseRequest{V: wire.Version, Session: s, BootID: "proxy", FinalCount: 2}); err != nil {
			t.Error(err)
		}
	})
	w.WaitBlocked(2)
	repeating, repeated := w.settling(first)
	w.WaitBlocked(3) // for the renewal, and not for who closes the session
	w.Commit(renewal)
	w.Commit(pool)
	<-repeated
	<-settled
	all.Wait()
	w.CheckNoDeadlock(closer, fresh, repeating)
	w.Check()
}
