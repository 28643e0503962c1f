package moneystore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// expiryBatch is how many accounts ExpireCredits and ReleaseCredits read at once.
const expiryBatch = 200

// errNothingExpired ends a transaction that has found nothing to book.
var errNothingExpired = errors.New("no credit has expired")

// errExpiryDue is returned for a balance of which a credit has expired: nothing is granted or charged before that is booked.
var errExpiryDue = errors.New("a credit has expired and is not booked yet")

// ExpireCredits implements ledger.Store. From the moment at which a credit expires until that is booked, nothing is granted of the
// balance and nothing is charged to it (errExpiryDue), so that what is booked later is what was there at that moment.
func (s *Ledger) ExpireCredits(ctx context.Context, waiting <-chan ident.UUID, booked func(wire.KeyChange)) error {
	run := expiryRun{
		ctx:    ctx,
		db:     s.db,
		booked: booked,
		failed: map[ident.UUID]bool{},
	}
	var arg sqlcgen.AccountsWithExpiryParams
	arg.RowLimit = expiryBatch
	for {
		run.expireWaiting(waiting)
		due, err := s.db.Queries().AccountsWithExpiry(ctx, arg)
		if err != nil || len(due) == 0 {
			return run.failures.with(postgres.Translate("find expired credits", err))
		}

		last := due[len(due)-1]
		arg.AfterTime, arg.AfterAccount = last.ExpiredAt, last.AccountID
		// All replicas read the same accounts: in different orders, each books a part of them.
		rand.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
		for i := range due {
			run.expireWaiting(waiting)
			run.expire(due[i].AccountID)
		}
	}
}

// expiryRun books what has expired of many accounts. An error with one does not stop the others.
type expiryRun struct {
	ctx    context.Context
	db     *postgres.DB
	booked func(wire.KeyChange)
	// failed are the accounts with an error. They are not tried again in this run, however often somebody waits for them.
	failed map[ident.UUID]bool
	failures
}

func (r *expiryRun) expire(id ident.UUID) {
	if r.failed[id] {
		return
	}
	change, err := expireCredits(r.ctx, r.db, id)
	if err != nil {
		r.failed[id] = true
		r.add(err)
	}
	if change != nil {
		r.booked(*change)
	}
}

// expireWaiting books what has expired of the accounts that somebody waits for.
func (r *expiryRun) expireWaiting(waiting <-chan ident.UUID) {
	for range len(waiting) {
		select {
		case id := <-waiting:
			r.expire(id)
		default:
			return
		}
	}
}

// ReleaseCredits implements ledger.Store. An account with an error is passed over until the next call.
func (s *Ledger) ReleaseCredits(ctx context.Context) error {
	var failed failures
	arg := sqlcgen.AccountsToReleaseParams{HoldSeconds: ledger.HoldFor.Seconds(), RowLimit: expiryBatch}
	for {
		held, err := s.db.Queries().AccountsToRelease(ctx, arg)
		if err != nil || len(held) == 0 {
			return failed.with(postgres.Translate("find credits that are held", err))
		}
		for _, id := range held {
			if err := s.release(ctx, id); err != nil {
				failed.add(err)
			}
		}
		arg.After = held[len(held)-1]
	}
}

// failures are the errors of a run over accounts, which does not end with the first of them.
type failures struct {
	first error
	more  int
}

func (f *failures) add(err error) {
	if f.first != nil {
		f.more++
		return
	}
	f.first = err
}

// with returns the errors and the one that has ended the run; nil if there is none.
func (f *failures) with(last error) error {
	if f.more > 0 {
		return errors.Join(fmt.Errorf("%w, and %d more accounts", f.first, f.more), last)
	}
	return errors.Join(f.first, last)
}

