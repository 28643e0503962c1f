package leasestore_test

import (
	"testing"

	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/shared/ident"
	"modelgateway/shared/wire"
)

// From the moment at which a credit expires, nothing of it is granted: first its expiry is booked, then others decide. Accounts
// without one are served meanwhile.
func TestNothingIsGrantedOfAnExpiredCredit(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	store, service := leasestore.NewLeases(db), w.Service(db)
	expiring, other := w.Customer(1000, storetest.Unlimited, 10), w.Customer(1000, storetest.Unlimited, 10)
	s := w.Session(store, "proxy")
	numbers := map[*storetest.Customer]int64{}
	request := func(c *storetest.Customer) wire.LeaseResponse {
		numbers[c]++
		answer := make(chan wire.LeaseResponse, 1)
		service.Request(&wire.LeaseRequest{
			V: wire.Version, Session: s, BootID: "proxy", Account: c.AccountID(), Number: numbers[c], Needs: [][]wire.Need{c.Needs(10)},
		}, func(r wire.LeaseResponse) { answer <- r })
		return <-answer
	}
	if got := request(expiring); got.Status != wire.Done || !got.Decisions[0].Granted {
		t.Fatalf("before the expiry: %+v; want a grant", got)
	}

	promotion := ident.New()
	w.Exec(`insert into ledger_transactions (id, kind, reference, expires_at) values ($1, 'promotion', 'p', clock_timestamp())`, promotion)
	w.Exec(`insert into ledger_entries (transaction_id, kind, line, ledger_account, account_id, amount)
		values ($1, 'promotion', 1, 'customer', $2, 500), ($1, 'promotion', 2, 'promotion', null, -500)`, promotion, expiring.Account)
	w.Exec("insert into credits (transaction_id, account_id, amount) values ($1, $2, 500)", promotion, expiring.Account)
	w.Exec("update pools set total = total + 500, free = free + 500, next_expiry = clock_timestamp() where id = $1", expiring.Balance)
	for range 2 { // the first batch finds it out, the next one knows
		if got := request(expiring); got.Status != wire.Unavailable {
			t.Errorf("after the expiry: %+v; want %s", got, wire.Unavailable)
		}
		if got := request(other); got.Status != wire.Done || !got.Decisions[0].Granted {
			t.Errorf("another account: %+v; want a grant", got)
		}
	}

	changes, err := moneystore.NewLedger(db).ExpireCredits(t.Context())
	if err != nil || len(changes) != 1 || changes[0].Kind != wire.AccountUpdated || changes[0].Account != expiring.AccountID() {
		t.Fatalf("got %+v, %v; want the change of the account", changes, err)
	}
	if got := request(expiring); got.Status != wire.Done || !got.Decisions[0].Granted {
		t.Errorf("after the expiry is booked: %+v; want a grant", got)
	}
	if got := w.Figures(expiring.Balance); got.Total != 1000 {
		t.Errorf("pool %+v; want the promotion gone from it", got)
	}
	if got := storetest.Scalar[int64](w.World, "select -sum(amount) from ledger_entries where account_id = $1 and kind = $2", expiring.Account, string(ledger.Expiry)); got < 400 {
		t.Errorf("%d of 500 have expired; want all but what the lease may need", got)
	}
	w.Check()
}
