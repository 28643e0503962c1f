package moneystore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/postgres/windowstore"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/settlement"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// Settlement settles batches of usage events.
type Settlement struct{ db *postgres.DB }

// NewSettlement returns a store that uses db.
func NewSettlement(db *postgres.DB) *Settlement { return &Settlement{db} }

var _ settle.Store = (*Settlement)(nil)

// RequestTimes implements settle.Store. It creates the coming partitions first.
func (s *Settlement) RequestTimes(ctx context.Context) (from, to, now time.Time, err error) {
	row, err := s.db.Queries().UsageSpan(ctx)
	if err == nil && row.Highest.Time().Sub(row.Now) < 32*24*time.Hour {
		if _, err = s.db.Queries().EnsureUsagePartitions(ctx); err == nil {
			row, err = s.db.Queries().UsageSpan(ctx)
		}
	}
	return row.Lowest.Time(), row.Highest.Time(), row.Now, postgres.Translate("read span of usage partitions", err)
}

func (s *Settlement) Settle(ctx context.Context, items []settle.Item) (settle.Result, error) {
	if slices.ContainsFunc(items, func(i settle.Item) bool { return i.Event != nil && len(i.Event.Limits) > 0 }) {
		if err := s.restoreWindows(ctx, items); err != nil {
			return settle.Result{}, translate("restore windows", err)
		}
	}

	var left *settle.UnsettledError
	checkAll := false
	result, err := s.attempt(ctx, items, checkAll)
	for again := 1; again < settleAttempts; again++ {
		var due *expiryDueError
		switch {
		case isRepeated(err):
			// Another replica has just settled the same events, or the session was lost with its settled numbers.
			checkAll = true
		case errors.As(err, &due):
			if items, left = due.expire(ctx, s.db, items, left); len(items) == 0 {
				return settle.Result{}, left
			}
		default:
			again = settleAttempts
			continue
		}
		result, err = s.attempt(ctx, items, checkAll)
	}
	if err == nil && left != nil {
		return result, left
	}
	return result, translate("settle usage", err)
}

// translate is postgres.Translate. An error that the content of the rows has caused is an ErrUnstorable.
func translate(operation string, err error) error {
	content := refusesContent(err)
	if err = postgres.Translate(operation, err); content {
		err = fmt.Errorf("%w: %w", settle.ErrUnstorable, err)
	}
	return err
}

// settleAttempts bounds the attempts that fail because another replica settles the
// same events; then the events are delivered again.
const settleAttempts = 5

// restoreWindows makes the windows again that events name and that Postgres has lost, before the transaction that charges them. The
// time of a request is that of its id, which was checked, and of a window that of the first of its requests.
func (s *Settlement) restoreWindows(ctx context.Context, items []settle.Item) error {
	started, always := map[int64]int64{}, map[int64]bool{}
	for i := range items {
		if items[i].Event == nil || items[i].QuarantineReason != "" {
			continue
		}
		at := items[i].RequestID.Time().UnixMilli()
		for _, pool := range items[i].Event.Limits {
			if first, found := started[pool]; !found || at < first {
				started[pool] = at
			}
			always[pool] = always[pool] || items[i].Reviewed
		}
	}
	return s.db.InTx(ctx, func(tx pgx.Tx) error { return windowstore.Restore(ctx, sqlcgen.New(tx), started, always) })
}

func (s *Settlement) attempt(ctx context.Context, items []settle.Item, checkAll bool) (result settle.Result, err error) {
	err = s.db.InTx(ctx, func(tx pgx.Tx) error {
		t := settleTx{
			ctx:               ctx,
			tx:                tx,
			q:                 sqlcgen.New(tx),
			items:             items,
			quarantineReasons: map[int]string{},
			checkAll:          checkAll,
		}
		result, err = t.run()
		return err
	})
	return result, err
}

// isRepeated reports whether a request that seemed new has been settled.
func isRepeated(err error) bool {
	return postgres.IsDuplicateIn(err, "usage_records")
}

// refusesContent reports whether Postgres refused the content of the rows. It returns
// false if another replica has settled one of the requests meanwhile.
func refusesContent(err error) bool {
	return errors.Is(err, errSums) || postgres.IsDataError(err) && !isRepeated(err)
}

// settleTx is the transaction that settles a batch.
type settleTx struct {
	ctx   context.Context
	tx    pgx.Tx
	q     *sqlcgen.Queries
	items []settle.Item
	// quarantineReasons are the reasons why items go into quarantine, by index.
	quarantineReasons map[int]string
	// checkAll looks up the usage record of every event, also of those whose sequence numbers are not settled.
	checkAll bool
	// fingerprints are those of the usage records that were found, by request id.
	fingerprints map[[16]byte][32]byte
	*settlement.Batch
}

