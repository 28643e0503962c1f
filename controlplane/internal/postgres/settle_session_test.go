package postgres_test

import (
	"sync"
	"testing"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/shared/event"
)

// TestManySettleOneSession: settlements of one session pass one another
// without a deadlock, however many replicas make them, while it is renewed.
func TestManySettleOneSession(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	first := w.replica()
	store := postgres.NewLeasing(first)
	s := w.session(store, "proxy")
	const settlers, rounds = 8, 25
	var done sync.WaitGroup
	replicas := []*postgres.DB{first}
	for i := range settlers {
		db := w.replica()
		replicas = append(replicas, db)
		c := w.customer(1_000_000, unlimited, 5)
		done.Go(func() {
			for round := range rounds {
				w.settle(db, []event.Usage{c.event(s, int64(round*settlers+i+1), 7)}...)
			}
		})
	}
	done.Wait()
	w.checkNoDeadlock(replicas...)
	if got := scalar[string](w, "select settled::text from dataplane_sessions where id = $1", s); got != "{[1,201)}" {
		t.Errorf("settled %s; want {[1,201)}", got)
	}
	w.check()
}
