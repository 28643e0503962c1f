// Package leasestore keeps proxy sessions, leases and lease responses in Postgres:
// it implements leasing.Store.
//
// Locks are taken in one order everywhere: sessions by id, then pools by id,
// then leases.
package leasestore

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
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/keychange"
	"modelgateway/controlplane/internal/postgres/pgconv"
	"modelgateway/controlplane/internal/postgres/poolstore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

// Leasing implements leasing.Store.
type Store struct{ db *postgres.DB }

// New returns a store that uses db.
func New(db *postgres.DB) *Store { return &Store{db} }

var _ leasing.Store = (*Store)(nil)

// Batch implements leasing.Store.
func (l *Store) Batch(ctx context.Context, ops []*wire.LeaseRequest, returns []*wire.Return, decide func(*allocator.Batch)) error {
	keys := keysOf(ops, returns)
	err := l.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		d, stored, err := keys.load(ctx, q)
		if err != nil {
			return err
		}
		decide(d)
		if err := stored.Save(ctx, q, d.Allocator); err != nil {
			return err
		}
		if refused := leasing.RefusedPools(ops, d.Results); refused != nil {
			if err := stored.UpdateAlarms(ctx, q, d.Allocator, refused); err != nil {
				return err
			}
		}
		return saveResults(ctx, q, d.Results)
	})
	return postgres.Translate("lease batch", err)
}

// batchKeys are the rows that a batch reads and writes, in lock order.
type batchKeys struct {
	sessions, pools []int64
	ops             []allocator.RequestKey
	// wanted is the sum of the needs of all requests, by pool.
	wanted map[wire.PoolID]int64
}

func keysOf(ops []*wire.LeaseRequest, returns []*wire.Return) batchKeys {
	sessions, pools := map[int64]bool{}, map[int64]bool{}
	views := func(session wire.SessionID, views []wire.LeaseReport) {
		sessions[int64(session)] = true
		for _, v := range views {
			pools[int64(v.Pool)] = true
		}
	}
	names := batchKeys{wanted: map[wire.PoolID]int64{}}
	for _, op := range ops {
		views(op.Session, op.Reports)
		names.ops = append(names.ops, allocator.RequestKey{Session: op.Session, Account: op.Account})
		for _, needs := range op.Needs {
			for _, n := range needs {
				pools[int64(n.Pool)] = true
				names.wanted[n.Pool] += n.Amount
			}
		}
	}
	for _, r := range returns {
		views(r.Session, r.Reports)
	}
	names.sessions, names.pools = slices.Sorted(maps.Keys(sessions)), slices.Sorted(maps.Keys(pools))
	return names
}

func (n batchKeys) load(ctx context.Context, q *sqlcgen.Queries) (*allocator.Batch, *poolstore.Stored, error) {
	d := &allocator.Batch{Results: map[allocator.RequestKey]*allocator.Result{}}
	var err error
	if d.Sessions, err = ShareSessions(ctx, q, n.sessions); err != nil {
		return nil, nil, err
	}
	stored, err := poolstore.Load(ctx, q, n.pools, n.sessions)
	if err != nil {
		return nil, nil, err
	}
	d.Allocator = stored.Allocator()
	for _, id := range n.sessions {
		t := d.Sessions[wire.SessionID(id)]
		d.Allocator.EndedSessions[wire.SessionID(id)] = t == nil || !t.MayAdmit()
	}
	if err := poolstore.LoadHolders(ctx, q, d.Allocator, n.wanted); err != nil {
		return nil, nil, err
	}
	if d.LiveSessions, err = q.CountLiveSessions(ctx); err != nil {
		return nil, nil, fmt.Errorf("count sessions: %w", err)
	}
	since, err := q.SinceLoss(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read epoch: %w", err)
	}
	d.SinceLoss = pgconv.Seconds(since)
	return d, stored, n.loadResults(ctx, q, d.Results)
}