func (t *settleTx) run() (settle.Result, error) {
	if err := t.findPools(); err != nil {
		return settle.Result{}, err
	}

	fresh, err := t.insert()
	if err != nil {
		return settle.Result{}, err
	}

	t.detectConflicts()
	if err := t.charge(fresh); err != nil {
		return settle.Result{}, err
	}
	if err := t.quarantine(); err != nil {
		return settle.Result{}, err
	}

	marks, err := t.addSettledSeqs()
	result := settle.Result{
		Quarantined: len(t.quarantineReasons),
		Duplicates:  len(t.items) - len(fresh) - len(t.quarantineReasons),
		Watermarks:  marks,
	}

	for _, i := range fresh {
		result.Settle(&t.items[i])
	}

	return result, err
}

// findPools reads the pools that the events charge. An event goes into quarantine
// if its key does not exist or belongs to another account.
func (t *settleTx) findPools() error {
	pools := map[ident.UUID]*sqlcgen.PoolsOfEventsRow{}
	for i := range t.items {
		if t.items[i].QuarantineReason == "" {
			pools[t.items[i].KeyID] = nil
		}
	}

	rows, err := t.q.PoolsOfEvents(t.ctx, slices.Collect(maps.Keys(pools)))
	if err != nil {
		return fmt.Errorf("find pools: %w", err)
	}

	for i := range rows {
		pools[rows[i].KeyID] = &rows[i]
	}

	owners, err := t.findOwners()
	if err != nil {
		return err
	}

	charges := make([]settlement.Charge, len(t.items))
	for i := range t.items {
		item, c := &t.items[i], &charges[i]
		c.Request, c.Session = item.RequestID, wire.SessionID(item.Session)
		row, of := pools[item.KeyID], windowstore.Owner{Account: item.AccountID, Project: item.ProjectID, Key: item.KeyID}
		switch {
		case item.QuarantineReason != "":
			t.quarantineReasons[i], c.Invalid = item.QuarantineReason, true
		case row == nil:
			t.quarantineReasons[i], c.Invalid = settle.ReasonUnknownKey, true
		case row.AccountID != item.AccountID:
			t.quarantineReasons[i], c.Invalid = settle.ReasonOtherAccount, true
		case owners.Foreign(of):
			t.quarantineReasons[i], c.Invalid = settle.ReasonOtherProject, true
		case !owners.Own(item.Event.Limits, of):
			t.quarantineReasons[i], c.Invalid = settle.ReasonUnknownWindow, true
		default:
			c.Cost = int64(item.Event.Cost)
			c.Pools = []wire.PoolID{wire.PoolID(row.BalancePool), wire.PoolID(row.LimitPool)}
			for _, pool := range item.Event.Limits {
				c.Pools = append(c.Pools, wire.PoolID(pool))
			}
		}
	}

	t.Batch = settlement.NewBatch(charges)
	return nil
}

// findOwners reads the owners of the windows and projects that events name.
func (t *settleTx) findOwners() (*windowstore.Owners, error) {
	var windows []int64
	projects := map[ident.UUID]bool{}
	for i := range t.items {
		if e := t.items[i].Event; e != nil {
			windows = append(windows, e.Limits...)
		}
		if id := t.items[i].ProjectID; !id.IsZero() {
			projects[id] = true
		}
	}
	return windowstore.FindOwners(t.ctx, t.q, windows, slices.Collect(maps.Keys(projects)))
}

// post writes one ledger transaction for all new records: each account is charged
// its sum, and revenue gets the total. It writes none if the total is zero.
func (t *settleTx) post(transaction ident.UUID, fresh []int) error {
	sums := map[ident.UUID]int64{}
	total := int64(0)
	for _, i := range fresh {
		sums[t.items[i].AccountID] += int64(t.items[i].Event.Cost)
		total += int64(t.items[i].Event.Cost)
	}

	if total == 0 {
		return nil
	}

	entries := sqlcgen.InsertUsageEntriesParams{TransactionID: transaction}
	add := func(ledgerAccount string, account ident.UUID, amount int64) {
		entries.Lines = append(entries.Lines, int32(len(entries.Lines)+1))
		entries.LedgerAccounts = append(entries.LedgerAccounts, ledgerAccount)
		entries.AccountIds = append(entries.AccountIds, account)
		entries.Amounts = append(entries.Amounts, amount)
	}

	for account, sum := range sums {
		if sum > 0 {
			add("customer", account, -sum)
		}
	}

	add("revenue", ident.UUID{}, total)
	err := t.q.InsertUsageTransaction(
		t.ctx,
		sqlcgen.InsertUsageTransactionParams{ID: transaction, Reference: ident.Transaction.Format(transaction)},
	)
	if err != nil {
		return fmt.Errorf("insert ledger transaction: %w", err)
	}
	if err := t.q.InsertUsageEntries(t.ctx, entries); err != nil {
		return fmt.Errorf("insert ledger entries: %w", err)
	}

	return nil
}

