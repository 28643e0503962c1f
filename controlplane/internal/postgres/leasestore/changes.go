package leasestore

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/changestream"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/wire"
)

var _ changestream.Store = (*Leases)(nil)

func (l *Leases) ChangesToStream(ctx context.Context, after int64, limit int) (streamed int64, changes []wire.KeyChange, err error) {
	q := l.db.Queries()
	if streamed, err = q.StreamedRevision(ctx); err != nil {
		return 0, nil, postgres.Translate("read the streamed revision", err)
	}
	rows, err := q.ChangesAfter(ctx, sqlcgen.ChangesAfterParams{Revision: max(after, streamed), MaxRows: int32(limit)})
	if err != nil {
		return 0, nil, postgres.Translate("read changes", err)
	}
	for _, row := range rows {
		changes = append(changes, changestore.KeyChangeOf(row))
	}
	return streamed, changes, nil
}

func (l *Leases) EndingSessions(ctx context.Context) (sessions []changestream.EndingSession, epoch int64, err error) {
	q := l.db.Queries()
	rows, err := q.EndingSessions(ctx)
	if err != nil {
		return nil, 0, postgres.Translate("list ending sessions", err)
	}
	for _, row := range rows {
		sessions = append(
			sessions,
			changestream.EndingSession{ID: wire.SessionID(row.ID), Window: time.Duration(row.WindowMs) * time.Millisecond},
		)
	}
	epoch, err = q.RecoveringEpoch(ctx)
	return sessions, epoch, postgres.Translate("read the recovery wait", err)
}

func (l *Leases) FenceEnding(ctx context.Context, ids []wire.SessionID) (fenced int, err error) {
	list := make([]int64, len(ids))
	for i, id := range ids {
		list[i] = int64(id)
	}
	rows, err := l.db.Queries().FenceEndingSessions(ctx, list)
	return int(rows), postgres.Translate("fence sessions", err)
}

func (l *Leases) LongestWindow(ctx context.Context) (time.Duration, error) {
	longest, err := l.db.Queries().LongestWindow(ctx)
	return time.Duration(longest) * time.Millisecond, postgres.Translate("read windows of sessions", err)
}

func (l *Leases) RaiseStreamed(ctx context.Context, revision int64) error {
	return postgres.Translate("raise the streamed revision", l.db.Queries().RaiseStreamedRevision(ctx, revision))
}
