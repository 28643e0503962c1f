package leasestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/postgres/videostore"
	"modelgateway/controlplane/internal/recovery"
	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/wire"
)

// readObservation reads the high-water mark and the incarnation of the server.
func readObservation(ctx context.Context, db sqlcgen.DBTX) (f rollback.Observation, err error) {
	row, err := sqlcgen.New(db).ReadHighWaterMark(ctx)
	if err != nil {
		return f, postgres.Translate("read high-water mark", err)
	}
	f.Recovering = row.Recovering
	f.Mark = rollback.HighWaterMark{
		Epoch:    row.ClusterEpoch,
		Revision: row.Revision,
		Session:  row.Session,
		Pool:     row.Pool,
	}
	f.Incarnation, err = postgres.ReadIncarnation(ctx, db)
	return f, err
}

// Recovery has the markers, replicas and epochs of the cluster, and declares losses.
type Recovery struct {
	db     *postgres.DB
	others []*postgres.DB
}

// NewRecovery returns the store of this database. others are the other pools of connections
// that this process has to it.
func NewRecovery(db *postgres.DB, others ...*postgres.DB) *Recovery { return &Recovery{db, others} }

var _ recovery.Store = (*Recovery)(nil)

func (s *Recovery) SetGuard(g *recovery.Guard) {
	s.db.SetGuard(g)
	for _, other := range s.others {
		other.SetGuard(g)
	}
}

func (s *Recovery) CloseConnections() {
	s.db.Pool().Reset()
	for _, other := range s.others {
		other.Pool().Reset()
	}
}

// withOwnConnection calls do with a connection that is not of the pool, because the
// guard may refuse those of the pool.
func (s *Recovery) withOwnConnection(ctx context.Context, do func(conn *pgx.Conn) error) error {
	conn, err := pgx.ConnectConfig(ctx, s.db.Pool().Config().ConnConfig)
	if err != nil {
		return postgres.Translate("connect", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return do(conn)
}

func (s *Recovery) Observe(ctx context.Context, markers []rollback.CommitMarker) (f rollback.Observation, err error) {
	var arg sqlcgen.MissingCommitMarkersParams
	for _, w := range markers {
		arg.ReplicaIds, arg.Numbers = append(arg.ReplicaIds, w.Replica), append(arg.Numbers, w.N)
	}
	err = s.withOwnConnection(ctx, func(conn *pgx.Conn) error {
		if f, err = readObservation(ctx, conn); err != nil {
			return err
		}
		rows, err := sqlcgen.New(conn).MissingCommitMarkers(ctx, arg)
		for _, row := range rows {
			f.MissingMarkers = append(f.MissingMarkers, rollback.CommitMarker{Replica: row.ReplicaID, N: row.Number})
		}
		return postgres.Translate("find missing commit markers", err)
	})
	return f, err
}

func (s *Recovery) AddReplica(ctx context.Context, id string, clusterEpoch int64) (known bool, err error) {
	err = s.withOwnConnection(ctx, func(conn *pgx.Conn) error {
		q := sqlcgen.New(conn)
		n, err := q.RegisterReplica(ctx, sqlcgen.RegisterReplicaParams{ID: id, ClusterEpoch: clusterEpoch})
		if known = n > 0; err != nil {
			return postgres.Translate("add replica", err)
		}
		return postgres.Translate("delete commit markers", q.DeleteOrphanedCommitMarkers(ctx))
	})
	return known, err
}

// Checkpoint implements recovery.Store. The connections of the replicas to fence
// are closed first, because fencing waits for their open transactions.
func (s *Recovery) Checkpoint(ctx context.Context, c recovery.Checkpoint) (f rollback.Observation, err error) {
	if err := s.terminate(
		ctx,
		slices.DeleteFunc(slices.Clone(c.Fence), func(id string) bool { return id == c.Marker.Replica }),
	); err != nil {
		return f, err
	}

	err = pgx.BeginFunc(ctx, s.db.Pool(), func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		if err := postgres.WriteCommitMarker(ctx, q, c.Marker); err != nil {
			return err
		}
		if err := q.DeleteCommitMarkers(ctx, sqlcgen.DeleteCommitMarkersParams{ReplicaID: c.Marker.Replica, Oldest: c.Oldest}); err != nil {
			return postgres.Translate("delete commit markers", err)
		}

		if len(c.Fence) > 0 {
			if err := q.FenceReplicas(ctx, c.Fence); err != nil {
				return postgres.Translate("fence replicas", err)
			}
		}

		if f, err = readObservation(ctx, tx); err != nil || !f.Recovering || f.Mark.Epoch != c.Recovered {
			return err
		}
		if err := q.EndRecoveryWait(ctx, c.Recovered); err != nil {
			return postgres.Translate("end the recovery wait", err)
		}

		f, err = readObservation(ctx, tx)
		return err
	})
	return f, postgres.Translate("checkpoint", err)
}

// terminateQuery ends the connections of other replicas, with their transactions.
// It needs no privilege, because all replicas have the same role.
const terminateQuery = `select pg_terminate_backend(pid) from pg_stat_activity
	where application_name = any($1) and datname = current_database() and usename = current_user and pid <> pg_backend_pid()`

// terminate closes the connections of replicas.
func (s *Recovery) terminate(ctx context.Context, replicas []string) error {
	if len(replicas) == 0 {
		return nil
	}
	names := make([]string, len(replicas))
	for i, id := range replicas {
		names[i] = postgres.ApplicationName(id)
	}
	_, err := s.db.Pool().Exec(ctx, terminateQuery, names)
	return postgres.Translate("close the connections of fenced replicas", err)
}

func (s *Recovery) LastCheckpoint(ctx context.Context) (until time.Time, err error) {
	err = s.withOwnConnection(ctx, func(conn *pgx.Conn) error {
		until, err = sqlcgen.New(conn).LastCommitMarker(ctx)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return postgres.Translate("read last commit marker", err)
	})
	return until, err
}

func (s *Recovery) DeclareLoss(
	ctx context.Context, clusterEpoch int64, seen rollback.HighWaterMark, window time.Duration, backup recovery.Backup,
) (mark rollback.HighWaterMark, err error) {
	err = s.withOwnConnection(ctx, func(conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			q := sqlcgen.New(tx)
			if err := q.LockClusterState(ctx); err != nil {
				return fmt.Errorf("lock cluster state: %w", err)
			}
			f, err := readObservation(ctx, tx)
			if mark = f.Mark; err != nil || mark.Epoch != clusterEpoch {
				return err // another control plane has declared it already
			}
			mark = seen.Next(mark)
			if err := declare(ctx, q, &mark, window, backup.RevokedKeys); err != nil {
				return err
			}
			return videostore.Restore(ctx, tx, backup.Videos)
		})
	})
	return mark, postgres.Translate("declare loss", err)
}

