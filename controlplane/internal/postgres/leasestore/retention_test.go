package leasestore_test

import (
	"testing"

	"modelgateway/controlplane/internal/leasing"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/wire"
)

func (w *leaseWorld) remove(db *postgres.DB) {
	w.T.Helper()
	if _, err := leasestore.NewLeases(db).DeleteOld(w.T.Context(), leasing.SessionRetention, leasing.KeyChangeRetention); err != nil {
		w.T.Fatal(err)
	}
}

// Leases and lease responses of a closed session are deleted, those of an open one
// are kept. Messages of the closed session get the same responses, even after its
// row is deleted.
func TestClosedSessionsAreDeleted(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	store, service := leasestore.NewLeases(db), w.Service(db)
	c := w.Customer(1000, 500, 5)
	var sessions [2]wire.SessionID
	var holders [2]*holder.Holder
	for i, name := range []string{"open", "closed"} {
		sessions[i] = w.Session(store, name)
		holders[i] = holder.NewHolder(sessions[i], name, c.AccountID())
		holders[i].Reserve(c.Needs(40))
		reply := storetest.Ask(service, holders[i].NextRequest())
		holders[i].HandleResponse(&reply)
	}
	open, over := sessions[0], sessions[1]
	first := c.Event(over, 1, 30)
	w.SettleItems(db, settle.DecodeBatch(storetest.Batch(t, int64(over), first)))
	w.Expire(over, 3600)
	if _, _, err := w.Sweep(store, true); err != nil { // fenced
		t.Fatal(err)
	}
	if _, _, err := w.Sweep(store, true); err != nil { // and closed, with what it had running
		t.Fatal(err)
	}
	rows := func(table string, s wire.SessionID) int {
		return storetest.Scalar[int](w, "select count(*) from "+table+" where session_id = $1", s)
	}
	if rows("leases", over) == 0 || rows("lease_responses", over) == 0 {
		t.Fatal("the session has no rows to remove")
	}
	kept := rows("leases", open)
	w.remove(db)
	if l, o := rows("leases", over), rows("lease_responses", over); l+o != 0 {
		t.Errorf("%d leases and %d lease responses remain", l, o)
	}
	if l, o := rows("leases", open), rows("lease_responses", open); l != kept || o != 1 {
		t.Errorf("the open session has %d leases and %d lease responses; want %d and 1", l, o, kept)
	}
	w.Check()
	if n := storetest.Scalar[int](w, "select count(*) from proxy_sessions where id = $1", over); n != 1 {
		t.Fatal("the session was deleted at once")
	}

	// With the row of the session, and without.
	for i, n := range []int64{2, 3} {
		late := w.SettleItems(db, settle.DecodeBatch(storetest.Batch(t, int64(over), c.Event(over, n, 10), first)))
		if late.Settled != 1 || late.Duplicates != 1 {
			t.Errorf("late events: got %+v; want one settled and one repeated", late)
		}
		holders[1].HandleRecall(c.Balance, 99)
		if ret := holders[1].NextReturn(); ret != nil {
			if got := storetest.ReturnUnits(service, ret).Status; got != wire.Fenced {
				t.Errorf("return: got %s; want %s", got, wire.Fenced)
			}
		}
		w.CloseSession(store, over, "closed", 5, true)
		w.Check()
		if got, want := w.Figures(c.Balance).Late, int64(10*(i+1)); got != want {
			t.Errorf("%d charged late; want %d", got, want)
		}
		w.Exec("update proxy_sessions set valid_until = clock_timestamp() - interval '61 days' where id = $1", over)
		w.remove(db)
	}
	if n := storetest.Scalar[int](w, "select count(*) from proxy_sessions"); n != 1 {
		t.Errorf("%d sessions are left; want 1", n)
	}
}

// A change is deleted when it is old and every active session has applied it. The
// newest change and all revocations are kept.
func TestKeyChangesAreKeptUntilApplied(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	c := w.Customer(1000, storetest.Unlimited, 5)
	s := w.Session(leasestore.NewLeases(db), "proxy")
	insert := func(rev int64, kind, age string) {
		w.Exec("insert into key_changes (revision, previous_revision, kind, key_id, account_id, created_at) values ($1::bigint, $1::bigint - 1, $2, $3, $4, clock_timestamp() - $5::text::interval)",
			rev, kind, c.Key, c.Account, age)
	}
	insert(11, "key_updated", "2 days")
	insert(12, "key_revoked", "2 days")
	insert(13, "key_updated", "1 hour")
	insert(14, "account_updated", "2 days")
	insert(15, "key_updated", "2 days")
	left := func() string {
		return storetest.Scalar[string](w, "select string_agg(revision::text, ' ' order by revision) from key_changes")
	}
	w.Exec("update proxy_sessions set applied_revision = 13 where id = $1", s)
	w.remove(db)
	if got, want := left(), "12 13 14 15"; got != want {
		t.Errorf("left are %s; want %s", got, want)
	}
	w.Exec("update proxy_sessions set state = 2, applied_revision = 0 where id = $1", s) // it renews no more
	w.remove(db)
	if got, want := left(), "12 13 15"; got != want {
		t.Errorf("left are %s; want %s", got, want)
	}
}
