package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/leasing"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease"
)

// The states of a session, as stored.
const (
	sessionActive = 1
	sessionClosed = 3
)

// Leasing implements leasing.Store.
type Leasing struct{ db *DB }

// NewLeasing returns the store of sessions and leases.
func NewLeasing(db *DB) *Leasing { return &Leasing{db} }

var _ leasing.Store = (*Leasing)(nil)

// Batch implements leasing.Store.
func (l *Leasing) Batch(ctx context.Context, ops []*lease.Op, returns []*lease.Return, decide func(*leasing.State)) error {
	names := namesOf(ops, returns)
	err := l.db.InTx(ctx, func(tx pgx.Tx) error {
		q := l.db.q.WithTx(tx)
		state, stored, err := names.load(ctx, q)
		if err != nil {
			return err
		}
		decide(state)
		if err := stored.save(ctx, q, state.Book); err != nil {
			return err
		}
		return saveResults(ctx, q, state.Results)
	})
	return Translate("lease batch", err)
}

// batchNames is everything that a batch touches, in lock order.
type batchNames struct {
	sessions, pools []int64
	ops             []leasing.OpKey
}

func namesOf(ops []*lease.Op, returns []*lease.Return) batchNames {
	sessions, pools := map[int64]bool{}, map[int64]bool{}
	views := func(session lease.SessionID, views []lease.View) {
		sessions[int64(session)] = true
		for _, v := range views {
			pools[int64(v.Pool)] = true
		}
	}
	var names batchNames
	for _, op := range ops {
		views(op.Session, op.Views)
		names.ops = append(names.ops, leasing.OpKey{Session: op.Session, Account: op.Account})
		for _, needs := range op.Needs {
			for _, n := range needs {
				pools[int64(n.Pool)] = true
			}
		}
	}
	for _, r := range returns {
		views(r.Session, r.Views)
	}
	names.sessions, names.pools = slices.Sorted(maps.Keys(sessions)), slices.Sorted(maps.Keys(pools))
	return names
}

func (n batchNames) load(ctx context.Context, q *sqlcgen.Queries) (*leasing.State, *storedBook, error) {
	state := &leasing.State{Active: map[lease.SessionID]bool{}, Closed: map[lease.SessionID]bool{}, Results: map[leasing.OpKey]*leasing.Result{}}
	sessions, err := q.LockSessions(ctx, n.sessions)
	if err != nil {
		return nil, nil, fmt.Errorf("lock sessions: %w", err)
	}
	closed, over := map[int64]bool{}, map[lease.SessionID]bool{}
	for _, id := range n.sessions {
		closed[id] = true // one that does not exist takes nothing either
		over[lease.SessionID(id)] = true
	}
	for _, s := range sessions {
		over[lease.SessionID(s.ID)] = s.State != sessionActive
		state.Active[lease.SessionID(s.ID)] = s.State == sessionActive && s.Valid
		closed[s.ID] = s.State == sessionClosed
	}
	for id := range closed {
		state.Closed[lease.SessionID(id)] = closed[id]
	}
	stored, err := loadBook(ctx, q, n.pools, n.sessions)
	if err != nil {
		return nil, nil, err
	}
	state.Book = stored.book()
	state.Book.Over = over
	if err := loadHolders(ctx, q, state.Book); err != nil {
		return nil, nil, err
	}
	if state.Live, err = q.CountLiveSessions(ctx); err != nil {
		return nil, nil, fmt.Errorf("count sessions: %w", err)
	}
	if err := n.loadResults(ctx, q, state.Results); err != nil {
		return nil, nil, err
	}
	return state, stored, nil
}

func (n batchNames) loadResults(ctx context.Context, q *sqlcgen.Queries, results map[leasing.OpKey]*leasing.Result) error {
	if len(n.ops) == 0 {
		return nil
	}
	var arg sqlcgen.LeaseOpsParams
	for _, key := range n.ops {
		account, err := ident.Account.Parse(key.Account)
		if err != nil {
			continue // no such account: its pools do not exist, and the op is refused
		}
		arg.SessionIds = append(arg.SessionIds, int64(key.Session))
		arg.AccountIds = append(arg.AccountIds, account)
	}
	rows, err := q.LeaseOps(ctx, arg)
	if err != nil {
		return fmt.Errorf("read stored ops: %w", err)
	}
	for _, row := range rows {
		result := &leasing.Result{No: row.OpNo}
		if err := json.Unmarshal(row.Result, &result.Reply); err != nil {
			return fmt.Errorf("read stored op of session %d: %w", row.SessionID, err)
		}
		results[leasing.OpKey{Session: lease.SessionID(row.SessionID), Account: ident.Account.Format(row.AccountID)}] = result
	}
	return nil
}

