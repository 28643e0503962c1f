package postgres_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/event"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/wire"
)

// begin starts a transaction that a test holds open.
func (w *leaseWorld) begin() pgx.Tx {
	w.t.Helper()
	tx, err := w.sql.Begin(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(w.t.Context())) })
	return tx
}

func (w *leaseWorld) in(tx pgx.Tx, query string, args ...any) {
	w.t.Helper()
	if _, err := tx.Exec(w.t.Context(), query, args...); err != nil {
		w.t.Fatalf("%s: %v", query, err)
	}
}

func (w *leaseWorld) commit(tx pgx.Tx) {
	w.t.Helper()
	if err := tx.Commit(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

const (
	nextRev   = "update cluster_state set revision = revision + 1"
	addChange = "insert into key_changes (revision, previous_revision, kind, account_id) select revision, 0, 'account_updated', $1 from cluster_state"
)

// A session that is registered during a change begins with its revision.
func TestRegisterWaitsForChanges(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	store := leasestore.New(w.replica())
	before := scalar[int64](w, "select revision from cluster_state")
	tx := w.begin()
	w.in(tx, nextRev)
	registered := make(chan *wire.RegisterResponse, 1)
	go func() {
		reply, err := store.Register(t.Context(), &wire.RegisterRequest{Name: "proxy", BootID: "boot"}, sessionLength)
		if err != nil {
			t.Error(err)
		}
		registered <- reply
	}()
	w.waitBlocked(1)
	w.commit(tx)
	if got := (<-registered).Revision; got != before+1 {
		t.Errorf("registered at revision %d; want %d", got, before+1)
	}
	if pending, err := store.PendingSessions(t.Context(), wire.KeyChange{Revision: before + 1}, sessionLength, 0); err != nil || len(pending) != 0 {
		t.Errorf("pending %+v, %v; want none", pending, err)
	}
}

// A heartbeat during a change either returns the change or ends before it.
func TestHeartbeatWaitsForChanges(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	store := leasestore.New(w.replica())
	c := w.customer(0, unlimited, 1)
	s := w.session(store, "proxy")
	rev := scalar[int64](w, "select revision from cluster_state")
	renew := func() <-chan *wire.HeartbeatResponse {
		renewed := make(chan *wire.HeartbeatResponse, 1)
		go func() {
			reply, err := store.Heartbeat(t.Context(), &wire.HeartbeatRequest{Session: s, BootID: "proxy", AppliedRevision: rev}, sessionLength, 500)
			if err != nil {
				t.Error(err)
			}
			renewed <- reply
		}()
		return renewed
	}

	// The change comes first.
	tx := w.begin()
	w.in(tx, nextRev)
	w.in(tx, addChange, c.account)
	renewed := renew()
	w.waitBlocked(1)
	w.commit(tx)
	want := []wire.KeyChange{{V: wire.Version, Revision: rev + 1, Kind: wire.AccountUpdated, Account: c.accountID()}}
	if diff := cmp.Diff(want, (<-renewed).Changes); diff != "" {
		t.Errorf("changes in the heartbeat response (-want +got):\n%s", diff)
	}

	// The heartbeat comes first, and waits for its session's row.
	rev++
	w.expire(s, -1)
	row := w.begin()
	w.in(row, "select from proxy_sessions where id = $1 for no key update", s)
	renewed = renew()
	w.waitBlocked(1)
	committed := make(chan bool)
	change := w.begin()
	go func() {
		w.in(change, nextRev)
		w.in(change, addChange, c.account)
		w.commit(change)
		close(committed)
	}()
	w.waitBlocked(2)
	w.commit(row)
	if got := <-renewed; len(got.Changes) != 0 || got.Status != wire.Done {
		t.Errorf("the renewal got %+v; want no change", got)
	}
	<-committed
	pending, err := store.PendingSessions(t.Context(), wire.KeyChange{Revision: rev + 1}, sessionLength, 0)
	if err != nil || len(pending) != 1 || pending[0].Remaining < sessionLength/2 {
		t.Errorf("pending %+v, %v; want the session with its new length", pending, err)
	}
}

func TestRenew(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	store := leasestore.New(w.replica())
	c := w.customer(0, unlimited, 1)
	s := w.session(store, "proxy")
	first := scalar[int64](w, "select revision from cluster_state")
	for range 3 {
		w.exec(nextRev)
		w.exec(addChange, c.account)
	}
	renew := func(applied int64, boot string) *wire.HeartbeatResponse {
		reply, err := store.Heartbeat(t.Context(), &wire.HeartbeatRequest{Session: s, BootID: boot, AppliedRevision: applied}, sessionLength, 2)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	if got := renew(first, "proxy"); len(got.Changes) != 2 || !got.More || got.ValidMS != sessionLength.Milliseconds() || got.StreamIncarnation == "" {
		t.Errorf("first heartbeat: %+v; want two changes and more", got)
	}
	if got := renew(first+2, "proxy"); len(got.Changes) != 1 || got.More || got.Changes[0].Revision != first+3 {
		t.Errorf("second heartbeat: %+v; want the last change", got)
	}
	if got := renew(first+3, "proxy"); len(got.Changes) != 0 || got.More {
		t.Errorf("third renewal: %+v; want nothing", got)
	}
	renew(first, "proxy") // late: what was applied once stays applied
	if got := scalar[int64](w, "select applied_revision from proxy_sessions where id = $1", s); got != first+3 {
		t.Errorf("applied revision %d; want %d", got, first+3)
	}
	if got := renew(first, "another life").Status; got != wire.Fenced {
		t.Errorf("heartbeat of another process of the proxy: %s; want fenced", got)
	}
	w.expire(s, 1)
	if got := renew(first, "proxy").Status; got != wire.Fenced {
		t.Errorf("heartbeat of an expired session: %s; want fenced", got)
	}
	if pending, err := store.PendingSessions(t.Context(), wire.KeyChange{Revision: first + 4}, sessionLength, 0); err != nil || len(pending) != 1 || pending[0].Remaining > 0 {
		t.Errorf("pending %+v, %v; want the expired session, which may be within its margin", pending, err)
	}
	w.exec("update proxy_sessions set state = 2")
	if pending, err := store.PendingSessions(t.Context(), wire.KeyChange{Revision: first + 4}, sessionLength, 0); err != nil || len(pending) != 0 {
		t.Errorf("pending %+v, %v; want none that is fenced", pending, err)
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
			db, other := w.replica(), w.replica()
			store, service := leasestore.New(other), w.service(db)
			c := w.customer(100, unlimited, 5)
			var sessions []wire.SessionID
			for range 2 {
				s := w.session(store, "proxy")
				h := holder.NewHolder(s, "proxy", c.accountID())
				h.Reserve(c.needs(10))
				ask(service, h.NextRequest())
				sessions = append(sessions, s)
			}
			closing := sessions[0]
			w.settle(db, c.event(closing, 1, 3))
			again := c.event(closing, 2, 4)
			items := settle.DecodeBatch(batch(t, int64(closing), again))
			if repeated {
				w.settle(db, again)
				items = append(items, settle.DecodeBatch(batch(t, int64(sessions[1]), c.event(sessions[1], 1, 5)))...)
			}

			tx := w.begin()
			w.in(tx, "select from pools where id = $1 for update", c.balance)
			settled, closed := make(chan settle.Result, 1), make(chan bool, 1)
			go func() { settled <- w.settleItems(db, items) }()
			w.waitBlocked(1)
			go func() {
				done, err := store.Close(t.Context(), &wire.CloseRequest{Session: closing, BootID: "proxy", FinalCount: 2})
				if err != nil {
					t.Error(err)
				}
				closed <- done
			}()
			w.waitBlocked(2)
			w.commit(tx)
			if got := <-settled; got.Settled != 1 {
				t.Errorf("settled %+v; want one event", got)
			}
			if !<-closed {
				t.Error("the session is not closed with all its events settled")
			}
			w.check()
			service.Stop()
			w.checkNoDeadlock(db, other)
		})
	}
}

// Two replicas settle the same events, in different batches and orders, without a
// deadlock (see TestChaos_settle_two_workers_no_deadlock).
func TestConcurrentSettlementsOfOneSession(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	replicas := []*postgres.DB{w.replica(), w.replica()}
	store := leasestore.New(replicas[0])
	var customers []*customer
	for range 10 {
		customers = append(customers, w.customer(1_000_000, 1_000_000, 5))
	}
	var sessions []wire.SessionID
	var messages [][]byte
	total := int64(0)
	for range 3 {
		s := w.session(store, "proxy")
		sessions = append(sessions, s)
		for m := range 20 {
			var events []event.Usage
			for i := range 25 {
				cost := int64((m*25 + i) % 17)
				total += cost
				events = append(events, customers[(m+i*7)%len(customers)].event(s, int64(m*25+i+1), cost))
			}
			messages = append(messages, batch(t, int64(s), events...), []byte("no batch at all"))
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
				fresh += w.settleItems(db, pair).Settled
			}
			done <- fresh
		}()
	}
	if got := <-done + <-done; got != 1500 {
		t.Errorf("%d events were settled; want 1500, each once", got)
	}
	if got := scalar[int64](w, "select sum(settled)::bigint from pools where kind = 1"); got != total {
		t.Errorf("%d charged; want %d", got, total)
	}
	for _, s := range sessions {
		if got := scalar[string](w, "select settled_seqs::text from proxy_sessions where id = $1", s); got != "{[1,501)}" {
			t.Errorf("session %d: settled %s; want {[1,501)}", s, got)
		}
	}
	w.check()
	w.checkNoDeadlock(replicas...)
}
