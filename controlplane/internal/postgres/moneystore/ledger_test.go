package moneystore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/accountstore"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/apikey"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

// world is a few accounts with keys, a session with leases on their pools that
// reports usage, and the expected results.
type world struct {
	t       *testing.T
	db      *postgres.DB
	session int64

	mu       sync.Mutex
	events   int64
	accounts []worldAccount
}

type worldAccount struct {
	id      account.ID
	key     key.ID
	balance money.Nano
	limit   *money.Nano
	slots   int
	spent   money.Nano
	// promotions have not expired yet.
	promotions []ledger.ID
}

func newWorld(t *testing.T, accounts int) *world {
	t.Helper()
	db := postgres.Wrap(pgtest.New(t))
	r, err := leasestore.NewLeases(db).Register(t.Context(), &wire.RegisterRequest{V: 1, Name: "p", BootID: "b", Capacity: 10}, time.Hour)
	storetest.Check(t, err)
	w := &world{t: t, db: db, session: int64(r.Session)}
	for i := range accounts {
		a, err := accountstore.NewAccounts(db).Create(t.Context(), account.Account{
			ID: account.ID(ident.New()), Name: fmt.Sprint("account ", i), Status: account.Active, MaxConcurrentRequests: 5,
		})
		storetest.Check(t, err)
		made, err := accountstore.NewKeys(db).Create(t.Context(), []key.Record{{
			Key:    key.Key{ID: key.ID(ident.New()), AccountID: a.ID, Name: "key"},
			Secret: key.Secret{Hash: apikey.Hash{byte(i), byte(i >> 8)}},
		}})
		storetest.Check(t, err)
		w.accounts = append(w.accounts, worldAccount{id: a.ID, key: made[0].Key.ID, slots: 5})
	}
	return w
}

// step makes one random change. Steps of one account run in one goroutine, so that
// the expected results are known.
func (w *world) step(ctx context.Context, r *rand.Rand, a *worldAccount) error {
	switch r.IntN(11) {
	case 8:
		return w.promote(ctx, a, money.Nano(1+r.Int64N(int64(5*money.Unit))))
	case 9:
		return w.expire(ctx, a)
	case 0:
		return w.post(ctx, a, ledger.Payment, money.Nano(1+r.Int64N(int64(20*money.Unit))))
	case 1:
		return w.post(ctx, a, ledger.Correction, money.Nano(r.Int64N(int64(10*money.Unit))-int64(5*money.Unit))|1)
	case 2:
		return w.payBack(ctx, r, a)
	case 3:
		limit := money.Nano(r.Int64N(int64(10 * money.Unit)))
		return w.limit(ctx, a, &limit)
	case 4:
		return w.limit(ctx, a, nil)
	case 5:
		return w.resize(ctx, a, r.IntN(10))
	case 6:
		return w.lease(ctx, a, 1+r.Int64N(1000))
	default:
		return w.charge(ctx, a, money.Nano(r.Int64N(int64(money.Unit))))
	}
}

func (w *world) post(ctx context.Context, a *worldAccount, kind ledger.Kind, amount money.Nano) error {
	_, posted, err := moneystore.NewLedger(w.db).Post(ctx, ledger.Transaction{
		ID: ledger.ID(ident.New()), AccountID: a.id, Kind: kind, Amount: amount, Reference: ident.Transaction.New(), Reason: "test",
		MayOverdraw: kind != ledger.Payment,
	})
	if posted && err == nil {
		a.balance += amount
	}
	return err
}

// promote books a promotion that expires in an hour.
func (w *world) promote(ctx context.Context, a *worldAccount, amount money.Nano) error {
	booked, _, err := moneystore.NewLedger(w.db).Post(ctx, ledger.Transaction{
		ID: ledger.ID(ident.New()), AccountID: a.id, Kind: ledger.Promotion, Amount: amount, Reference: ident.Transaction.New(),
		ExpiresAt: time.Now().Add(time.Hour),
	})
	a.promotions = append(a.promotions, booked.ID)
	a.balance += amount
	return err
}

