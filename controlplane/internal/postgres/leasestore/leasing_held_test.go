package leasestore_test

import (
	"slices"
	"testing"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/recovery"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/wire"
)

// A control plane that is stopped inside a transaction holds its rows until
// Postgres ends the transaction. The others decide what needs other rows.
func TestHeldRowsDelayOnlyTheRequestsThatNeedThem(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		hold func(w *leaseWorld, of *storetest.Customer, s wire.SessionID) (query string, arg any)
	}{
		{"pool", func(_ *leaseWorld, of *storetest.Customer, _ wire.SessionID) (string, any) {
			return "select from pools where id = $1 for no key update", of.Balance
		}},
		{"session that is being closed", func(_ *leaseWorld, _ *storetest.Customer, s wire.SessionID) (string, any) {
			return "select from proxy_sessions where id = $1 for update", s
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newLeaseWorld(t)
			db := w.Replica()
			store, service := leasestore.NewLeases(db), w.Service(db)
			held, free := w.Customer(1000, storetest.Unlimited, 10), w.Customer(1000, storetest.Unlimited, 10)
			one, other := w.Session(store, "one"), w.Session(store, "other")
			tx := w.Begin()
			query, arg := tt.hold(w, held, one)
			w.In(tx, query, arg)
			numbers := map[*storetest.Customer]int64{}
			request := func(s wire.SessionID, c *storetest.Customer) <-chan wire.LeaseResponse {
				numbers[c]++
				answer := make(chan wire.LeaseResponse, 1)
				service.Request(&wire.LeaseRequest{
					V: wire.Version, Session: s, BootID: map[wire.SessionID]string{one: "one", other: "other"}[s], Account: c.AccountID(), Number: numbers[c], Needs: [][]wire.Need{c.Needs(10)},
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
				V: wire.Version, Session: one, BootID: "one", Account: held.AccountID(), Reports: []wire.LeaseReport{{Pool: held.Balance}},
			}, func(r wire.ReturnResponse) { returned <- r })
			if got := <-returned; got.Status != wire.Unavailable {
				t.Errorf("a return whose row is held: %+v; want %s", got, wire.Unavailable)
			}
			w.Commit(tx)
			if got := <-request(one, held); got.Status != wire.Done || !got.Decisions[0].Granted {
				t.Errorf("a request after the rows were released: %+v; want a grant", got)
			}
			if got := w.Figures(held.Balance); got.Free != 990 {
				t.Errorf("pool %+v; want 10 units granted, once", got)
			}
			w.Check()
		})
	}
}

// Fencing a replica ends its open transactions, on which others may wait.
func TestConnectionsOfAFencedReplicaAreClosed(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	c := w.Customer(1000, storetest.Unlimited, 10)
	stopped, err := postgres.Open(t.Context(), postgres.Config{URL: w.URL, Name: postgres.ApplicationName("stopped")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stopped.Close)
	w.Exec("insert into replicas (id) values ('stopped'), ('other')")
	tx, err := stopped.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.In(tx, "select from pools where id = $1 for no key update", c.Balance)
	w.In(tx, "insert into commit_markers (replica_id, number) select id, 1 from replicas where id = 'stopped' for key share")
	if _, err := leasestore.NewRecovery(w.Replica()).Checkpoint(t.Context(), recovery.Checkpoint{
		Marker: rollback.CommitMarker{Replica: "other", N: 1}, Fence: []string{"stopped"},
	}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err == nil {
		t.Error("the transaction of the fenced replica was committed")
	}
	w.Exec("select from pools where id = $1 for no key update nowait", c.Balance)
	if n := storetest.Scalar[int](w, "select count(*) from replicas where id = 'stopped'"); n != 0 {
		t.Error("the replica is not fenced")
	}
}

// An account has used many keys with spend limits in a session. A request of one key neither waits for the rows of the
// others nor is its stored response larger for them.
func TestLeaseRequestUsesOnlyTheRowsOfItsKey(t *testing.T) {
	t.Parallel()
	const keys, batch = 640, 64
	w := newLeaseWorld(t)
	db := w.Replica()
	store, service := leasestore.NewLeases(db), w.Service(db)
	c := w.Customer(1_000_000, 1000, 5)
	s := w.Session(store, "proxy")
	w.Exec(`with k as (insert into api_keys (id, account_id, name, lookup_hash, spend_limit, revision)
			select gen_random_uuid(), $1, 'k', sha256(gen_random_uuid()::text::bytea), 1000, 1 from generate_series(1, $2::int) returning id)
		insert into pools (account_id, kind, key_id, total, free) select $1, 2, id, 1000, 1000 from k`, c.Account, keys)
	limits := storetest.Scalar[[]int64](w, "select array_agg(id order by id) from pools where account_id = $1 and kind = 2 and id <> $2", c.Account, c.Limit)
	needs := func(limit int64) []wire.Need {
		return []wire.Need{{Pool: c.Balance, Kind: wire.Balance, Amount: 10}, {Pool: wire.PoolID(limit), Kind: wire.Limit, Amount: 10}}
	}
	h := holder.NewHolder(s, "proxy", c.AccountID())
	for some := range slices.Chunk(limits, batch) {
		var waiters []*holder.Waiter
		for _, limit := range some {
			waiters = append(waiters, h.Reserve(needs(limit)))
		}
		response := storetest.Ask(service, h.NextRequest())
		h.HandleResponse(&response)
		for _, waiter := range waiters {
			if !waiter.Granted() {
				t.Fatalf("a request was refused: %+v", response)
			}
			h.Release(waiter, 1)
		}
		for ret := h.NextReturn(); ret != nil; ret = h.NextReturn() {
			h.ReturnDelivered(storetest.ReturnUnits(service, ret).Settled)
		}
	}
	others := w.Begin()
	w.In(others, "select from pools where account_id = $1 and kind = 2 and id <> $2 for no key update", c.Account, c.Limit)
	waiter := h.Reserve(needs(int64(c.Limit)))
	answer := make(chan wire.LeaseResponse, 1)
	service.Request(h.NextRequest(), func(r wire.LeaseResponse) { answer <- r })
	response := <-answer
	if h.HandleResponse(&response); !waiter.Granted() {
		t.Errorf("a request while the rows of the other keys are held: %+v; want a grant", response)
	}
	w.Commit(others)
	if size := storetest.Scalar[int](w, "select length(response) from lease_responses where account_id = $1", c.Account); size > 1000 {
		t.Errorf("the stored response has %d bytes; want it independent of the %d keys", size, keys)
	}
}
