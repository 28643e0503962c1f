package leasestore_test

import (
	"testing"

	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/limit"
	"modelgateway/shared/wire"
)

// limit inserts a limit for ever of an account or, with a key, of that.
func (w *leaseWorld) limit(c *storetest.Customer, key *ident.UUID, number, revision int64) {
	w.T.Helper()
	w.Exec(`insert into limits (number, id, account_id, key_id, amount, period, revision) values ($1, $2, $3, $4, 1000, 'forever', $5)`,
		number, ident.New(), c.Account, key, revision)
}

// A proxy that does not know a key takes its record from the bucket while no control plane responds. Without the limit in it, a request
// would be charged to no window.
func TestChangeOfALimitIsOneOfTheRecordsOfItsKeys(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	store := leasestore.NewLeases(w.Replica())
	a, b := w.Customer(100, storetest.Unlimited, 5), w.Customer(100, storetest.Unlimited, 5)
	w.Customer(100, storetest.Unlimited, 5)
	const since = 1 << 40
	changed := func(since int64) int {
		t.Helper()
		page, err := store.Keys(t.Context(), since, ident.UUID{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		return page.Keys
	}
	w.limit(a, nil, 1, since+1)
	if n := changed(since); n != 1 {
		t.Errorf("a limit of an account: %d keys have changed; want 1", n)
	}
	w.limit(b, &b.Key, 2, since+2)
	if n := changed(since); n != 2 {
		t.Errorf("and one of a key: %d keys have changed; want 2", n)
	}
	w.Exec("update limits set removed_at = now(), revision = $1 where number = 1", since+3)
	if n := changed(since + 2); n != 1 {
		t.Errorf("a limit was removed: %d keys have changed; want 1", n)
	}
}

// Only the keys that are in a project have other records when a limit of it changes, and a key has one when it moves. A record names the
// project, and has its limits.
func TestChangeOfALimitOfAProjectIsOneOfTheRecordsOfItsKeys(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	store := leasestore.NewLeases(w.Replica())
	c, project := w.Customer(100, storetest.Unlimited, 5), ident.New()
	const since = 1 << 40
	w.Exec("insert into projects (id, account_id, name, revision) values ($1, $2, 'project', $3)", project, c.Account, since+1)
	w.limit(c, nil, 1, since+1)
	w.Exec("update limits set project_id = $1", project)
	changed := func() int {
		t.Helper()
		page, err := store.Keys(t.Context(), since, ident.UUID{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		return page.Keys
	}
	if n := changed(); n != 0 {
		t.Errorf("a limit of a project without keys: %d keys have changed; want none", n)
	}
	w.Exec("update api_keys set project_id = $1 where id = $2", project, c.Key)
	if n := changed(); n != 1 {
		t.Errorf("a limit of the project of a key: %d keys have changed; want 1", n)
	}
	entries, err := store.KeyEntries(t.Context(), []apikey.Hash{c.Hash})
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	if r := entries[0].Record; r.ProjectID != ident.Project.Format(project) || len(r.Limits) != 1 || r.Limits[0].Scope != limit.Project {
		t.Errorf("the record is %+v; want that of a key in a project with a limit", r)
	}
}

// A control plane that is stopped while it changes a limit delays the requests that need a new window of the limit, and no others of
// their batch.
func TestLockedLimitDelaysNoOtherAccounts(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	store := leasestore.NewLeases(w.Replica())
	limited, other := w.Customer(100, storetest.Unlimited, 5), w.Customer(100, storetest.Unlimited, 5)
	w.limit(limited, nil, 7, 1)
	s := w.Session(store, "proxy")
	window := wire.Need{Pool: wire.PoolID(limit.Pool(7, 0)), Kind: wire.Limit, Amount: 10}
	ask := func(boot *storetest.Customer, needs []wire.Need) *wire.LeaseRequest {
		h := holder.NewHolder(s, "proxy", boot.AccountID())
		h.Reserve(needs)
		return h.NextRequest()
	}
	first, second := ask(limited, append(limited.Needs(10), window)), ask(other, other.Needs(10))
	batch := func() (statuses [2]wire.Status) {
		t.Helper()
		err := store.Batch(t.Context(), []*wire.LeaseRequest{first, second}, nil, func(b *allocator.Batch) {
			for i, r := range []*wire.LeaseRequest{first, second} {
				response, _ := b.Decide(r, &allocator.PendingRequest{}, func(*allocator.Batch) {})
				statuses[i] = response.Status
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return statuses
	}

	change := w.Begin()
	w.In(change, "select from limits where number = 7 for update")
	for range 2 { // the second batch knows of the lock
		if got := batch(); got != [2]wire.Status{wire.Unavailable, wire.Done} {
			t.Errorf("while the limit is locked: got %v", got)
		}
	}
	w.Commit(change)
	if got := batch(); got != [2]wire.Status{wire.Done, wire.Done} {
		t.Errorf("afterwards: got %v", got)
	}
	if got := batch(); got != [2]wire.Status{wire.Done, wire.Done} {
		t.Errorf("repeated: got %v", got)
	}
}