// detectConflicts compares repeated events with the settled ones. An event that
// differs goes into quarantine. Only these events need fingerprints.
func (t *settleTx) detectConflicts() {
	doubtful := t.Unresolved()
	if len(doubtful) == 0 {
		return
	}

	repeated := make(map[[16]byte]bool, len(doubtful))
	for _, i := range doubtful {
		repeated[t.items[i].RequestID] = true
		t.Charges[i].Fingerprint = t.items[i].Event.Fingerprint()
	}

	for i, verdict := range t.Outcomes { // a batch can contain a new event twice
		if verdict == settlement.Inserted && repeated[t.items[i].RequestID] {
			t.fingerprints[t.items[i].RequestID] = t.items[i].Event.Fingerprint()
		}
	}

	t.ResolveDuplicates(t.fingerprints)
	for _, i := range doubtful {
		if t.Outcomes[i] == settlement.Conflicting {
			t.quarantineReasons[i] = settle.ReasonConflict
		}
	}
}

// charge charges the new costs to the pools of accounts and keys. Before it locks
// pools, it takes a shared lock of every session of the batch, including those of
// repeated events, since addSettledSeqs updates them later. Otherwise there could be
// a deadlock: closing a session waits for the settlements that hold its shared lock,
// and these wait for the advisory lock that addSettledSeqs takes.
func (t *settleTx) charge(fresh []int) error {
	if len(fresh) == 0 {
		_, err := leasestore.ShareSessions(t.ctx, t.q, t.sessions())
		return err
	}

	if err := t.updateRollups(fresh); err != nil {
		return err
	}

	pools := map[int64]bool{}
	for _, i := range fresh {
		for _, pool := range t.Charges[i].Pools {
			pools[int64(pool)] = true
		}
	}

	sessionIDs := t.sessions()
	sessions, err := leasestore.ShareSessions(t.ctx, t.q, sessionIDs)
	if err != nil {
		return err
	}

	stored, err := leasestore.LoadPools(t.ctx, t.q, slices.Sorted(maps.Keys(pools)), sessionIDs)
	if err != nil {
		return err
	}

	if len(stored.DueAccounts) > 0 {
		return &expiryDueError{stored.DueAccounts}
	}

	units := stored.Allocator()
	t.ApplyCharges(units, sessions)
	if err := t.useAllHeld(stored.Expiring, units, fresh); err != nil {
		return err
	}
	if err := stored.Save(t.ctx, t.q, units); err != nil {
		return err
	}

	return stored.UpdateAlarms(t.ctx, t.q, units, nil)
}

// useAllHeld attributes the charges of the accounts of which expired credits are held.
func (t *settleTx) useAllHeld(rows []sqlcgen.LockPoolsRow, units *allocator.Allocator, fresh []int) error {
	if len(rows) == 0 {
		return nil
	}
	now, err := t.q.Now(t.ctx)
	if err != nil {
		return fmt.Errorf("read the time: %w", err)
	}
	for i := range rows {
		if err := t.useHeld(&rows[i], units, fresh, now); err != nil {
			return err
		}
	}
	return nil
}

// useHeld attributes the charges of an account of which expired credits are held: those of requests that began before a credit
// expired use it. What they use is put back into the balance, from which all of the credit was taken when it expired.
func (t *settleTx) useHeld(row *sqlcgen.LockPoolsRow, units *allocator.Allocator, fresh []int, now time.Time) error {
	credits, err := loadCredits(t.ctx, t.q, row)
	if err != nil {
		return err
	}

	credits.Advance(money.Nano(row.Settled))
	pool := units.Pools[wire.PoolID(row.ID)]
	own := slices.DeleteFunc(slices.Clone(fresh), func(i int) bool { return t.Charges[i].Pools[0] != pool.ID })
	slices.SortFunc(own, func(i, j int) int { return bytes.Compare(t.items[i].RequestID[:], t.items[j].RequestID[:]) })
	for _, i := range own {
		began := t.items[i].RequestID.Time()
		if t.items[i].Event.VideoJob != "" { // it has reserved nothing, so that nothing is held for it
			began = distantFuture
		}
		pool.Adjust(int64(credits.Charge(t.items[i].Event.Cost, began, now)))
	}
	return credits.save(t.ctx, t.q)
}

