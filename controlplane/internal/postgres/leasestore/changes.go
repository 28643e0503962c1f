package leasestore

import (
	"context"

	"modelgateway/controlplane/internal/changestream"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/keychange"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/wire"
)

var _ changestream.Store = (*Store)(nil)

// BeginStreamed implements changestream.Store.
func (l *Store) BeginStreamed(ctx context.Context) error {
	return postgres.Translate("set the streamed revision", l.db.Queries().BeginStreamedRevision(ctx))
}

// ChangesToStream implements changestream.Store.
func (l *Store) ChangesToStream(ctx context.Context, after int64, limit int) (streamed int64, changes []wire.KeyChange, err error) {
	q := l.db.Queries()
	if streamed, err = q.StreamedRevision(ctx); err != nil {
		return 0, nil, postgres.Translate("read the streamed revision", err)
	}
	rows, err := q.ChangesAfter(ctx, sqlcgen.ChangesAfterParams{Revision: max(after, streamed), MaxRows: int32(limit)})
	if err != nil {
		return 0, nil, postgres.Translate("read changes", err)
	}
	for _, row := range rows {
		changes = append(changes, keychange.FromRow(row))
	}
	return streamed, changes, nil
}

// RaiseStreamed implements changestream.Store.
func (l *Store) RaiseStreamed(ctx context.Context, revision int64) error {
	return postgres.Translate("raise the streamed revision", l.db.Queries().RaiseStreamedRevision(ctx, revision))
}
