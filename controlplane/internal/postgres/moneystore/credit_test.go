package moneystore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/platform/testkit/await"
	"modelgateway/shared/wire"
)

// credits returns the credits of an account, newest first, without what does not change.
func (w *world) credits(a *worldAccount) []ledger.Credit {
	w.t.Helper()
	found, _, err := moneystore.NewLedger(w.db).Credits(w.t.Context(), ledger.CreditQuery{Query: ledger.Query{AccountID: a.id, Limit: 100}})
	storetest.Check(w.t, err)
	return found
}

// wantCredits compares the figures of the credits, newest first.
func (w *world) wantCredits(a *worldAccount, want ...ledger.Credit) {
	w.t.Helper()
	figures := cmpopts.IgnoreFields(ledger.Credit{}, "ID", "AccountID", "Reference", "Priority", "ExpiresAt", "CreatedAt", "EndedAt", "Due")
	if diff := cmp.Diff(want, w.credits(a), figures); diff != "" {
		w.t.Errorf("credits (-want +got):\n%s", diff)
	}
}

// giveBack returns units of the account's leases.
func (w *world) giveBack(a *worldAccount, units money.Nano) {
	w.t.Helper()
	for _, statement := range []string{
		"update leases set returned = returned + $1 where pool_id = (select id from pools where account_id = $2 and kind = 1)",
		"update pools set free = free + $1 where account_id = $2 and kind = 1",
	} {
		_, err := w.db.Pool().Exec(w.t.Context(), statement, int64(units), ident.UUID(a.id))
		storetest.Check(w.t, err)
	}
}

// crowd adds accounts, in the order of their ids, each with a promotion of 10 that has expired, of which leases have some units. It
// returns their ids.
func (w *world) crowd(size, outstanding int) []ident.UUID {
	w.t.Helper()
	for _, statement := range []string{
		`create table crowd as select gen_random_uuid() as account, gen_random_uuid() as promotion, clock_timestamp() - interval '1 second' as expired
			from generate_series(1, $1::int)`,
		"insert into accounts (id, name, max_concurrent_requests, revision) select account, 'a', 1, 1 from crowd where $1 > 0",
		`insert into pools (account_id, kind, total, free, next_expiry) select account, 1, 10, 10, expired from crowd where $1 > 0`,
		`insert into ledger_transactions (id, kind, reference, expires_at) select promotion, 'promotion', promotion, expired from crowd where $1 > 0`,
		`insert into ledger_entries (transaction_id, kind, line, ledger_account, account_id, amount)
			select promotion, 'promotion', 1, 'customer', account, 10 from crowd where $1 > 0
			union all select promotion, 'promotion', 2, 'promotion', null, -10 from crowd`,
		"insert into credits (transaction_id, account_id, amount) select promotion, account, 10 from crowd where $1 > 0",
	} {
		_, err := w.db.Pool().Exec(w.t.Context(), statement, size)
		storetest.Check(w.t, err)
	}
	_, err := w.db.Pool().Exec(w.t.Context(), "update pools set free = total - $1 where account_id in (select account from crowd)", outstanding)
	storetest.Check(w.t, err)
	rows, err := w.db.Pool().Query(w.t.Context(), "select account from crowd order by account")
	storetest.Check(w.t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[ident.UUID])
	storetest.Check(w.t, err)
	return ids
}

// creditsWhere counts the credits for which a condition holds.
func (w *world) creditsWhere(condition string) (n int) {
	w.t.Helper()
	storetest.Check(w.t, w.db.Pool().QueryRow(w.t.Context(), "select count(*) from credits where "+condition).Scan(&n))
	return n
}

// refuse makes Postgres refuse changes of credits unless a condition holds.
func (w *world) refuse(unless string) {
	w.t.Helper()
	_, err := w.db.Pool().Exec(w.t.Context(), "alter table credits add constraint refused check ("+unless+") not valid")
	storetest.Check(w.t, err)
}

func announcesNothing(wire.KeyChange) {}

// One run books what has expired of all accounts, of those first that somebody waits for, although one cannot be booked.
func TestExpiryOfManyAccountsIsBookedInOneRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	ids := w.crowd(405, 0)
	w.refuse(fmt.Sprintf("expired = 0 or account_id <> '%x'", ids[0]))
	waiting := make(chan ident.UUID, 4)
	for _, id := range []ident.UUID{ids[404], ids[0], ids[404], ids[203]} {
		waiting <- id
	}
	var order []string
	err := moneystore.NewLedger(w.db).ExpireCredits(t.Context(), waiting, func(c wire.KeyChange) { order = append(order, c.Account) })
	if err == nil || strings.Contains(err.Error(), "more accounts") {
		t.Errorf("got %v; want the error of one account, once", err)
	}
	if got := w.creditsWhere("expired = 10"); got != 404 || len(order) != 404 {
		t.Fatalf("%d credits have expired, %d changes are announced; want 404", got, len(order))
	}
	if want := []string{ident.Account.Format(ids[404]), ident.Account.Format(ids[203])}; !slices.Equal(order[:2], want) {
		t.Errorf("booked first: %v; want those that are waited for, %v", order[:2], want)
	}
}