func saveResults(ctx context.Context, q *sqlcgen.Queries, results map[leasing.OpKey]*leasing.Result) error {
	var arg sqlcgen.UpsertLeaseOpsParams
	for _, key := range slices.SortedFunc(maps.Keys(results), compareOps) { // rows are locked in one order everywhere
		result := results[key]
		account, err := ident.Account.Parse(key.Account)
		if !result.Fresh || err != nil {
			continue
		}
		reply, err := json.Marshal(result.Reply)
		if err != nil {
			return fmt.Errorf("store op of session %d: %w", key.Session, err)
		}
		arg.SessionIds = append(arg.SessionIds, int64(key.Session))
		arg.AccountIds = append(arg.AccountIds, account)
		arg.OpNos = append(arg.OpNos, result.No)
		arg.Results = append(arg.Results, reply)
	}
	if len(arg.OpNos) == 0 {
		return nil
	}
	return q.UpsertLeaseOps(ctx, arg)
}

func compareOps(a, b leasing.OpKey) int {
	return cmp.Or(cmp.Compare(a.Session, b.Session), cmp.Compare(a.Account, b.Account))
}

// Register implements leasing.Store.
func (l *Leasing) Register(ctx context.Context, r *lease.Register, valid time.Duration) (*lease.Registered, error) {
	reply := &lease.Registered{V: lease.Version, Status: lease.Done, ValidMS: valid.Milliseconds()}
	err := l.db.InTx(ctx, func(tx pgx.Tx) error {
		q := l.db.q.WithTx(tx)
		meta, err := q.ShareMeta(ctx)
		if err != nil {
			return fmt.Errorf("lock revision: %w", err)
		}
		id, err := q.InsertSession(ctx, sqlcgen.InsertSessionParams{
			Name: r.Name, BootID: r.Boot, Build: r.Build, Capacity: r.Capacity, AppliedRev: meta.Rev, ValidSeconds: valid.Seconds(),
		})
		reply.Session, reply.Rev = lease.SessionID(id), meta.Rev
		reply.StreamIncarnation, reply.ClusterEpoch = fmt.Sprintf("%x", meta.StreamIncarnation), meta.ClusterEpoch
		return err
	})
	return reply, Translate("register session", err)
}

// Renew implements leasing.Store.
func (l *Leasing) Renew(ctx context.Context, r *lease.Renew, valid time.Duration, limit int) (*lease.Renewed, error) {
	reply := &lease.Renewed{V: lease.Version}
	err := l.db.InTx(ctx, func(tx pgx.Tx) error {
		q := l.db.q.WithTx(tx)
		meta, err := q.ShareMeta(ctx)
		if err != nil {
			return fmt.Errorf("lock revision: %w", err)
		}
		n, err := q.RenewSession(ctx, sqlcgen.RenewSessionParams{
			ID: int64(r.Session), BootID: r.Boot, ValidSeconds: valid.Seconds(), AppliedRev: r.AppliedRev, CatalogRev: r.CatalogRev,
			Running: r.Running, SpoolUsed: r.SpoolUsed, Draining: r.Draining,
		})
		if err != nil {
			return err
		}
		if n == 0 {
			*reply = lease.Renewed{V: lease.Version, Status: lease.Fenced}
			return nil
		}
		changes, err := q.ChangesAfter(ctx, sqlcgen.ChangesAfterParams{Rev: r.AppliedRev, MaxRows: int32(limit)})
		if err != nil {
			return fmt.Errorf("read changes: %w", err)
		}
		*reply = lease.Renewed{
			V: lease.Version, Status: lease.Done, ValidMS: valid.Milliseconds(), More: len(changes) == limit,
			StreamIncarnation: fmt.Sprintf("%x", meta.StreamIncarnation),
		}
		for _, c := range changes {
			reply.Changes = append(reply.Changes, change(c))
		}
		return nil
	})
	return reply, Translate("renew session", err)
}

func change(c sqlcgen.ChangesAfterRow) lease.Change {
	change := lease.Change{V: lease.Version, Rev: c.Rev, Prev: c.Prev, Kind: lease.ChangeKind(c.Kind), Account: ident.Account.Format(c.AccountID)}
	if len(c.LookupHash) == len(apikey.Hash{}) {
		change.KeyHash = apikey.Hash(c.LookupHash)
	}
	return change
}

// Close implements leasing.Store. The session is locked whole before anything
// of it is changed: settlement holds a share of it while it waits for the row.
func (l *Leasing) Close(ctx context.Context, r *lease.CloseSession) (bool, error) {
	closed := false
	err := l.db.InTx(ctx, func(tx pgx.Tx) error {
		q := l.db.q.WithTx(tx)
		closed = false
		state, err := q.LockSession(ctx, int64(r.Session))
		switch {
		case errors.Is(err, pgx.ErrNoRows), err == nil && state == sessionClosed:
			closed = true // a session that Postgres does not know holds nothing
			return nil
		case err != nil:
			return fmt.Errorf("lock session: %w", err)
		}
		settled, err := q.FenceSession(ctx, sqlcgen.FenceSessionParams{ID: int64(r.Session), BootID: r.Boot, FinalCount: r.FinalCount})
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			closed = true // of another life of the proxy: this one holds nothing
			return nil
		case err != nil:
			return fmt.Errorf("fence session: %w", err)
		case settled < r.FinalCount:
			return nil
		}
		closed = true
		return free(ctx, q, int64(r.Session))
	})
	return closed, Translate("close session", err)
}

