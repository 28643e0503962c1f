package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"modelgateway/controlplane/internal/epoch"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/apikey"
	"modelgateway/shared/lease"
)

// durable has a commit wait for the log, at least: otherwise a server whose
// processes crash goes on running without what it has answered.
const durable = `select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'`

// guard lets this process use Postgres only as its Watch says, if it has one:
// tests and tools have none.
type guard struct{ watch atomic.Pointer[epoch.Watch] }

// check is called with every new connection before it is used: another server
// is met on new connections only.
func (g *guard) check(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, durable); err != nil {
		return fmt.Errorf("wait for the log: %w", err)
	}
	watch := g.watch.Load()
	if watch == nil {
		return nil
	}
	life, err := readLife(ctx, conn)
	if err != nil {
		return err
	}
	if !watch.Serves(life) {
		return epoch.ErrElsewhere
	}
	return nil
}

// commit runs fn in a transaction, and commits it with its witness.
func (g *guard) commit(ctx context.Context, pool *pgxpool.Pool, fn func(tx pgx.Tx) error) error {
	watch := g.watch.Load()
	if watch == nil {
		return pgx.BeginFunc(ctx, pool, fn) //nolint:wrapcheck // fn has said what it was doing
	}
	c, err := watch.Begin()
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return witness(ctx, sqlcgen.New(tx), c.Witness)
	})
	if err != nil {
		watch.Failed(c)
		return err //nolint:wrapcheck // fn has said what it was doing
	}
	return watch.Committed(c)
}

// witness leaves the row that shows that a transaction was committed.
func witness(ctx context.Context, q *sqlcgen.Queries, w lease.Witness) error {
	written, err := q.Witness(ctx, sqlcgen.WitnessParams{Replica: w.Replica, N: w.N})
	if err != nil {
		return Translate("write witness", err)
	}
	if written == 0 {
		return epoch.ErrFenced
	}
	return nil
}

// life names one run of one server, with one copy of the database on it: in
// another one commits may lack. A standby that was promoted goes on running, but
// on another timeline; a standby that was not, which may lag, fails here.
const life = `select extract(epoch from pg_postmaster_start_time()) || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)
	|| '/' || (select oid from pg_database where datname = current_database()) || '/' || 'meta'::regclass::oid`

func readLife(ctx context.Context, db sqlcgen.DBTX) (name string, err error) {
	if err := db.QueryRow(ctx, life).Scan(&name); err != nil {
		return "", Translate("read the life of the server", err)
	}
	return name, nil
}

func find(ctx context.Context, db sqlcgen.DBTX) (f lease.Finding, err error) {
	row, err := sqlcgen.New(db).ReadMark(ctx)
	if err != nil {
		return f, Translate("read mark", err)
	}
	f.Mark = lease.Mark{Epoch: row.ClusterEpoch, Rev: row.Rev, Session: row.Session, Pool: row.Pool}
	f.Life, err = readLife(ctx, db)
	return f, err
}

// EpochStore finds and declares losses of commits; it implements epoch.Store.
type EpochStore struct{ *DB }

var _ epoch.Store = EpochStore{}

// Watch implements epoch.Store.
func (s EpochStore) Watch(w *epoch.Watch) {
	s.guard.watch.Store(w)
	s.pool.Reset()
}

// Reset implements epoch.Store.
func (s EpochStore) Reset() { s.pool.Reset() }

// alone gives a connection of its own: those of the pool are refused.
func (s EpochStore) alone(ctx context.Context, do func(conn *pgx.Conn) error) error {
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return Translate("connect", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return do(conn)
}

// Find implements epoch.Store.
func (s EpochStore) Find(ctx context.Context, asks []lease.Witness) (f lease.Finding, err error) {
	var arg sqlcgen.MissingWitnessesParams
	for _, w := range asks {
		arg.Replicas, arg.Ns = append(arg.Replicas, w.Replica), append(arg.Ns, w.N)
	}
	err = s.alone(ctx, func(conn *pgx.Conn) error {
		if f, err = find(ctx, conn); err != nil {
			return err
		}
		rows, err := sqlcgen.New(conn).MissingWitnesses(ctx, arg)
		for _, row := range rows {
			f.Missing = append(f.Missing, lease.Witness{Replica: row.Replica, N: row.N})
		}
		return Translate("look for witnesses", err)
	})
	return f, err
}

// Attend implements epoch.Store.
func (s EpochStore) Attend(ctx context.Context, id string, clusterEpoch int64) (known bool, err error) {
	err = s.alone(ctx, func(conn *pgx.Conn) error {
		q := sqlcgen.New(conn)
		n, err := q.Attend(ctx, sqlcgen.AttendParams{ID: id, ClusterEpoch: clusterEpoch})
		if known = n > 0; err != nil {
			return Translate("enter replica", err)
		}
		return Translate("forget witnesses", q.ForgetGoneReplicas(ctx))
	})
	return known, err
}

// Beat implements epoch.Store.
func (s EpochStore) Beat(ctx context.Context, beat lease.Witness, oldest int64, fence []string) (f lease.Finding, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		if err := witness(ctx, q, beat); err != nil {
			return err
		}
		if err := q.ForgetWitnesses(ctx, sqlcgen.ForgetWitnessesParams{Replica: beat.Replica, Oldest: oldest}); err != nil {
			return Translate("forget witnesses", err)
		}
		if len(fence) > 0 {
			if err := q.FenceReplicas(ctx, fence); err != nil {
				return Translate("fence replicas", err)
			}
		}
		f, err = find(ctx, tx)
		return err
	})
	return f, Translate("beat", err)
}