// expiryDueError is returned for a batch that charges balances of which a credit has expired that is not booked yet.
type expiryDueError struct{ accounts []ident.UUID }

func (e *expiryDueError) Error() string { return errExpiryDue.Error() }

// expire books what has expired. The proxies learn of the change with their next heartbeats. It returns the items that can be settled
// then. Those of accounts whose expiry could not be booked are added to left, which is nil if there are none.
func (e *expiryDueError) expire(
	ctx context.Context,
	db *postgres.DB,
	items []settle.Item,
	left *settle.UnsettledError,
) ([]settle.Item, *settle.UnsettledError) {
	failed := map[ident.UUID]bool{}
	for _, id := range e.accounts {
		if _, err := expireCredits(ctx, db, id); err != nil {
			failed[id] = true
			if left == nil {
				left = &settle.UnsettledError{}
			}
			left.Err = errors.Join(left.Err, err)
		}
	}
	if len(failed) == 0 {
		return items, left
	}

	var others []settle.Item
	for i := range items {
		if items[i].QuarantineReason == "" && failed[items[i].AccountID] {
			left.Items = append(left.Items, items[i])
		} else {
			others = append(others, items[i])
		}
	}
	return others, left
}

// updateRollups adds the new records to the roll-ups. All transactions lock roll-ups
// before sessions and pools.
func (t *settleTx) updateRollups(fresh []int) error {
	var sums daySums
	for _, i := range fresh {
		sums.add(&t.items[i])
	}
	if sums.over {
		return errSums
	}
	if err := t.q.UpdateRollups(t.ctx, sums.params()); err != nil {
		return fmt.Errorf("update roll-ups: %w", err)
	}
	return nil
}

func (t *settleTx) quarantine() error {
	var arg sqlcgen.QuarantineEventsParams
	for _, i := range slices.SortedFunc(maps.Keys(t.quarantineReasons), t.compareEvents) { // all transactions lock the rows in this order
		item, fault := t.items[i], t.quarantineReasons[i]
		id := ""
		if item.Event != nil {
			id = item.Event.RequestID
		}
		arg.SessionIds = append(arg.SessionIds, item.Session)
		arg.Seqs = append(arg.Seqs, item.Seq)
		arg.RequestIds = append(arg.RequestIds, id)
		arg.Reasons = append(arg.Reasons, fault)
		arg.Payloads = append(arg.Payloads, item.Payload)
	}

	if len(arg.Seqs) == 0 {
		return nil
	}
	if err := t.q.QuarantineEvents(t.ctx, arg); err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}

	return changestore.InsertEvents(t.ctx, t.q, webhook.QuarantineEvent(len(arg.Seqs), time.Now()))
}

func (t *settleTx) compareEvents(i, j int) int {
	a, b := t.items[i], t.items[j]
	return cmp.Or(cmp.Compare(a.Session, b.Session), cmp.Compare(a.Seq, b.Seq), bytes.Compare(a.Payload, b.Payload))
}

// addSettledSeqs adds the events to the settled sequence numbers of their sessions,
// and returns the watermarks. A session that Postgres has lost gets a watermark of
// these events only.
func (t *settleTx) addSettledSeqs() ([]event.Settled, error) {
	var arg sqlcgen.AddSettledSeqsParams
	numbers := map[int64]settlement.IntervalSet{}
	for i := range t.items {
		if item := &t.items[i]; item.Seq > 0 {
			numbers[item.Session] = numbers[item.Session].Add(item.Seq)
		}
	}

	for session, ranges := range numbers {
		for _, r := range ranges {
			arg.SessionIds, arg.Lowest, arg.Highest = append(arg.SessionIds, session), append(arg.Lowest, r[0]), append(arg.Highest, r[1])
		}
	}

	if err := t.q.LockSettledSeqs(t.ctx, arg.SessionIds); err != nil {
		return nil, fmt.Errorf("queue for settled sequence numbers: %w", err)
	}

	rows, err := t.q.AddSettledSeqs(t.ctx, arg)
	if err != nil {
		return nil, fmt.Errorf("add settled sequence numbers: %w", err)
	}

	var marks []event.Settled
	for _, r := range rows {
		settled, err := numbersOf(r.ID, r.Ranges)
		if err != nil {
			return nil, err
		}
		marks = append(marks, settled.Settled(wire.SessionID(r.ID)))
		delete(numbers, r.ID)
	}

	for session, ranges := range numbers { // unknown sessions
		marks = append(marks, event.Settled{V: event.Version, Session: session, Beyond: ranges})
	}

	return marks, nil
}