// sweep closes a session that the sweeper found, unless it was closed since.
func (l *Leasing) sweep(ctx context.Context, id int64) (closed bool, err error) {
	err = l.db.InTx(ctx, func(tx pgx.Tx) error {
		q := l.db.q.WithTx(tx)
		closed = false
		state, err := q.LockSession(ctx, id)
		if err != nil || state == sessionClosed {
			return err
		}
		closed = true
		return free(ctx, q, id)
	})
	return closed && err == nil, err
}

// free closes a session and gives back what its leases still hold. The
// session's row is locked for update, so that no op of it is under way.
func free(ctx context.Context, q *sqlcgen.Queries, id int64) error {
	pools, err := q.PoolsOfSession(ctx, id)
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	stored, err := loadBook(ctx, q, pools, []int64{id})
	if err != nil {
		return err
	}
	book := stored.book()
	book.Close(lease.SessionID(id))
	if err := stored.save(ctx, q, book); err != nil {
		return err
	}
	return q.CloseSession(ctx, id)
}

// Sweep implements leasing.Store. A session that cannot be closed does not keep
// the others from it.
func (l *Leasing) Sweep(ctx context.Context, margin, rest time.Duration) (fenced, closed int, err error) {
	n, err := l.db.q.FenceExpired(ctx, margin.Seconds())
	if err != nil {
		return 0, 0, Translate("fence sessions", err)
	}
	ids, err := l.db.q.SessionsToClose(ctx, rest.Seconds())
	if err != nil {
		return int(n), 0, Translate("list fenced sessions", err)
	}
	var faults []error
	for _, id := range ids {
		done, err := l.sweep(ctx, id)
		if err != nil {
			faults = append(faults, Translate(fmt.Sprintf("close session %d", id), err))
		}
		if done {
			closed++
		}
	}
	return int(n), closed, errors.Join(faults...)
}

// Pending implements leasing.Store.
func (l *Leasing) Pending(ctx context.Context, rev int64) ([]leasing.Pending, error) {
	rows, err := l.db.q.PendingSessions(ctx, rev)
	if err != nil {
		return nil, Translate("list sessions", err)
	}
	pending := make([]leasing.Pending, len(rows))
	for i, row := range rows {
		pending[i] = leasing.Pending{Session: lease.SessionID(row.ID), Left: time.Duration(row.LeftSeconds * float64(time.Second))}
	}
	return pending, nil
}

// LoadKey implements leasing.Store.
func (l *Leasing) LoadKey(ctx context.Context, r *lease.LoadKey) (*lease.LoadedKey, error) {
	row, err := l.db.q.LoadKey(ctx, r.KeyHash[:])
	if err != nil {
		return nil, Translate("load key", err)
	}
	reply := &lease.LoadedKey{V: lease.Version, Status: lease.Done, ReadRev: row.Rev}
	if row.KeyID != nil && row.AccountID != nil && row.BalancePool != nil && row.SlotsPool != nil {
		reply.Record = &lease.KeyRecord{
			KeyID: ident.Key.Format(*row.KeyID), AccountID: ident.Account.Format(*row.AccountID), Active: row.Active,
			BalancePool: lease.PoolID(*row.BalancePool), SlotsPool: lease.PoolID(*row.SlotsPool), LimitPool: lease.PoolID(row.LimitPool),
		}
	}
	return reply, nil
}

// Balance implements leasing.Store.
func (l *Leasing) Balance(ctx context.Context, r *lease.BalanceQuery) (*lease.BalanceReply, error) {
	account, err := ident.Account.Parse(r.AccountID)
	if err != nil {
		return nil, err
	}
	key, err := ident.Key.Parse(r.KeyID)
	if err != nil {
		return nil, err
	}
	row, err := l.db.q.ReadBalance(ctx, sqlcgen.ReadBalanceParams{AccountID: account, KeyID: key})
	if err != nil {
		return nil, Translate("read balance", err)
	}
	return &lease.BalanceReply{
		V: lease.Version, Status: lease.Done, BalancePool: lease.PoolID(row.BalancePool), LimitPool: lease.PoolID(row.LimitPool), Balance: row.Balance, Reserved: row.Reserved,
		Limited: row.Limited, Limit: row.KeyLimit, KeySpent: row.KeySpent, KeyReserved: row.KeyReserved,
	}, nil
}
