// Package leasestore keeps in Postgres the sessions of proxies, pools, leases and lease responses, recognises lost commits, and
// reads the state of the database and of the proxies for operators.
//
// A lease request, for example: a proxy needs 3 units of a balance and one slot. Many requests of many proxies are decided in
// one transaction. It reads and locks their sessions, pools and leases, lets allocator.Batch decide in memory, and writes what has
// changed: the pool has 3 units less that are free, the lease of the session 3 more that are granted. The response is stored
// with the number of the request, so that a proxy that asks again gets the same decision.
//
// Locks are taken in one order everywhere: sessions by id, then pools by id,
// then leases. A pool that another transaction keeps locked is left out, and its requests are decided in the next batch.
package leasestore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/leasing"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// Leases keeps proxy sessions and leases. It is safe for concurrent use.
type Leases struct {
	db       *postgres.DB
	presence presence

	mu sync.Mutex
	// locked are the pools whose rows the last batch that needed them found locked for longer than lockWait.
	locked map[wire.PoolID]bool
	// waiting are the accounts of which a batch needed a closed balance.
	waiting chan ident.UUID
}

// maxWaiting bounds the accounts that wait for the booking of an expiry. For further ones it is not hastened.
const maxWaiting = 1024

// NewLeases returns a store that uses db.
func NewLeases(db *postgres.DB) *Leases { return NewLeasesWithClock(db, now) }

// NewLeasesWithClock returns a store that uses db, and clock for the absences of Postgres, of the bus and of this replica.
func NewLeasesWithClock(db *postgres.DB, clock func() session.Instant) *Leases {
	return &Leases{
		db:       db,
		presence: newPresence(clock),
		locked:   map[wire.PoolID]bool{},
		waiting:  make(chan ident.UUID, maxWaiting),
	}
}

// Waiting returns the accounts of which messages are left out until the expiry of a credit is booked. An account can come several
// times.
func (l *Leases) Waiting() <-chan ident.UUID { return l.waiting }

var _ leasing.Store = (*Leases)(nil)

// lockWait is how long a batch waits for a row. It is longer than transactions hold
// rows, unless their process is stopped.
const lockWait = 50 * time.Millisecond

// Batch implements leasing.Store. A batch waits for locked rows up to lockWait;
// then it leaves out the messages that need them, as later batches do at once. So
// a control plane that is stopped inside a transaction delays no other accounts.
// It also leaves out those of accounts of which a credit has expired that is not booked yet.
func (l *Leases) Batch(ctx context.Context, requests []*wire.LeaseRequest, returns []*wire.Return, decide func(*allocator.Batch)) error {
	moved, closed, err := l.openWindows(ctx, windowsOf(requests, returns))
	if err != nil {
		return postgres.Translate("open windows", err)
	}

	keys := keysOf(requests, returns)
	keys.moved, keys.closed = moved, closed
	keys.onlyFree = l.knowsLocked(keys.pools)
	err = l.batch(ctx, &keys, requests, decide)
	if postgres.IsLockTimeout(err) && !keys.onlyFree {
		keys.onlyFree = true
		err = l.batch(ctx, &keys, requests, decide)
	}
	if err == nil && (keys.onlyFree || len(closed) > 0) {
		l.remember(keys.pools, keys.locked)
	}
	for _, account := range keys.due {
		select {
		case l.waiting <- account:
		default:
		}
	}
	return postgres.Translate("lease batch", err)
}

// knowsLocked reports whether one of the pools was locked when it was last needed.
func (l *Leases) knowsLocked(pools []int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.locked) > 0 && slices.ContainsFunc(pools, func(id int64) bool { return l.locked[wire.PoolID(id)] })
}

// remember records which of the pools a batch has found locked.
func (l *Leases) remember(pools []int64, locked map[wire.PoolID]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range pools {
		delete(l.locked, wire.PoolID(id))
	}
	maps.Copy(l.locked, locked)
}

func (l *Leases) batch(ctx context.Context, keys *batchKeys, requests []*wire.LeaseRequest, decide func(*allocator.Batch)) error {
	return l.db.InTxWithLockTimeout(ctx, lockWait, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		batch, stored, err := keys.load(ctx, q)
		if err != nil {
			return err
		}
		decide(batch)
		if err := stored.Save(ctx, q, batch.Allocator); err != nil {
			return err
		}
		if refused := leasing.RefusedPools(requests, batch.Results); refused != nil {
			if err := stored.UpdateAlarms(ctx, q, batch.Allocator, refused); err != nil {
				return err
			}
		}
		return saveResults(ctx, q, batch.Results)
	})
}

// batchKeys are the rows that a batch reads and writes, in lock order.
type batchKeys struct {
	sessions, pools []int64
	requests        []allocator.RequestKey
	// needed is the sum of the needs of all requests, by pool.
	needed map[wire.PoolID]int64
	// onlyFree makes load leave out rows that another transaction holds; locked are the pools that it left out.
	onlyFree bool
	locked   map[wire.PoolID]bool
	// due are the accounts whose balances load left out because the expiry of a credit is not booked yet.
	due []ident.UUID
	// moved is Allocator.Moved; closed are the pools of windows that could not be made, since their limits are locked.
	moved  map[wire.PoolID]wire.PoolID
	closed map[wire.PoolID]bool
}

