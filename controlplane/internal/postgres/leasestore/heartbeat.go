package leasestore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

func (l *Leases) Register(ctx context.Context, r *wire.RegisterRequest, window time.Duration) (*wire.RegisterResponse, error) {
	reply := &wire.RegisterResponse{V: wire.Version, Status: wire.Done, WindowMS: window.Milliseconds()}
	err := l.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		state, err := q.ReadClusterState(ctx)
		if err != nil {
			return fmt.Errorf("read cluster state: %w", err)
		}

		id, err := q.InsertSession(ctx, sqlcgen.InsertSessionParams{
			Name:            r.Name,
			BootID:          r.BootID,
			Build:           r.Build,
			SpoolCapacity:   r.Capacity,
			AppliedRevision: state.Revision,
			WindowMs:        window.Milliseconds(),
			ValidSeconds:    window.Seconds(),
		})
		reply.Session, reply.Revision = wire.SessionID(id), state.Revision
		reply.StreamIncarnation, reply.ClusterEpoch = fmt.Sprintf("%x", state.StreamIncarnation), state.ClusterEpoch
		if err != nil {
			return fmt.Errorf("insert session: %w", err)
		}

		without, err := q.KeyWithoutMAC(ctx, r.Peppers)
		if err != nil {
			return fmt.Errorf("find keys without a MAC: %w", err)
		}
		reply.AllHaveMAC = !without

		return restore(ctx, q, r, reply.Session, window)
	})
	return reply, postgres.Translate("register session", err)
}

// Heartbeat implements leasing.Store. A change may be committed while the
// transaction runs, so that the response lacks it. The session's row says so: the
// change is not confirmed before the session has applied it, or the stream of changes
// has confirmed it.
func (l *Leases) Heartbeat(
	ctx context.Context, r *wire.HeartbeatRequest, window time.Duration, limit int,
) (*wire.HeartbeatResponse, error) {
	reply := &wire.HeartbeatResponse{V: wire.Version}
	err := l.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		state, err := q.ReadClusterState(ctx)
		if err != nil {
			return fmt.Errorf("read cluster state: %w", err)
		}

		t, err := lockForHeartbeat(ctx, q, r.Session)
		if err != nil {
			return err
		}

		if !t.Heartbeat(r, window) {
			*reply = wire.HeartbeatResponse{V: wire.Version, Status: wire.Fenced}
			return nil
		}

		refused, err := refusedOf(r)
		if err != nil {
			return err
		}

		err = q.ExtendSession(ctx, sqlcgen.ExtendSessionParams{
			ID:                 int64(t.ID),
			ValidSeconds:       t.Remaining.Seconds(),
			AppliedRevision:    t.AppliedRevision,
			CatalogRevision:    r.CatalogRevision,
			Running:            r.Running,
			Started:            r.Started,
			SpoolUsed:          r.SpoolUsed,
			Draining:           r.Draining,
			RefusedCredentials: refused,
		})
		if err != nil {
			return fmt.Errorf("extend session: %w", err)
		}

		changes, err := q.ChangesAfter(ctx, sqlcgen.ChangesAfterParams{Revision: r.AppliedRevision, MaxRows: int32(limit)})
		if err != nil {
			return fmt.Errorf("read changes: %w", err)
		}

		*reply = wire.HeartbeatResponse{
			V:                 wire.Version,
			Status:            wire.Done,
			More:              len(changes) == limit,
			StreamIncarnation: fmt.Sprintf("%x", state.StreamIncarnation),
			ClusterEpoch:      state.ClusterEpoch,
		}

		for _, c := range changes {
			reply.Changes = append(reply.Changes, changestore.KeyChangeOf(c))
		}

		return nil
	})
	return reply, postgres.Translate("extend session", err)
}

// maxReleased bounds the leases that one transaction releases: it locks their
// pools, and other proxies wait for them.
const maxReleased = 500

// Close implements leasing.Store. A session that holds many leases is closed in
// several transactions; it remains fenced until the last one.
func (l *Leases) Close(ctx context.Context, r *wire.CloseRequest) (closed bool, err error) {
	for more := true; more && err == nil; {
		closed, more, err = l.release(ctx, r)
	}
	return closed, postgres.Translate("close session", err)
}

// release closes a session, or releases some of its leases if there are more. It
// takes the exclusive lock of the session first: settlement holds a shared lock of
// the session while it waits to update the row.
func (l *Leases) release(ctx context.Context, r *wire.CloseRequest) (done, more bool, err error) {
	err = l.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		more = false
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
			return nil // closed already, or the session of another process of the proxy
		}

		if t.State == session.Closed {
			if more, err = releaseLeases(ctx, q, t.ID); err != nil {
				return err
			}
		}

		if more {
			t.State, done = session.Fenced, false
		}

		ended := sqlcgen.EndSessionParams{ID: int64(t.ID), State: int16(t.State), Running: r.FinalCount == wire.NotFinal}
		if r.FinalCount != wire.NotFinal {
			ended.FinalCount = &r.FinalCount
		}
		if err := q.EndSession(ctx, ended); err != nil {
			return fmt.Errorf("end session: %w", err)
		}

		return nil
	})
	return done, more, err
}