// payBack pays a part of a random credit back, used or not.
func (w *world) payBack(ctx context.Context, r *rand.Rand, a *worldAccount) error {
	credits, _, err := moneystore.NewLedger(w.db).Credits(ctx, ledger.CreditQuery{Query: ledger.Query{AccountID: a.id, Limit: 1000}})
	if err != nil || len(credits) == 0 {
		return err
	}
	c := credits[r.IntN(len(credits))]
	amount := money.Nano(1 + r.Int64N(int64(5*money.Unit)))
	_, _, err = moneystore.NewLedger(w.db).Post(ctx, ledger.Transaction{
		ID: ledger.ID(ident.New()), AccountID: a.id, Kind: ledger.Refund, Amount: -amount, Reference: ident.Transaction.New(), CreditID: c.ID,
		MayOverdraw: true,
	})
	switch fits := amount <= c.Refundable(); {
	case fits && err == nil:
		a.balance -= amount
	case fits || !errors.Is(err, ledger.ErrRefundTooLarge):
		return fmt.Errorf("paying back %s of %s, of which %s can be: %w", amount, c.Amount, c.Refundable(), err)
	}
	return nil
}

// expire lets the oldest promotion of the account that has not expired expire now. It is booked by whatever locks the balance next.
func (w *world) expire(ctx context.Context, a *worldAccount) error {
	if len(a.promotions) == 0 {
		return nil
	}
	id := a.promotions[0]
	a.promotions = a.promotions[1:]
	return expireNow(ctx, w.db, id, 0)
}

// expireNow changes when a credit expires: a time ago.
func expireNow(ctx context.Context, db *postgres.DB, id ledger.ID, ago time.Duration) error {
	return pgx.BeginFunc(ctx, db.Pool(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local session_replication_role = replica"); err != nil { // the ledger is append-only
			return err
		}
		for _, statement := range []string{
			"update ledger_transactions set expires_at = date_trunc('second', clock_timestamp() - make_interval(secs => $2)) where id = $1",
			`update pools set next_expiry = clock_timestamp() - make_interval(secs => $2)
				where kind = 1 and account_id = (select account_id from credits where transaction_id = $1 and used + refunded + expired < amount)`,
		} {
			if _, err := tx.Exec(ctx, statement, ident.UUID(id), ago.Seconds()); err != nil {
				return err
			}
		}
		return nil
	})
}

func (w *world) limit(ctx context.Context, a *worldAccount, limit *money.Nano) error {
	a.limit = limit
	_, _, err := accountstore.NewKeys(w.db).Update(ctx, a.key, func(k key.Key) (key.Update, error) {
		k.SpendLimit = limit
		return key.Update{Key: k, Announce: true}, nil
	})
	return err
}

func (w *world) resize(ctx context.Context, a *worldAccount, slots int) error {
	a.slots = slots
	_, _, err := accountstore.NewAccounts(w.db).Update(ctx, a.id, func(before account.Account) (account.Update, error) {
		before.MaxConcurrentRequests = slots
		return account.Update{Account: before, Announce: true}, nil
	})
	return err
}