// expireCredits books the credits of an account that are due, if there are any, and lowers its balance by what was left of them.
func expireCredits(ctx context.Context, db *postgres.DB, id ident.UUID) (change *wire.KeyChange, err error) {
	err = db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		// All changes wait for the revision: it is not taken if another replica has been faster.
		if due, err := q.ExpiryDue(ctx, id); err != nil {
			return postgres.NotFoundAs("read balance", err, account.ErrNotFound)
		} else if !due {
			return errNothingExpired
		}

		rev, err := q.TakeRevision(ctx) // before anything else is locked
		if err != nil {
			return fmt.Errorf("take revision: %w", err)
		}

		row, credits, err := lockCredits(ctx, q, id)
		if err != nil {
			return err
		}
		if !row.ExpiryDue {
			return errNothingExpired
		}

		expired, withdrawn := credits.Expire(outstanding(row), time.Now())
		pool, err := leasestore.ResizePool(ctx, q, row, func(p *allocator.Pool) { p.Adjust(-int64(withdrawn)) })
		if err != nil {
			return err
		}
		if err := credits.save(ctx, q); err != nil {
			return err
		}
		if err := bookExpired(ctx, q, pool, expired); err != nil {
			return err
		}
		if withdrawn == 0 {
			return nil
		}

		c, err := changestore.InsertKeyChange(ctx, q, rev, wire.AccountUpdated, id, nil)
		change = &c
		return err
	})
	if errors.Is(err, errNothingExpired) { // another replica was faster
		return nil, nil //nolint:nilnil // there is no change to announce
	}
	return change, postgres.Translate("expire credits of "+account.ID(id).String(), err)
}

// release ends the hold of expired credits of an account, as far as the requests that had begun before have ended.
func (s *Ledger) release(ctx context.Context, id ident.UUID) error {
	err := s.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		row, credits, err := lockCredits(ctx, q, id)
		if err != nil {
			return err
		}

		now, err := q.Now(ctx)
		if err != nil {
			return fmt.Errorf("read the time: %w", err)
		}
		expired := credits.Release(outstanding(row), now)
		if len(expired) == 0 {
			return errNothingExpired
		}
		if err := credits.save(ctx, q); err != nil {
			return err
		}

		pool, err := leasestore.ResizePool(ctx, q, row, func(*allocator.Pool) {})
		if err != nil {
			return err
		}
		return bookExpired(ctx, q, pool, expired)
	})
	if errors.Is(err, errNothingExpired) {
		return nil
	}
	return postgres.Translate("release credits of "+account.ID(id).String(), err)
}

// lockCredits locks the balance pool of an account, and reads its open credits with all charges attributed.
func lockCredits(ctx context.Context, q *sqlcgen.Queries, id ident.UUID) (*sqlcgen.LockPoolsRow, *heldCredits, error) {
	row, err := q.LockAccountPool(ctx, sqlcgen.LockAccountPoolParams{AccountID: id, Kind: int16(wire.Balance)})
	if err != nil {
		return nil, nil, postgres.NotFoundAs("lock balance", err, account.ErrNotFound)
	}
	pool := (*sqlcgen.LockPoolsRow)(&row)
	credits, err := loadCredits(ctx, q, pool)
	if err != nil {
		return nil, nil, err
	}
	credits.Advance(money.Nano(row.Settled))
	return pool, credits, nil
}

// outstanding returns what the leases of a pool hold.
func outstanding(row *sqlcgen.LockPoolsRow) money.Nano {
	return money.Nano(row.Total - row.Free - row.Settled)
}

// bookExpired writes a ledger transaction for each part of a credit that has expired.
func bookExpired(ctx context.Context, q *sqlcgen.Queries, pool *leasestore.AlarmPool, expired []ledger.ExpiredPart) error {
	for _, part := range expired {
		id := ledger.ID(ident.New())
		t := &ledger.Transaction{
			ID:          id,
			AccountID:   part.Credit.AccountID,
			Kind:        ledger.Expiry,
			Amount:      -part.Amount,
			Reference:   id.String(),
			CreditID:    part.Credit.ID,
			EffectiveAt: part.At,
		}
		if _, err := insertTransaction(ctx, q, t, nil); err != nil {
			return fmt.Errorf("insert transaction: %w", err)
		}
		if err := insertEvents(ctx, q, t, pool); err != nil {
			return err
		}
		if err := insertEntries(ctx, q, t, part.Credit.Kind); err != nil {
			return err
		}
	}
	return leasestore.UpdateAlarms(ctx, q, *pool)
}
