package postgres_test

import (
	"testing"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/recoverystore"
	"modelgateway/controlplane/internal/recovery"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/wire"
)

// A control plane that is stopped inside a transaction holds its rows until
// Postgres ends the transaction. The others decide what needs other rows.
func TestHeldRowsDelayOnlyTheRequestsThatNeedThem(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		hold func(w *leaseWorld, of *customer, s wire.SessionID) (query string, arg any)
	}{
		{"pool", func(_ *leaseWorld, of *customer, _ wire.SessionID) (string, any) {
			return "select from pools where id = $1 for no key update", of.balance
		}},
		{"session that is being closed", func(_ *leaseWorld, _ *customer, s wire.SessionID) (string, any) {
			return "select from proxy_sessions where id = $1 for update", s
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newLeaseWorld(t)
			db := w.replica()
			store, service := leasestore.New(db), w.service(db)
			held, free := w.customer(1000, unlimited, 10), w.customer(1000, unlimited, 10)
			one, other := w.session(store, "one"), w.session(store, "other")
			tx := w.begin()
			query, arg := tt.hold(w, held, one)
			w.in(tx, query, arg)
			numbers := map[*customer]int64{}
			request := func(s wire.SessionID, c *customer) <-chan wire.LeaseResponse {
				numbers[c]++
				answer := make(chan wire.LeaseResponse, 1)
				service.Request(&wire.LeaseRequest{
					V: wire.Version, Session: s, Account: c.accountID(), Number: numbers[c], Needs: [][]wire.Need{c.needs(10)},
				}, func(r wire.LeaseResponse) { answer <- r })
				return answer
			}
			for range 3 { // the first batch waits for a moment, the next ones do not
				answers := request(one, held)
				if got := <-request(other, free); got.Status != wire.Done || !got.Decisions[0].Granted {
					t.Errorf("a request whose rows are free: %+v; want a grant", got)
				}
				if got := <-answers; got.Status != wire.Unavailable {
					t.Errorf("a request whose row is held: %+v; want %s", got, wire.Unavailable)
				}
			}
			returned := make(chan wire.ReturnResponse, 1)
			service.Return(&wire.Return{
				V: wire.Version, Session: one, Account: held.accountID(), Reports: []wire.LeaseReport{{Pool: held.balance}},
			}, func(r wire.ReturnResponse) { returned <- r })
			if got := <-returned; got.Status != wire.Unavailable {
				t.Errorf("a return whose row is held: %+v; want %s", got, wire.Unavailable)
			}
			w.commit(tx)
			if got := <-request(one, held); got.Status != wire.Done || !got.Decisions[0].Granted {
				t.Errorf("a request after the rows were released: %+v; want a grant", got)
			}
			if got := w.figures(held.balance); got.Free != 990 {
				t.Errorf("pool %+v; want 10 units granted, once", got)
			}
			w.check()
		})
	}
}

// Fencing a replica ends its open transactions, on which others may wait.
func TestConnectionsOfAFencedReplicaAreClosed(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	c := w.customer(1000, unlimited, 10)
	stopped, err := postgres.Open(t.Context(), postgres.Config{URL: w.url, Name: postgres.ApplicationName("stopped")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stopped.Close)
	w.exec("insert into replicas (id) values ('stopped'), ('other')")
	tx, err := stopped.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.in(tx, "select from pools where id = $1 for no key update", c.balance)
	w.in(tx, "insert into commit_markers (replica_id, number) select id, 1 from replicas where id = 'stopped' for key share")
	if _, err := recoverystore.New(w.replica()).Checkpoint(t.Context(), recovery.Checkpoint{
		Marker: rollback.CommitMarker{Replica: "other", N: 1}, Fence: []string{"stopped"},
	}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err == nil {
		t.Error("the transaction of the fenced replica was committed")
	}
	w.exec("select from pools where id = $1 for no key update nowait", c.balance)
	if n := scalar[int](w, "select count(*) from replicas where id = 'stopped'"); n != 0 {
		t.Error("the replica is not fenced")
	}
}