// lease grants units of every pool of the account.
func (w *world) lease(ctx context.Context, a *worldAccount, units int64) error {
	return w.db.InTx(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			with taken as (
				update pools set free = free - $1 where id in (select id from pools where account_id = $2 order by id for update) returning id
			)
			insert into leases (pool_id, session_id, granted) select id, $3, $1 from taken
			on conflict (pool_id, session_id) do update set granted = leases.granted + excluded.granted`, units, ident.UUID(a.id), w.session)
		return postgres.Translate("lease", err)
	})
}

func (w *world) charge(ctx context.Context, a *worldAccount, cost money.Nano) error {
	return w.chargeFrom(ctx, a, cost, time.Now())
}

// chargeFrom settles a request that began at a time.
func (w *world) chargeFrom(ctx context.Context, a *worldAccount, cost money.Nano, began time.Time) error {
	raw, err := w.event(a, cost, began)
	if err != nil {
		return err
	}
	result, err := w.settle(ctx, raw)
	if err == nil && result.Settled != 1 {
		return fmt.Errorf("settled %+v", result)
	}
	a.spent += cost
	a.balance -= cost
	return err
}

// event returns a usage event of a request that began at a time.
func (w *world) event(a *worldAccount, cost money.Nano, began time.Time) (json.RawMessage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events++
	return json.Marshal(event.Usage{
		V: event.Version, RequestID: ident.Request.Format(ident.NewAt(began)), Session: w.session, Seq: w.events, AccountID: a.id.String(), KeyID: a.key.String(),
		Model: "m", Format: "chat", Status: event.Completed, Usage: price.Usage{Input: 1}, Rule: event.RuleReported, PriceVersion: 1, Cost: cost,
	})
}

// settle settles events in one batch.
func (w *world) settle(ctx context.Context, events ...json.RawMessage) (settle.Result, error) {
	batch, err := json.Marshal(event.Batch{V: 1, Session: w.session, Events: events})
	if err != nil {
		return settle.Result{}, err
	}
	return settle.New(moneystore.NewSettlement(w.db), nil).Settle(ctx, settle.DecodeBatch(batch))
}

// verify compares the pools with the expected results, and checks every invariant.
func (w *world) verify() {
	w.t.Helper()
	storetest.Check(w.t, moneystore.NewLedger(w.db).ExpireCredits(w.t.Context(), nil, announcesNothing))
	storetest.Check(w.t, moneystore.NewLedger(w.db).ReleaseCredits(w.t.Context()))
	report, err := moneystore.NewLedger(w.db).Check(w.t.Context(), time.Time{}, nil)
	storetest.Check(w.t, err)
	for _, c := range report.Checks {
		if c.Differing != 0 {
			w.t.Errorf("%s: %d of %d rows differ, the first is %+v", c.Name, c.Differing, c.Compared, *c.First)
		}
		if c.Compared == 0 {
			w.t.Errorf("%s compared nothing", c.Name)
		}
	}
	for i := range w.accounts {
		a := &w.accounts[i]
		var held money.Nano
		storetest.Check(w.t, w.db.Pool().QueryRow(w.t.Context(), "select expiring from pools where account_id = $1 and kind = 1", ident.UUID(a.id)).Scan(&held))
		expired := w.booked(a, ledger.Expiry, time.Unix(0, 0), time.Now().Add(time.Hour))
		want := worldAccount{id: a.id, key: a.key, balance: a.balance + expired - held, limit: a.limit, slots: a.slots, spent: a.spent}
		read, err := accountstore.NewAccounts(w.db).Get(w.t.Context(), a.id)
		storetest.Check(w.t, err)
		k, err := accountstore.NewKeys(w.db).Get(w.t.Context(), a.key)
		storetest.Check(w.t, err)
		got := worldAccount{id: a.id, key: a.key, balance: read.Balance.Balance, limit: k.SpendLimit, slots: read.MaxConcurrentRequests, spent: k.Spent}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(worldAccount{})); diff != "" {
			w.t.Errorf("account %d (-want +got):\n%s", i, diff)
		}
		var slots, limit int64
		var unlimited bool
		storetest.Check(w.t, w.db.Pool().QueryRow(w.t.Context(), "select total from pools where account_id = $1 and kind = 3", ident.UUID(a.id)).Scan(&slots))
		storetest.Check(w.t, w.db.Pool().QueryRow(w.t.Context(), "select total, unlimited from pools where key_id = $1", ident.UUID(a.key)).Scan(&limit, &unlimited))
		wantLimit := int64(0)
		if a.limit != nil {
			wantLimit = int64(*a.limit)
		}
		if slots != int64(a.slots) || limit != wantLimit || unlimited != (a.limit == nil) {
			w.t.Errorf("pools of account %d: slots %d, limit %d, unlimited %v; want %d, %d, %v", i, slots, limit, unlimited, a.slots, wantLimit, a.limit == nil)
		}
	}
}

// After any order of credits, corrections, limits, slots, leases and charges of
// several accounts at once, ledger and pools agree.
func TestLedgerAndPoolsAgree(t *testing.T) {
	t.Parallel()
	const steps = 60
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := newWorld(t, 4)
	errs := make([]error, len(w.accounts))
	var all sync.WaitGroup
	for i := range w.accounts {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for n := 0; n < steps && errs[i] == nil; n++ {
				errs[i] = w.step(context.WithoutCancel(t.Context()), r, &w.accounts[i])
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		storetest.Check(t, err)
	}
	// Every check has a row to compare.
	storetest.Check(t, w.post(t.Context(), &w.accounts[0], ledger.Payment, money.Unit))
	storetest.Check(t, w.charge(t.Context(), &w.accounts[0], 5))
	w.verify()
}

// Changes of keys and accounts are numbered without a gap, and each refers to the
// previous one.
func TestKeyChangesAreChained(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	var all sync.WaitGroup
	errs := make([]error, len(w.accounts))
	for i := range w.accounts {
		all.Go(func() {
			ctx := context.WithoutCancel(t.Context())
			for n := 0; n < 10 && errs[i] == nil; n++ {
				limit := money.Nano(n)
				errs[i] = w.limit(ctx, &w.accounts[i], &limit)
			}
			if errs[i] == nil {
				_, _, errs[i] = accountstore.NewKeys(w.db).Revoke(ctx, w.accounts[i].key)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		storetest.Check(t, err)
	}
	rows, err := w.db.Pool().Query(t.Context(), "select revision, previous_revision from key_changes order by revision")
	storetest.Check(t, err)
	chain, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([2]int64, error) {
		var link [2]int64
		return link, row.Scan(&link[0], &link[1])
	})
	storetest.Check(t, err)
	if len(chain) != 33 {
		t.Errorf("got %d changes; want 33", len(chain))
	}
	before := int64(0)
	for _, link := range chain {
		if link[1] != before {
			t.Errorf("change %d follows %d; want %d", link[0], link[1], before)
		}
		before = link[0]
	}
}

func TestSlotsReducedBelowUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := &w.accounts[0]
	storetest.Check(t, w.lease(t.Context(), a, 4))
	storetest.Check(t, w.resize(t.Context(), a, 1))
	var free int64
	storetest.Check(t, w.db.Pool().QueryRow(t.Context(), "select free from pools where kind = 3").Scan(&free))
	if free != -3 {
		t.Errorf("got %d free slots; want -3", free)
	}
}

// The schema refuses statements that would falsify the ledger.
func TestLedgerIsAppendOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	storetest.Check(t, w.post(t.Context(), &w.accounts[0], ledger.Payment, money.Unit))
	for _, sql := range []string{
		"update ledger_entries set amount = amount + 1",
		"delete from ledger_entries",
		"update ledger_transactions set reason = 'x'",
		"delete from ledger_transactions",
		"update audit_log set actor = 'x'",
		"insert into ledger_entries (transaction_id, kind, line, ledger_account, amount) select id, kind, 9, 'revenue', 1 from ledger_transactions",
		"update api_keys set revoked_at = now(); update api_keys set revoked_at = null",
	} {
		if _, err := w.db.Pool().Exec(t.Context(), sql); err == nil {
			t.Errorf("%s: was done; want an error", sql)
		}
	}
}

// A credit that would overflow the total of an account is refused, and the balance
// does not change.
func TestBalanceOverflowIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := &w.accounts[0]
	const most = 1_000_000_000 * money.Unit
	for range 9 {
		storetest.Check(t, w.post(t.Context(), a, ledger.Payment, most))
	}
	storetest.Check(t, w.charge(t.Context(), a, 5))
	for _, tt := range []struct {
		name   string
		kind   ledger.Kind
		amount money.Nano
		want   error
	}{
		{"the least too much", ledger.Payment, 1, ledger.ErrOutOfRange},
		{"what would pass the end of an int64", ledger.Payment, most, ledger.ErrOutOfRange},
		{"something taken away", ledger.Correction, -7, nil},
		{"what there is room for", ledger.Correction, 7, nil},
		{"more than that", ledger.Correction, 1, ledger.ErrOutOfRange},
	} {
		if err := w.post(t.Context(), a, tt.kind, tt.amount); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v; want %v", tt.name, err, tt.want)
		}
	}
	w.verify()
	for range 18 {
		storetest.Check(t, w.post(t.Context(), a, ledger.Correction, -most))
	}
	if err := w.post(t.Context(), a, ledger.Correction, -1); !errors.Is(err, ledger.ErrOutOfRange) {
		t.Errorf("far below zero: got %v; want ErrOutOfRange", err)
	}
	w.verify()
}