// Complete implements epoch.Store.
func (s EpochStore) Complete(ctx context.Context) (until time.Time, err error) {
	err = s.alone(ctx, func(conn *pgx.Conn) error {
		until, err = sqlcgen.New(conn).LastWitness(ctx)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return Translate("read last witness", err)
	})
	return until, err
}

// Declare implements epoch.Store.
func (s EpochStore) Declare(ctx context.Context, clusterEpoch int64, seen lease.Mark, valid time.Duration, kept epoch.Kept) (mark lease.Mark, err error) {
	err = s.alone(ctx, func(conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			q := sqlcgen.New(tx)
			if err := q.LockMeta(ctx); err != nil {
				return fmt.Errorf("lock revision: %w", err)
			}
			f, err := find(ctx, tx)
			if mark = f.Mark; err != nil || mark.Epoch != clusterEpoch {
				return err // or another control plane has declared it
			}
			mark = seen.Next(mark)
			if err := declare(ctx, q, &mark, valid, kept.Revoked); err != nil {
				return err
			}
			return restoreVideos(ctx, tx, kept.Videos)
		})
	})
	return mark, Translate("declare loss", err)
}

func declare(ctx context.Context, q *sqlcgen.Queries, mark *lease.Mark, valid time.Duration, revoked []apikey.Hash) error {
	hashes := make([][]byte, len(revoked))
	for i := range revoked {
		hashes[i] = revoked[i][:]
	}
	lost, err := q.LostRevocations(ctx, hashes)
	if err != nil {
		return fmt.Errorf("find lost revocations: %w", err)
	}
	for _, hash := range lost {
		mark.Rev++
		key, err := q.RevokeLost(ctx, sqlcgen.RevokeLostParams{LookupHash: hash, Rev: mark.Rev})
		if err != nil {
			return fmt.Errorf("revoke again: %w", err)
		}
		change := sqlcgen.InsertKeyChangeParams{Rev: mark.Rev, Kind: string(lease.KeyRevoked), AccountID: key.AccountID, KeyID: &key.ID}
		if _, err := q.InsertKeyChange(ctx, change); err != nil {
			return fmt.Errorf("number revocation: %w", err)
		}
	}
	if err := q.DeclareLoss(ctx, sqlcgen.DeclareLossParams{ClusterEpoch: mark.Epoch, Rev: mark.Rev}); err != nil {
		return fmt.Errorf("begin epoch: %w", err)
	}
	if err := q.FenceAllReplicas(ctx); err != nil {
		return fmt.Errorf("fence replicas: %w", err)
	}
	if err := q.RaiseIDs(ctx, sqlcgen.RaiseIDsParams{Session: mark.Session, Pool: mark.Pool}); err != nil {
		return fmt.Errorf("raise ids: %w", err)
	}
	if err := q.FenceAll(ctx, valid.Seconds()); err != nil {
		return fmt.Errorf("fence sessions: %w", err)
	}
	return nil
}

// UsageReplay implements bus.Incarnations.
func (db *DB) UsageReplay(ctx context.Context) (clusterEpoch int64, from *time.Time, err error) {
	row, err := db.q.Replay(ctx)
	return row.ClusterEpoch, row.ReplayFrom, Translate("read epoch", err)
}

// Standing implements leasing.Store.
func (l *Leasing) Standing(ctx context.Context, c lease.Change) (stands bool, sinceLoss time.Duration, err error) {
	since, err := l.db.q.SinceLoss(ctx)
	if err != nil {
		return false, 0, Translate("read epoch", err)
	}
	if stands = true; c.Kind == lease.KeyRevoked {
		stands, err = l.db.q.Revoked(ctx, c.KeyHash[:])
	}
	return stands, seconds(since), Translate("read revocation", err)
}

// restore makes those earlier sessions of a proxy known again that Postgres has
// lost.
func restore(ctx context.Context, q *sqlcgen.Queries, r *lease.Register, below lease.SessionID) error {
	for _, e := range r.Earlier {
		if e.Session <= 0 || e.Session >= below {
			continue
		}
		if err := q.RestoreSession(ctx, sqlcgen.RestoreSessionParams{ID: int64(e.Session), Name: r.Name, BootID: e.Boot}); err != nil {
			return fmt.Errorf("restore session %d: %w", e.Session, err)
		}
	}
	return nil
}