func (n batchKeys) loadResults(ctx context.Context, q *sqlcgen.Queries, results map[allocator.RequestKey]*allocator.Result) error {
	if len(n.ops) == 0 {
		return nil
	}
	var arg sqlcgen.LeaseResponsesParams
	for _, key := range n.ops {
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

func saveResults(ctx context.Context, q *sqlcgen.Queries, results map[allocator.RequestKey]*allocator.Result) error {
	var arg sqlcgen.UpsertLeaseResponsesParams
	for _, key := range slices.SortedFunc(maps.Keys(results), compareOps) { // all transactions lock the rows in this order
		result := results[key]
		account, err := ident.Account.Parse(key.Account)
		if !result.New || err != nil {
			continue
		}
		reply, err := json.Marshal(result.Response)
		if err != nil {
			return fmt.Errorf("encode lease response of session %d: %w", key.Session, err)
		}
		arg.SessionIds = append(arg.SessionIds, int64(key.Session))
		arg.AccountIds = append(arg.AccountIds, account)
		arg.RequestNumbers = append(arg.RequestNumbers, result.Number)
		arg.Responses = append(arg.Responses, reply)
	}
	if len(arg.RequestNumbers) == 0 {
		return nil
	}
	return q.UpsertLeaseResponses(ctx, arg)
}

func compareOps(a, b allocator.RequestKey) int {
	return cmp.Or(cmp.Compare(a.Session, b.Session), cmp.Compare(a.Account, b.Account))
}

// Register implements leasing.Store.
func (l *Store) Register(ctx context.Context, r *wire.RegisterRequest, valid time.Duration) (*wire.RegisterResponse, error) {
	reply := &wire.RegisterResponse{V: wire.Version, Status: wire.Done, ValidMS: valid.Milliseconds()}
	err := l.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		meta, err := q.ShareClusterState(ctx)
		if err != nil {
			return fmt.Errorf("lock cluster state: %w", err)
		}
		id, err := q.InsertSession(ctx, sqlcgen.InsertSessionParams{
			Name: r.Name, BootID: r.BootID, Build: r.Build, SpoolCapacity: r.Capacity, AppliedRevision: meta.Revision, ValidSeconds: valid.Seconds(),
		})
		reply.Session, reply.Revision = wire.SessionID(id), meta.Revision
		reply.StreamIncarnation, reply.ClusterEpoch = fmt.Sprintf("%x", meta.StreamIncarnation), meta.ClusterEpoch
		if err != nil {
			return fmt.Errorf("insert session: %w", err)
		}
		return restore(ctx, q, r, reply.Session)
	})
	return reply, postgres.Translate("register session", err)
}

// Heartbeat implements leasing.Store.
func (l *Store) Heartbeat(ctx context.Context, r *wire.HeartbeatRequest, valid time.Duration, limit int) (*wire.HeartbeatResponse, error) {
	reply := &wire.HeartbeatResponse{V: wire.Version}
	err := l.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		meta, err := q.ShareClusterState(ctx)
		if err != nil {
			return fmt.Errorf("lock cluster state: %w", err)
		}
		t, err := lockForHeartbeat(ctx, q, r.Session)
		if err != nil {
			return err
		}
		if !t.Heartbeat(r, valid) {
			*reply = wire.HeartbeatResponse{V: wire.Version, Status: wire.Fenced}
			return nil
		}
		refused, err := refusedOf(r)
		if err != nil {
			return err
		}
		err = q.ExtendSession(ctx, sqlcgen.ExtendSessionParams{
			ID: int64(t.ID), ValidSeconds: t.Remaining.Seconds(), AppliedRevision: t.AppliedRevision, CatalogRevision: r.CatalogRevision,
			Running: r.Running, SpoolUsed: r.SpoolUsed, Draining: r.Draining, RefusedCredentials: refused,
		})
		if err != nil {
			return fmt.Errorf("extend session: %w", err)
		}
		changes, err := q.ChangesAfter(ctx, sqlcgen.ChangesAfterParams{Revision: r.AppliedRevision, MaxRows: int32(limit)})
		if err != nil {
			return fmt.Errorf("read changes: %w", err)
		}
		*reply = wire.HeartbeatResponse{
			V: wire.Version, Status: wire.Done, ValidMS: valid.Milliseconds(), More: len(changes) == limit,
			StreamIncarnation: fmt.Sprintf("%x", meta.StreamIncarnation), ClusterEpoch: meta.ClusterEpoch,
		}
		for _, c := range changes {
			reply.Changes = append(reply.Changes, keychange.FromRow(c))
		}
		return nil
	})
	return reply, postgres.Translate("extend session", err)
}