// closeExpired closes a fenced session that had no heartbeat for closeAfter, unless
// it was closed meanwhile.
func (l *Leases) closeExpired(ctx context.Context, id wire.SessionID, heardFor, closeAfter time.Duration) (closed bool, err error) {
	for more := true; more && err == nil; {
		err = l.db.InTx(ctx, func(tx pgx.Tx) error {
			q := sqlcgen.New(tx)
			more = false
			t, err := lockSession(ctx, q, id)
			if closed = err == nil && t.Over(heardFor, closeAfter); !closed {
				return err
			}
			if more, err = releaseLeases(ctx, q, id); more || err != nil {
				return err
			}
			if err := q.EndSession(ctx, sqlcgen.EndSessionParams{ID: int64(id), State: int16(session.Closed)}); err != nil {
				return fmt.Errorf("end session: %w", err)
			}
			return nil
		})
	}
	return closed && err == nil, err
}

// releaseLeases returns the outstanding units of a session that is being closed to
// their pools, up to maxReleased. It reports whether there are more. The session's
// row is locked for update, so that no transaction uses its leases. Leases that
// hold nothing are left alone: a session may have used very many pools.
func releaseLeases(ctx context.Context, q *sqlcgen.Queries, id wire.SessionID) (more bool, err error) {
	pools, err := q.PoolsOfSession(ctx, sqlcgen.PoolsOfSessionParams{SessionID: int64(id), MaxRows: maxReleased + 1})
	if err != nil {
		return false, fmt.Errorf("list leases: %w", err)
	}
	if more = len(pools) > maxReleased; more {
		pools = pools[:maxReleased]
	}
	stored, err := LoadPools(ctx, q, pools, []int64{int64(id)})
	if err != nil {
		return false, err
	}
	units := stored.Allocator()
	units.CloseSession(id)
	return more, stored.Save(ctx, q, units)
}

// Sweep implements leasing.Store. An error with one session does not stop the
// others from being closed.
func (l *Leases) Sweep(ctx context.Context, window, closeAfter time.Duration, connected bool) (closed int, err error) {
	if err = l.markExpired(ctx, window); err != nil {
		return 0, postgres.Translate("mark expired sessions", err)
	}

	l.presence.seen(connected, window)
	heardFor := min(l.db.ServingFor(), l.presence.hearingFor(window))
	rows, err := l.db.Queries().FencedSessions(ctx)
	if err != nil {
		return 0, postgres.Translate("list fenced sessions", err)
	}

	// Until the recovery wait is over, a proxy may still admit under a session that the loss has fenced.
	if epoch, err := l.db.Queries().RecoveringEpoch(ctx); epoch != 0 || err != nil {
		return 0, postgres.Translate("read the recovery wait", err)
	}

	var errs []error
	for _, row := range rows {
		t := session.Record{ID: wire.SessionID(row.ID), State: session.Fenced, Remaining: postgres.Seconds(row.LeftSeconds)}
		if !t.Over(heardFor, closeAfter) {
			break // the other sessions had a later heartbeat
		}
		done, err := l.closeExpired(ctx, t.ID, heardFor, closeAfter)
		if err != nil {
			errs = append(errs, postgres.Translate(fmt.Sprintf("close session %d", t.ID), err))
		}
		if done {
			closed++
		}
	}

	return closed, errors.Join(errs...)
}

// servingFor returns how long this replica has served in the server incarnation
// without an absence of Postgres or of its own that was longer than the window.
func (l *Leases) servingFor(window time.Duration) time.Duration {
	return min(l.db.ServingFor(), l.presence.servingFor(window))
}

// markExpired marks the sessions that have expired. Their proxies may still admit:
// package changestream fences them when the stream of changes has confirmed it.
func (l *Leases) markExpired(ctx context.Context, window time.Duration) error {
	return l.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		rows, err := q.ExpiredSessions(ctx)
		if err != nil {
			return err
		}

		servingFor := l.servingFor(window) // within the transaction, so that it belongs to this server incarnation
		var expired []int64
		for _, row := range rows {
			t := session.Record{
				State:     session.Active,
				Remaining: session.Remaining(postgres.Seconds(row.LeftSeconds), servingFor, window),
			}
			if t.Expired() {
				expired = append(expired, row.ID)
			}
		}
		if len(expired) == 0 {
			return nil
		}
		return q.EndSessions(ctx, expired)
	})
}
