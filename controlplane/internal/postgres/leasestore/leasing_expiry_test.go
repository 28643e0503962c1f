package leasestore_test

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/wire"
)

// statements are the SQL that a pool has sent.
type statements struct {
	mu    sync.Mutex
	texts []string
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts = append(s.texts, data.SQL)
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// count counts the statements with a query.
func (s *statements) count(query string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range s.texts {
		if strings.Contains(text, query) {
			n++
		}
	}
	return n
}

// traced returns the database with the SQL that is sent to it.
func (w *leaseWorld) traced() (*postgres.DB, *statements) {
	w.T.Helper()
	cfg, err := pgxpool.ParseConfig(w.URL)
	if err != nil {
		w.T.Fatal(err)
	}
	sent := &statements{}
	cfg.ConnConfig.Tracer = sent
	pool, err := pgxpool.NewWithConfig(w.T.Context(), cfg)
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(pool.Close)
	return postgres.Wrap(pool), sent
}

// expirePromotion gives an account a promotion that has expired, and is not booked as such.
func (w *leaseWorld) expirePromotion(c *storetest.Customer) {
	w.T.Helper()
	promotion := ident.New()
	w.Exec(`insert into ledger_transactions (id, kind, reference, expires_at) values ($1, 'promotion', 'p', clock_timestamp())`, promotion)
	w.Exec(`insert into ledger_entries (transaction_id, kind, line, ledger_account, account_id, amount)
		values ($1, 'promotion', 1, 'customer', $2, 500), ($1, 'promotion', 2, 'promotion', null, -500)`, promotion, c.Account)
	w.Exec("insert into credits (transaction_id, account_id, amount) values ($1, $2, 500)", promotion, c.Account)
	w.Exec("update pools set total = total + 500, free = free + 500, next_expiry = clock_timestamp() where id = $1", c.Balance)
}

// A batch leaves out the balances of which a credit has expired, and says whose they are. All else of it is decided as usual: it
// waits for rows that others hold for a moment.
func TestBatchWithAnExpiryWaitsForOtherRows(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db, sent := w.traced()
	store := leasestore.NewLeases(db)
	expiring, other := w.Customer(1000, storetest.Unlimited, 10), w.Customer(1000, storetest.Unlimited, 10)
	s := w.Session(store, "proxy")
	w.expirePromotion(expiring)
	var requests []*wire.LeaseRequest
	for _, c := range []*storetest.Customer{expiring, other} {
		requests = append(requests, &wire.LeaseRequest{
			V: wire.Version, Session: s, BootID: "proxy", Account: c.AccountID(), Number: 1, Needs: [][]wire.Need{c.Needs(10)},
		})
	}
	for range 2 {
		var locked map[wire.PoolID]bool
		err := store.Batch(t.Context(), requests, nil, func(b *allocator.Batch) { locked = b.LockedPools })
		if want := map[wire.PoolID]bool{expiring.Balance: true}; err != nil || !maps.Equal(locked, want) {
			t.Errorf("left out: %v, %v; want %v", locked, err, want)
		}
		select {
		case got := <-store.Waiting():
			if got != expiring.Account {
				t.Errorf("%v waits; want %v", got, expiring.Account)
			}
		default:
			t.Error("nobody waits for the expiry")
		}
	}
	if waiting, at := sent.count("-- name: LockPools "), sent.count("-- name: LockFreePools "); waiting != 2 || at != 0 {
		t.Errorf("pools were locked %d times with and %d times without waiting; want 2 and 0", waiting, at)
	}
}

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

	w.expirePromotion(expiring)
	for range 2 {
		if got := request(expiring); got.Status != wire.Unavailable {
			t.Errorf("after the expiry: %+v; want %s", got, wire.Unavailable)
		}
		if got := request(other); got.Status != wire.Done || !got.Decisions[0].Granted {
			t.Errorf("another account: %+v; want a grant", got)
		}
	}

	var changes []wire.KeyChange
	err := moneystore.NewLedger(db).ExpireCredits(t.Context(), nil, func(c wire.KeyChange) { changes = append(changes, c) })
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