// Close implements leasing.Store. It locks the session exclusively before it
// changes anything: settlement shares the session while it waits for the row.
func (l *Store) Close(ctx context.Context, r *wire.CloseRequest) (bool, error) {
	done := false
	err := l.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		t, err := lockSession(ctx, q, r.Session)
		if err != nil {
			return err
		}
		before := *t
		settled := int64(0)
		if t.CanReturn() {
			if settled, err = q.CountSettled(ctx, int64(t.ID)); err != nil {
				return fmt.Errorf("count settled events: %w", err)
			}
		}
		if done = t.Close(r, settled); done && *t == before {
			return nil // closed already, or a session of another boot of the proxy
		}
		if err := q.EndSession(ctx, sqlcgen.EndSessionParams{ID: int64(t.ID), State: int16(t.State), FinalCount: &r.FinalCount}); err != nil {
			return fmt.Errorf("end session: %w", err)
		}
		if t.State != session.Closed {
			return nil
		}
		return releaseLeases(ctx, q, t.ID)
	})
	return done, postgres.Translate("close session", err)
}

// closeExpired closes a fenced session without heartbeats for too long, unless it
// was closed meanwhile.
func (l *Store) closeExpired(ctx context.Context, id wire.SessionID, rest time.Duration) (closed bool, err error) {
	err = l.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		t, err := lockSession(ctx, q, id)
		if closed = err == nil && t.Expired(rest); !closed {
			return err
		}
		if err := q.EndSession(ctx, sqlcgen.EndSessionParams{ID: int64(id), State: int16(session.Closed)}); err != nil {
			return fmt.Errorf("end session: %w", err)
		}
		return releaseLeases(ctx, q, id)
	})
	return closed && err == nil, err
}

// releaseLeases returns the outstanding units of a closed session to their pools.
// The session's row is locked for update, so that no transaction uses its leases.
func releaseLeases(ctx context.Context, q *sqlcgen.Queries, id wire.SessionID) error {
	pools, err := q.PoolsOfSession(ctx, int64(id))
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	stored, err := poolstore.Load(ctx, q, pools, []int64{int64(id)})
	if err != nil {
		return err
	}
	book := stored.Allocator()
	book.CloseSession(id)
	return stored.Save(ctx, q, book)
}

// Sweep implements leasing.Store. An error with one session does not stop the
// others from being closed.
func (l *Store) Sweep(ctx context.Context, margin, rest time.Duration) (fenced, closed int, err error) {
	if fenced, err = l.fence(ctx, margin); err != nil {
		return 0, 0, postgres.Translate("fence sessions", err)
	}
	rows, err := l.db.Queries().FencedSessions(ctx)
	if err != nil {
		return fenced, 0, postgres.Translate("list fenced sessions", err)
	}
	var errs []error
	for _, row := range rows {
		t := session.Record{ID: wire.SessionID(row.ID), State: session.Fenced, Remaining: pgconv.Seconds(row.LeftSeconds)}
		if !t.Expired(rest) {
			break // the others had a heartbeat later
		}
		done, err := l.closeExpired(ctx, t.ID, rest)
		if err != nil {
			errs = append(errs, postgres.Translate(fmt.Sprintf("close session %d", t.ID), err))
		}
		if done {
			closed++
		}
	}
	return fenced, closed, errors.Join(errs...)
}