// keysOf returns the keys of the rows that a batch needs.
func keysOf(requests []*wire.LeaseRequest, returns []*wire.Return) batchKeys {
	sessions, pools := map[int64]bool{}, map[int64]bool{}
	add := func(session wire.SessionID, reports []wire.LeaseReport) {
		sessions[int64(session)] = true
		for _, report := range reports {
			pools[int64(report.Pool)] = true
		}
	}

	k := batchKeys{needed: map[wire.PoolID]int64{}}
	for _, r := range requests {
		add(r.Session, r.Reports)
		k.requests = append(k.requests, allocator.RequestKey{Session: r.Session, Account: r.Account})
		for _, needs := range r.Needs {
			for _, n := range needs {
				pools[int64(n.Pool)] = true
				k.needed[n.Pool] += n.Amount
			}
		}
	}

	for _, r := range returns {
		add(r.Session, r.Reports)
	}

	k.sessions, k.pools = slices.Sorted(maps.Keys(sessions)), slices.Sorted(maps.Keys(pools))
	return k
}

// load locks and reads the rows of a batch.
func (k *batchKeys) load(ctx context.Context, q *sqlcgen.Queries) (*allocator.Batch, *StoredPools, error) {
	batch := &allocator.Batch{Results: map[allocator.RequestKey]*allocator.Result{}}
	stored, err := k.lock(ctx, q, batch)
	if err != nil {
		return nil, nil, err
	}

	batch.Allocator = stored.Allocator()
	batch.Allocator.Moved = k.moved
	for _, id := range k.sessions {
		s := batch.Sessions[wire.SessionID(id)]
		batch.Allocator.EndedSessions[wire.SessionID(id)] = s == nil || !s.MayAdmit()
	}

	if err := LoadHolders(ctx, q, batch.Allocator, k.needed); err != nil {
		return nil, nil, err
	}
	if batch.LiveProxies, err = q.CountLiveProxies(ctx); err != nil {
		return nil, nil, fmt.Errorf("count proxies: %w", err)
	}

	loss, err := q.Recovering(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read the recovery wait: %w", err)
	}

	batch.Recovering, batch.SinceLoss = loss.Recovering, postgres.Seconds(loss.SinceLoss)
	return batch, stored, k.loadResults(ctx, q, batch.Results)
}

// lock locks the sessions, pools and leases.
func (k *batchKeys) lock(ctx context.Context, q *sqlcgen.Queries, batch *allocator.Batch) (*StoredPools, error) {
	rows, err := k.lockRows(ctx, q, batch)
	if err != nil {
		return nil, err
	}

	maps.Copy(k.locked, k.closed)
	stored, due, err := loadOpenPools(ctx, q, rows, k.sessions)
	if err != nil {
		return nil, err
	}

	k.due = stored.DueAccounts
	batch.LockedPools = maps.Clone(k.locked)
	for _, pool := range due {
		batch.LockedPools[pool] = true
	}

	return stored, nil
}

// lockRows locks the sessions and pools.
func (k *batchKeys) lockRows(ctx context.Context, q *sqlcgen.Queries, batch *allocator.Batch) (rows []sqlcgen.LockPoolsRow, err error) {
	if k.onlyFree {
		if batch.Sessions, batch.LockedSessions, err = shareFreeSessions(ctx, q, k.sessions); err != nil {
			return nil, err
		}
		rows, k.locked, err = lockFreePools(ctx, q, k.pools)
		return rows, err
	}

	k.locked = map[wire.PoolID]bool{}
	if batch.Sessions, err = ShareSessions(ctx, q, k.sessions); err != nil {
		return nil, err
	}
	if rows, err = q.LockPools(ctx, k.pools); err != nil {
		return nil, fmt.Errorf("lock pools: %w", err)
	}
	return rows, nil
}

// loadResults reads the last lease response of each session and account of the batch.
func (k *batchKeys) loadResults(ctx context.Context, q *sqlcgen.Queries, results map[allocator.RequestKey]*allocator.Result) error {
	if len(k.requests) == 0 {
		return nil
	}

	var arg sqlcgen.LeaseResponsesParams
	for _, key := range k.requests {
		account, err := ident.Account.Parse(key.Account)
		if err != nil {
			continue // no such account: its pools do not exist, and the request is refused
		}
		arg.SessionIds = append(arg.SessionIds, int64(key.Session))
		arg.AccountIds = append(arg.AccountIds, account)
	}

	rows, err := q.LeaseResponses(ctx, arg)
	if err != nil {
		return fmt.Errorf("read lease responses: %w", err)
	}

	for _, row := range rows {
		result := &allocator.Result{Number: row.RequestNumber}
		if err := json.Unmarshal(row.Response, &result.Response); err != nil {
			return fmt.Errorf("decode lease response of session %d: %w", row.SessionID, err)
		}
		results[allocator.RequestKey{Session: wire.SessionID(row.SessionID), Account: ident.Account.Format(row.AccountID)}] = result
	}

	return nil
}

// saveResults writes the new lease responses.
func saveResults(ctx context.Context, q *sqlcgen.Queries, results map[allocator.RequestKey]*allocator.Result) error {
	var arg sqlcgen.UpsertLeaseResponsesParams
	for _, key := range slices.SortedFunc(maps.Keys(results), compareKeys) { // all transactions lock the rows in this order
		result := results[key]
		account, err := ident.Account.Parse(key.Account)
		if !result.New || err != nil {
			continue
		}
		response, err := json.Marshal(result.Response)
		if err != nil {
			return fmt.Errorf("encode lease response of session %d: %w", key.Session, err)
		}
		arg.SessionIds = append(arg.SessionIds, int64(key.Session))
		arg.AccountIds = append(arg.AccountIds, account)
		arg.RequestNumbers = append(arg.RequestNumbers, result.Number)
		arg.Responses = append(arg.Responses, response)
	}

	if len(arg.RequestNumbers) == 0 {
		return nil
	}

	return q.UpsertLeaseResponses(ctx, arg)
}

func compareKeys(a, b allocator.RequestKey) int {
	return cmp.Or(cmp.Compare(a.Session, b.Session), cmp.Compare(a.Account, b.Account))
}
