package accountstore_test

import (
	"testing"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/postgres/accountstore"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/shared/ident"
)

// The last use of a key is the start of its last settled request, whatever the order of settlement. When the records of that
// time are dropped, the day is still known.
func TestLastUseOfAKey(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	keys := accountstore.NewKeys(db)
	s := w.Session(leasestore.NewLeases(db), "proxy")
	c, other := w.Customer(1000, storetest.Unlimited, 9), w.Customer(1000, storetest.Unlimited, 9)
	n := int64(0)
	use := func(at time.Time) {
		t.Helper()
		n++
		e := c.Event(s, n, 0)
		e.RequestID = ident.Request.Format(ident.NewAt(at))
		if r := w.Settle(db, e); r.Settled != 1 {
			t.Fatalf("settled %+v", r)
		}
	}
	want := func(what string, of *storetest.Customer, at time.Time) {
		t.Helper()
		one, err := keys.Get(t.Context(), key.ID(of.Key))
		storetest.Check(t, err)
		list, err := keys.List(t.Context(), key.Query{AccountID: account.ID(of.Account), Limit: 10})
		storetest.Check(t, err)
		for _, k := range append(list, one) {
			if (k.LastUsedAt == nil) != at.IsZero() || (k.LastUsedAt != nil && !k.LastUsedAt.Equal(at)) {
				t.Errorf("%s: the last use is %v; want %s", what, k.LastUsedAt, at)
			}
		}
	}

	want("not used", c, time.Time{})
	now := time.Now().UTC().Truncate(time.Millisecond)
	old := time.Date(now.Year(), now.Month()-3, 15, 10, 30, 0, 0, time.UTC)
	w.Exec("select ensure_usage_partitions($1, now())", old)
	use(old)
	use(old.Add(-time.Hour))
	want("long ago", c, old)

	month := time.Date(old.Year(), old.Month(), 1, 0, 0, 0, 0, time.UTC)
	w.Exec("select close_usage_month($1)", month)
	w.Exec("update usage_months set exported_at = now(), exported_by = 'test' where month = $1", month)
	w.Exec("select drop_usage_month($1)", month)
	want("long ago, without its record", c, old.Truncate(24*time.Hour))

	use(now)
	use(now.Add(-time.Minute))
	want("now", c, now)
	want("a key that was never used", other, time.Time{})

	// An import that finds the key says it, too.
	again := key.Record{Key: key.Key{ID: key.ID(ident.New()), AccountID: account.ID(c.Account), Name: "again"}, Secret: key.Secret{Hash: c.Hash}}
	made, _, err := keys.Import(t.Context(), []key.Record{again})
	storetest.Check(t, err)
	if at := made[0].Key.LastUsedAt; at == nil || !at.Equal(now) {
		t.Errorf("imported again: the last use is %v; want %s", at, now)
	}
}
