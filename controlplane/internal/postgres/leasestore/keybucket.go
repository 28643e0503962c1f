package leasestore

import (
	"context"

	"modelgateway/controlplane/internal/keybucket"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
	"modelgateway/shared/wire"
)

var _ keybucket.Store = (*Leases)(nil)

func (l *Leases) Head(ctx context.Context) (wire.KeyMark, error) {
	row, err := l.db.Queries().KeyHead(ctx)
	return wire.KeyMark{V: wire.Version, Epoch: row.ClusterEpoch, Revision: row.Revision}, postgres.Translate("read revision", err)
}

func (l *Leases) CountKeys(ctx context.Context) (int64, error) {
	n, err := l.db.Queries().CountAllKeys(ctx)
	return n, postgres.Translate("count keys", err)
}

func (l *Leases) Keys(ctx context.Context, since int64, after ident.UUID, limit int) (page keybucket.Page, err error) {
	var rows []sqlcgen.HashesOfChangedKeysRow
	if since == 0 {
		all, err := l.db.Queries().HashesOfKeys(ctx, sqlcgen.HashesOfKeysParams{After: after, RowLimit: int32(limit)})
		if err != nil {
			return page, postgres.Translate("list keys", err)
		}
		for _, row := range all {
			rows = append(rows, sqlcgen.HashesOfChangedKeysRow(row))
		}
	} else if rows, err = l.db.PlannedQueries().HashesOfChangedKeys(ctx, sqlcgen.HashesOfChangedKeysParams{
		Since:    since,
		After:    after,
		RowLimit: int32(limit),
	}); err != nil {
		return page, postgres.Translate("list changed keys", err)
	}

	page.Last = after
	for _, row := range rows {
		if row.ID != page.Last {
			page.Keys, page.Last = page.Keys+1, row.ID
		}
		page.Hashes = append(page.Hashes, apikey.Hash(row.Hash))
	}

	return page, nil
}

func (l *Leases) KeyEntries(ctx context.Context, hashes []apikey.Hash) ([]wire.KeyEntry, error) {
	loaded, epoch, err := l.loadKeys(ctx, hashes)
	if err != nil {
		return nil, err
	}

	entries := make([]wire.KeyEntry, 0, len(hashes))
	for _, hash := range hashes {
		if found := loaded[hash]; found != nil && found.Record != nil {
			entries = append(entries, wire.KeyEntry{
				V:        wire.Version,
				Hash:     hash,
				Epoch:    epoch,
				Revision: found.ReadRevision,
				Record:   *found.Record,
			})
		}
	}

	return entries, nil
}