// All changes wait for the row of the revision. An account of which another replica has booked the expiry takes none.
func TestExpiryThatIsBookedTakesNoRevision(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	ctx, waiting := await.Context(t), make(chan ident.UUID, 1)
	waiting <- w.crowd(1, 0)[0]
	storetest.Check(t, moneystore.NewLedger(w.db).ExpireCredits(ctx, nil, announcesNothing))
	storetest.Check(t, pgx.BeginFunc(ctx, w.db.Pool(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select from cluster_state for update"); err != nil {
			return err
		}
		return moneystore.NewLedger(w.db).ExpireCredits(ctx, waiting, announcesNothing)
	}))
}

// However many accounts hold credits, and although the first of them cannot be booked, the holds of all others end.
func TestHoldsOfManyAccountsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	ids, store := w.crowd(205, 5), moneystore.NewLedger(w.db)
	storetest.Check(t, store.ExpireCredits(t.Context(), nil, announcesNothing))
	if got := w.creditsWhere("held = 5"); got != len(ids) {
		t.Fatalf("%d credits are held; want %d", got, len(ids))
	}
	storetest.Check(t, store.ReleaseCredits(t.Context()))
	if got := w.creditsWhere("held = 5"); got != len(ids) {
		t.Fatalf("%d credits are held while leases have them; want %d", got, len(ids))
	}
	_, err := w.db.Pool().Exec(t.Context(), "update pools set free = total")
	storetest.Check(t, err)
	w.refuse(fmt.Sprintf("held > 0 or account_id >= '%x'", ids[201]))
	if err := store.ReleaseCredits(t.Context()); err == nil || !strings.Contains(err.Error(), "and 200 more accounts") {
		t.Errorf("got %v; want the errors of 201 accounts", err)
	}
	if got := w.creditsWhere("expired = 10"); got != 4 {
		t.Errorf("%d credits are released; want those of the last 4 accounts", got)
	}
}

// Postgres is away when a credit expires. What was there at that moment is booked with that time, before anything else is charged;
// requests that began before use what is held, and what comes back expires.
func TestExpiryDuringAnOutageIsExact(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, ctx := &w.accounts[0], t.Context()
	store := moneystore.NewLedger(w.db)
	storetest.Check(t, w.post(ctx, a, ledger.Payment, 100))
	storetest.Check(t, w.promote(ctx, a, 10))
	storetest.Check(t, w.charge(ctx, a, 1))
	storetest.Check(t, w.lease(ctx, a, 6))
	w.wantCredits(a, ledger.Credit{Kind: ledger.Promotion, Amount: 10, Used: 1}, ledger.Credit{Kind: ledger.Payment, Amount: 100})

	outage := time.Now().Add(-10 * time.Minute)
	storetest.Check(t, expireNow(ctx, w.db, a.promotions[0], 10*time.Minute))
	storetest.Check(t, w.chargeFrom(ctx, a, 2, outage.Add(-time.Minute)))
	w.wantCredits(a, ledger.Credit{Kind: ledger.Promotion, Amount: 10, Used: 3, Expired: 3, Held: 4}, ledger.Credit{Kind: ledger.Payment, Amount: 100})
	storetest.Check(t, w.chargeFrom(ctx, a, 1, outage.Add(time.Minute)))
	w.wantCredits(a, ledger.Credit{Kind: ledger.Promotion, Amount: 10, Used: 3, Expired: 3, Held: 4}, ledger.Credit{Kind: ledger.Payment, Amount: 100, Used: 1})
	w.verify()

	w.giveBack(a, 2) // of 6 units 1 is outstanding then
	storetest.Check(t, store.ReleaseCredits(ctx))
	w.wantCredits(a, ledger.Credit{Kind: ledger.Promotion, Amount: 10, Used: 3, Expired: 6, Held: 1}, ledger.Credit{Kind: ledger.Payment, Amount: 100, Used: 1})
	storetest.Check(t, w.chargeFrom(ctx, a, 5, outage.Add(-time.Second))) // more than was reserved
	w.wantCredits(a, ledger.Credit{Kind: ledger.Promotion, Amount: 10, Used: 4, Expired: 6}, ledger.Credit{Kind: ledger.Payment, Amount: 100, Used: 5})
	w.verify()

	booked, err := store.List(ctx, ledger.Query{AccountID: a.id, Kind: ledger.Expiry, Limit: 10})
	storetest.Check(t, err)
	if len(booked) != 3 || booked[2].Amount != -3 || booked[1].Amount != -1 || booked[0].Amount != -2 || booked[0].CreditID != w.credits(a)[0].ID {
		t.Fatalf("booked %+v; want 3 of the promotion, then 1 and 2", booked)
	}
	if at := booked[2].EffectiveAt; !at.Equal(w.credits(a)[0].ExpiresAt) || time.Since(at) < 10*time.Minute {
		t.Errorf("the first is effective at %s; the credit expired at %s", at, w.credits(a)[0].ExpiresAt)
	}
	if at := booked[0].EffectiveAt; !at.IsZero() {
		t.Errorf("what came back later is effective at %s; want the time of booking", at)
	}
}

func TestExpiryIsBookedOnceByManyReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	for i := range w.accounts {
		storetest.Check(t, w.promote(t.Context(), &w.accounts[i], 10))
		storetest.Check(t, w.charge(t.Context(), &w.accounts[i], 3))
		storetest.Check(t, w.expire(t.Context(), &w.accounts[i]))
	}
	var all sync.WaitGroup
	errs := make([]error, 4)
	changes := make([]int, len(errs))
	for i := range errs {
		all.Go(func() {
			errs[i] = moneystore.NewLedger(w.db).ExpireCredits(context.WithoutCancel(t.Context()), nil, func(wire.KeyChange) { changes[i]++ })
		})
	}
	all.Wait()
	sum := 0
	for i := range errs {
		storetest.Check(t, errs[i])
		sum += changes[i]
	}
	if sum != len(w.accounts) {
		t.Errorf("%d changes are announced; want one for each account", sum)
	}
	for i := range w.accounts {
		w.wantCredits(&w.accounts[i], ledger.Credit{Kind: ledger.Promotion, Amount: 10, Used: 3, Expired: 7})
	}
	w.verify()
}

// A payment of the account books first what has expired, so that it does not pay with its own money what the credit has covered.
func TestBookingWaitsForAnExpiry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := &w.accounts[0]
	storetest.Check(t, w.promote(t.Context(), a, 10))
	storetest.Check(t, w.charge(t.Context(), a, 12))
	w.wantCredits(a, ledger.Credit{Kind: ledger.Promotion, Amount: 10, Used: 10})
	storetest.Check(t, w.promote(t.Context(), a, 10))
	w.wantCredits(a, ledger.Credit{Kind: ledger.Promotion, Amount: 10, Used: 2}, ledger.Credit{Kind: ledger.Promotion, Amount: 10, Used: 10})
	a.promotions = a.promotions[1:]
	storetest.Check(t, w.expire(t.Context(), a))
	storetest.Check(t, w.post(t.Context(), a, ledger.Payment, 5))
	w.wantCredits(a, ledger.Credit{Kind: ledger.Payment, Amount: 5}, ledger.Credit{Kind: ledger.Promotion, Amount: 10, Used: 2, Expired: 8},
		ledger.Credit{Kind: ledger.Promotion, Amount: 10, Used: 10})
	w.verify()
}

// The events of an account whose expiry cannot be booked stay unsettled, and are settled when it can. Those of others are settled.
func TestExpiryThatCannotBeBookedDelaysNoOtherAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	var events []json.RawMessage
	for i := range w.accounts {
		a := &w.accounts[i]
		storetest.Check(t, w.promote(t.Context(), a, 10))
		if i < 2 {
			storetest.Check(t, w.expire(t.Context(), a))
		}
		raw, err := w.event(a, 3, time.Now())
		storetest.Check(t, err)
		events = append(events, raw)
		a.spent, a.balance = 3, a.balance-3
	}
	w.refuse(fmt.Sprintf("expired = 0 or account_id <> '%x'", ident.UUID(w.accounts[0].id)))
	result, err := w.settle(t.Context(), events...)
	var left *settle.UnsettledError
	if !errors.As(err, &left) || len(left.Items) != 1 || left.Items[0].AccountID != ident.UUID(w.accounts[0].id) || result.Settled != 2 {
		t.Fatalf("settled %+v, %v; want all but the event of the first account", result, err)
	}
	if want := []event.Settled{{V: event.Version, Session: w.session, Watermark: 0, Beyond: result.Watermarks[0].Beyond}}; len(result.Watermarks[0].Beyond) != 1 || !cmp.Equal(want, result.Watermarks) {
		t.Errorf("watermarks %+v; want only two numbers beyond the first", result.Watermarks)
	}
	if result, err := w.settle(t.Context(), events[0]); !errors.As(err, &left) || result.Settled != 0 {
		t.Errorf("settled %+v, %v; want nothing of it alone", result, err)
	}
	_, err = w.db.Pool().Exec(t.Context(), "alter table credits drop constraint refused")
	storetest.Check(t, err)
	if result, err := w.settle(t.Context(), events...); err != nil || result.Settled != 1 || result.Duplicates != 2 {
		t.Errorf("settled %+v, %v; want the event that is missing", result, err)
	}
	w.verify()
}
