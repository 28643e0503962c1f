package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"modelgateway/controlplane/internal/epoch"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/apikey"
	"modelgateway/shared/lease"
)

// guard refuses connections to a Postgres that lacks commits which the mark
// has seen.
type guard struct {
	mu   sync.Mutex
	mark lease.Mark
}

// check is called with every new connection before it is used: a Postgres that
// was replaced is met on new connections only.
func (g *guard) check(ctx context.Context, conn *pgx.Conn) error {
	g.mu.Lock()
	seen := g.mark
	g.mu.Unlock()
	if seen == (lease.Mark{}) {
		return nil // nothing is known yet, the schema perhaps not made
	}
	now, err := readMark(ctx, conn)
	if err != nil {
		return fmt.Errorf("compare with the mark: %w", err)
	}
	if seen.Lost(now) {
		return epoch.ErrLost
	}
	return nil
}

// sawWAL notes a position of Postgres's log that was committed: a copy from
// before it is met by the next new connection.
func (g *guard) sawWAL(position int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mark.Epoch > 0 {
		g.mark.WAL = max(g.mark.WAL, position)
	}
}

// seen is the mark with what this replica has seen since.
func (g *guard) seen(mark lease.Mark) lease.Mark {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mark.Merge(mark)
}

// timeline names the life of the server: its cluster, and how often it was
// promoted or recovered. It is empty where the role may not ask.
const timeline = `select s.system_identifier::text || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) from pg_control_system() s`

func readMark(ctx context.Context, db sqlcgen.DBTX) (lease.Mark, error) {
	row, err := sqlcgen.New(db).ReadMark(ctx)
	if err != nil {
		return lease.Mark{}, fmt.Errorf("read mark: %w", err)
	}
	mark := lease.Mark{Epoch: row.ClusterEpoch, Beat: row.Beat, Rev: row.Rev, Session: row.Session, Pool: row.Pool, WAL: row.Wal}
	err = db.QueryRow(ctx, timeline).Scan(&mark.Timeline)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == stateForbidden {
		err = nil
	}
	if err != nil {
		return lease.Mark{}, fmt.Errorf("read timeline: %w", err)
	}
	return mark, nil
}

// stateForbidden says that the role lacks a privilege.
const stateForbidden = "42501"

// EpochStore finds and declares losses of commits; it implements epoch.Store.
type EpochStore struct{ *DB }

var _ epoch.Store = EpochStore{}

// Expect implements epoch.Store.
func (s EpochStore) Expect(mark lease.Mark) {
	s.guard.mu.Lock()
	defer s.guard.mu.Unlock()
	s.guard.mark = s.guard.mark.Merge(mark)
}

// Beat implements epoch.Store.
func (s EpochStore) Beat(ctx context.Context) (lease.Mark, error) {
	if err := s.q.Beat(ctx); err != nil {
		return lease.Mark{}, lost("beat", err)
	}
	mark, err := readMark(ctx, s.pool)
	return mark, lost("beat", err)
}

// lost tells a refused connection from other errors.
func lost(operation string, err error) error {
	if errors.Is(err, epoch.ErrLost) {
		return epoch.ErrLost
	}
	return Translate(operation, err)
}

// Declare implements epoch.Store. It works on a connection of its own: those
// of the pool are refused.
func (s EpochStore) Declare(ctx context.Context, seen lease.Mark, force bool, valid time.Duration, revoked []apikey.Hash) (lease.Mark, error) {
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return lease.Mark{}, fmt.Errorf("postgres: declare loss: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	seen = s.guard.seen(seen)
	var mark lease.Mark
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		if err := q.LockMeta(ctx); err != nil {
			return fmt.Errorf("lock revision: %w", err)
		}
		var err error
		if mark, err = readMark(ctx, tx); err != nil || (!force && !seen.Lost(mark)) {
			return err // or another control plane has declared it
		}
		mark = seen.Next(mark)
		return declare(ctx, q, &mark, valid, revoked)
	})
	if err != nil {
		return lease.Mark{}, Translate("declare loss", err)
	}
	s.Expect(mark)
	s.pool.Reset()
	return mark, nil
}

func declare(ctx context.Context, q *sqlcgen.Queries, mark *lease.Mark, valid time.Duration, revoked []apikey.Hash) error {
	for _, hash := range revoked {
		mark.Rev++
		key, err := q.RevokeLost(ctx, sqlcgen.RevokeLostParams{LookupHash: hash[:], Rev: mark.Rev})
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			mark.Rev-- // revoked still, or the key itself is lost
			continue
		case err != nil:
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
	if err := q.SetBeat(ctx, mark.Beat); err != nil {
		return fmt.Errorf("raise beat: %w", err)
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