// fence fences the sessions that have expired.
func (l *Store) fence(ctx context.Context, margin time.Duration) (fenced int, err error) {
	err = l.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		rows, err := q.ExpiredSessions(ctx)
		if err != nil {
			return err
		}
		var over []int64
		for _, row := range rows {
			t := session.Record{State: session.Active, Remaining: pgconv.Seconds(row.LeftSeconds)}
			if t.Fence(margin) {
				over = append(over, row.ID)
			}
		}
		if fenced = len(over); fenced == 0 {
			return nil
		}
		return q.FenceSessions(ctx, over)
	})
	return fenced, err
}

// LoadKeys implements leasing.Store.
func (l *Store) LoadKeys(ctx context.Context, hashes []apikey.Hash) (map[apikey.Hash]*wire.LoadKeyResponse, error) {
	lookups := make([][]byte, len(hashes))
	for i := range hashes {
		lookups[i] = hashes[i][:]
	}
	rows, err := l.db.Queries().LoadKeys(ctx, lookups)
	if err != nil {
		return nil, postgres.Translate("load keys", err)
	}
	loaded := make(map[apikey.Hash]*wire.LoadKeyResponse, len(rows))
	var errs []error
	for i := range rows {
		reply := &wire.LoadKeyResponse{V: wire.Version, Status: wire.Done, ReadRevision: rows[i].Revision}
		if reply.Record = toKeyRecord(&rows[i]); reply.Record != nil {
			if err := setMultipliers(reply.Record, rows[i].PriceMultiplier, rows[i].ModelMultipliers); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		loaded[apikey.Hash(rows[i].LookupHash)] = reply
	}
	return loaded, errors.Join(errs...)
}

// toKeyRecord returns a record without multipliers; nil for an unknown key.
func toKeyRecord(row *sqlcgen.LoadKeysRow) *wire.KeyRecord {
	if row.KeyID == nil || row.AccountID == nil || row.BalancePool == nil || row.SlotsPool == nil {
		return nil
	}
	return &wire.KeyRecord{
		KeyID: ident.Key.Format(*row.KeyID), AccountID: ident.Account.Format(*row.AccountID), Active: row.Active,
		BalancePool: wire.PoolID(*row.BalancePool), SlotsPool: wire.PoolID(*row.SlotsPool), LimitPool: wire.PoolID(row.LimitPool),
	}
}

// setMultipliers sets the price multipliers of a key record. They are left out
// where the list price applies.
func setMultipliers(record *wire.KeyRecord, own int64, models []byte) error {
	if m := price.Multiplier(own); m != price.One {
		record.PriceMultiplier = m
	}
	if err := json.Unmarshal(models, &record.ModelMultipliers); err != nil {
		return fmt.Errorf("postgres: read the multipliers of %s: %w", record.AccountID, err)
	}
	if len(record.ModelMultipliers) == 0 {
		record.ModelMultipliers = nil
	}
	return nil
}

// Balance implements leasing.Store.
func (l *Store) Balance(ctx context.Context, r *wire.BalanceRequest) (*wire.BalanceResponse, error) {
	account, err := ident.Account.Parse(r.AccountID)
	if err != nil {
		return nil, err
	}
	key, err := ident.Key.Parse(r.KeyID)
	if err != nil {
		return nil, err
	}
	row, err := l.db.Queries().ReadBalance(ctx, sqlcgen.ReadBalanceParams{AccountID: account, KeyID: key})
	if err != nil {
		return nil, postgres.Translate("read balance", err)
	}
	return &wire.BalanceResponse{
		V: wire.Version, Status: wire.Done, BalancePool: wire.PoolID(row.BalancePool), LimitPool: wire.PoolID(row.LimitPool), Balance: row.Balance, Reserved: row.Reserved,
		Limited: row.Limited, Limit: row.KeyLimit, KeySpent: row.KeySpent, KeyReserved: row.KeyReserved,
	}, nil
}
