package usagestore_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/postgres/usagestore"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/ident"
)

// anotherKey returns the customer with another key of its account.
func (w *leaseWorld) anotherKey(c *storetest.Customer) *storetest.Customer {
	w.T.Helper()
	other := *c
	other.Key = ident.New()
	w.Exec("insert into api_keys (id, account_id, name, lookup_hash, revision) values ($1, $2, 'further', $3, 1)", other.Key, other.Account, append(other.Key[:], other.Account[:]...))
	w.Exec("insert into pools (account_id, kind, key_id, unlimited) values ($1, 2, $2, true)", other.Account, other.Key)
	return &other
}

// The pages of lists and exports contain exactly the records that match the query, in
// order, for any number of keys of an account.
func TestListsHoldMatchingRecords(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	w := newLeaseWorld(t)
	db := w.Replica()
	first, second := w.Customer(1000, storetest.Unlimited, 5), w.Customer(1000, storetest.Unlimited, 5)
	customers := []*storetest.Customer{first, w.anotherKey(first), w.anotherKey(first), second}
	records := w.settleRandomUsage(r, db, customers)
	service := usage.NewService(usagestore.NewUsage(db))
	for range 100 {
		q := randomQuery(r, customers)
		q.Zone = nil // lists take times, not days of a zone
		var want []usage.RequestID
		for i := range records {
			if records[i].matches(&q) {
				id, _ := ident.Request.Parse(records[i].RequestID)
				want = append(want, usage.RequestID(id))
			}
		}
		slices.SortFunc(want, func(a, b usage.RequestID) int { return bytes.Compare(a[:], b[:]) })
		if diff := cmp.Diff(want, exported(t, service, &q)); diff != "" {
			t.Errorf("export %+v (-want +got):\n%s", q, diff)
		}
		slices.Reverse(want)
		if diff := cmp.Diff(want, listed(t, service, &q)); diff != "" {
			t.Errorf("list %+v (-want +got):\n%s", q, diff)
		}
	}
}

func listed(t *testing.T, service *usage.Service, q *usage.TotalQuery) (found []usage.RequestID) {
	t.Helper()
	query := usage.Query{AccountID: q.AccountID, KeyID: q.KeyID, Model: q.Model, From: q.From, To: q.To, Limit: q.Limit}
	for {
		page, err := service.List(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Records {
			found = append(found, page.Records[i].RequestID)
		}
		if len(page.Records) < q.Limit {
			return found
		}
		query.Before = found[len(found)-1]
	}
}

func exported(t *testing.T, service *usage.Service, q *usage.TotalQuery) (found []usage.RequestID) {
	t.Helper()
	query := usage.Query{AccountID: q.AccountID, KeyID: q.KeyID, Model: q.Model, From: q.From, To: q.To, Limit: q.Limit}
	for {
		page, err := service.Export(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page {
			found = append(found, page[i].RequestID)
		}
		if len(page) < q.Limit {
			return found
		}
		query.After = found[len(found)-1]
	}
}

// matches reports whether the record matches a query.
func (u *used) matches(q *usage.TotalQuery) bool {
	of, _ := ident.Account.Parse(u.AccountID)
	by, _ := ident.Key.Parse(u.KeyID)
	return (q.AccountID == account.ID{} || q.AccountID == account.ID(of)) && (q.KeyID == key.ID{} || q.KeyID == key.ID(by)) &&
		(q.Model == "" || q.Model == u.Model) && (q.From.IsZero() || !u.day(q).Before(q.From)) && (q.To.IsZero() || u.day(q).Before(q.To))
}
