package changestore

import (
	"context"
	"fmt"

	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
	"modelgateway/shared/wire"
)

// maxBefore bounds the changes that are pushed with the last one. Those of a key that was rotated more often and is revoked are the
// newest, since older secrets have ended; each proxy confirms its revocation after a heartbeat.
const maxBefore = 16

// InsertKeyChange writes a change of a key, or of an account if key is nil, at a revision.
// A proxy may have cached a key under any of its hashes, so each hash gets a
// change. The change of the key's own hash is the last one and is returned, with
// the others: a proxy that has applied it has applied them.
func InsertKeyChange(
	ctx context.Context,
	q *sqlcgen.Queries,
	rev int64,
	kind wire.KeyChangeKind,
	account ident.UUID,
	key *sqlcgen.ApiKey,
) (wire.KeyChange, error) {
	row := sqlcgen.InsertKeyChangeParams{Revision: rev, Kind: string(kind), AccountID: account}
	if key == nil {
		return insertChange(ctx, q, row, nil)
	}

	row.KeyID = &key.ID
	hashes, err := q.FurtherHashes(ctx, sqlcgen.FurtherHashesParams{KeyID: key.ID, Revision: rev, Revoked: kind == wire.KeyRevoked})
	if err != nil {
		return wire.KeyChange{}, err
	}

	var changes []wire.KeyChange
	for _, row.LookupHash = range append(hashes, key.LookupHash) {
		if len(changes) > 0 {
			if row.Revision, err = q.TakeRevision(ctx); err != nil {
				return wire.KeyChange{}, err
			}
		}
		change, err := insertChange(ctx, q, row, row.LookupHash)
		if err != nil {
			return wire.KeyChange{}, err
		}
		changes = append(changes, change)
	}

	return together(changes), nil
}

// together returns the last of the changes that were committed together, with the newest of the others.
func together(changes []wire.KeyChange) wire.KeyChange {
	changes = changes[max(len(changes)-1-maxBefore, 0):]
	for i := 1; i < len(changes); i++ {
		changes[i].Before = &changes[i-1]
	}
	return changes[len(changes)-1]
}

// Revocation returns the revocation of a key that is revoked, as InsertKeyChange has returned it.
func Revocation(ctx context.Context, q *sqlcgen.Queries, key *sqlcgen.ApiKey) (wire.KeyChange, error) {
	rows, err := q.RevocationsOfKey(ctx, key.ID)
	if err != nil {
		return wire.KeyChange{}, fmt.Errorf("revocations of key: %w", err)
	}
	if len(rows) == 0 {
		return wire.KeyChange{}, fmt.Errorf("key %s is revoked without a change", key.ID)
	}

	changes := make([]wire.KeyChange, len(rows))
	for i, row := range rows {
		changes[i] = NewKeyChange(row.Revision, row.PreviousRevision, wire.KeyRevoked, key.AccountID, row.LookupHash)
	}
	return together(changes), nil
}

func insertChange(ctx context.Context, q *sqlcgen.Queries, row sqlcgen.InsertKeyChangeParams, hash []byte) (wire.KeyChange, error) {
	inserted, err := q.InsertKeyChange(ctx, row)
	if err != nil {
		return wire.KeyChange{}, err
	}
	return NewKeyChange(inserted.Revision, inserted.PreviousRevision, wire.KeyChangeKind(row.Kind), row.AccountID, hash), nil
}

// NewKeyChange returns a change as it is pushed to the proxies; a nil hash is that of an
// account.
func NewKeyChange(rev, prev int64, kind wire.KeyChangeKind, account ident.UUID, hash []byte) wire.KeyChange {
	c := wire.KeyChange{
		V:                wire.Version,
		Revision:         rev,
		PreviousRevision: prev,
		Kind:             kind,
		Account:          ident.Account.Format(account),
	}
	if hash != nil {
		c.KeyHash = apikey.Hash(hash)
	}
	return c
}

// KeyChangeOf returns a stored change as it is pushed to the proxies.
func KeyChangeOf(c sqlcgen.ChangesAfterRow) wire.KeyChange {
	return NewKeyChange(c.Revision, c.PreviousRevision, wire.KeyChangeKind(c.Kind), c.AccountID, c.LookupHash)
}