func declare(ctx context.Context, q *sqlcgen.Queries, mark *rollback.HighWaterMark, window time.Duration, revoked []apikey.Hash) error {
	hashes := make([][]byte, len(revoked))
	for i := range revoked {
		hashes[i] = revoked[i][:]
	}

	lost, err := q.LostRevocations(ctx, hashes)
	if err != nil {
		return fmt.Errorf("find lost revocations: %w", err)
	}

	for _, hash := range lost {
		mark.Revision++
		key, err := q.RestoreRevocation(ctx, sqlcgen.RestoreRevocationParams{LookupHash: hash, Revision: mark.Revision})
		if err != nil {
			return fmt.Errorf("restore revocation: %w", err)
		}
		change := sqlcgen.InsertKeyChangeParams{
			Revision:   mark.Revision,
			Kind:       string(wire.KeyRevoked),
			AccountID:  key.AccountID,
			KeyID:      &key.ID,
			LookupHash: hash,
		}
		if _, err := q.InsertKeyChange(ctx, change); err != nil {
			return fmt.Errorf("write key change: %w", err)
		}
	}

	if err := q.DeclareLoss(ctx, sqlcgen.DeclareLossParams{ClusterEpoch: mark.Epoch, Revision: mark.Revision}); err != nil {
		return fmt.Errorf("begin epoch: %w", err)
	}
	if err := q.FenceAllReplicas(ctx); err != nil {
		return fmt.Errorf("fence replicas: %w", err)
	}
	if err := q.RaiseIDs(ctx, sqlcgen.RaiseIDsParams{Session: mark.Session, Pool: mark.Pool}); err != nil {
		return fmt.Errorf("raise ids: %w", err)
	}
	if err := q.FenceAllSessions(ctx, window.Seconds()); err != nil {
		return fmt.Errorf("fence sessions: %w", err)
	}

	return nil
}

// settledOverlap is how much usage before the newest settled request is read
// again by a new consumer: requests end, and their usage arrives, in another order
// than they begin in.
const settledOverlap = time.Hour

// UsageReplay implements bus.StreamStore. In a cluster epoch, usage is settled
// again from some time before the loss; a consumer that is created again later
// begins some time before the newest request that was settled since.
func (s *Recovery) UsageReplay(ctx context.Context) (clusterEpoch int64, from *time.Time, err error) {
	row, err := s.db.Queries().UsageReplay(ctx)
	if err != nil {
		return 0, nil, postgres.Translate("read epoch", err)
	}

	newest, err := s.db.Queries().NewestRecord(ctx)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return row.ClusterEpoch, row.UsageReplayFrom, nil
	case err != nil:
		return 0, nil, postgres.Translate("read newest usage record", err)
	case row.LostAt != nil && !newest.SettledAt.After(*row.LostAt):
		return row.ClusterEpoch, row.UsageReplayFrom, nil
	}

	begun := newest.RequestID.Time()
	if begun.After(newest.SettledAt) {
		begun = newest.SettledAt // the clock of the proxy was ahead
	}

	begun = begun.Add(-settledOverlap)
	if row.UsageReplayFrom != nil && begun.Before(*row.UsageReplayFrom) {
		begun = *row.UsageReplayFrom
	}

	return row.ClusterEpoch, &begun, nil
}

// RecordNewStream records that the usage stream was created again. Proxies see the
// new stream incarnation in the response to their next heartbeat, and publish
// unsettled events again.
func (s *Recovery) RecordNewStream(ctx context.Context) error {
	return postgres.Translate("change stream incarnation", s.db.Queries().RenewStreamIncarnation(ctx))
}
