// Package keychange numbers changes of keys and accounts that proxies must apply. The
// other stores write them in the transaction of the change.
package keychange

import (
	"context"

	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
	"modelgateway/shared/wire"
)

// keepChange numbers a change of a key or account for the proxies. Key is nil
// for a change of the whole account. A key that has several hashes may be known
// to proxies by any of them: each gets a change of its own. That of the key's
// own hash is the last and is returned: nobody has applied it who has not
// applied the others, and it is what is remembered outside of Postgres.
func Insert(ctx context.Context, q *sqlcgen.Queries, rev int64, kind wire.KeyChangeKind, account ident.UUID, key *sqlcgen.ApiKey) (wire.KeyChange, error) {
	row := sqlcgen.InsertKeyChangeParams{Revision: rev, Kind: string(kind), AccountID: account}
	if key == nil {
		return insertChange(ctx, q, row, nil)
	}
	row.KeyID = &key.ID
	hashes, err := q.FurtherHashes(ctx, key.ID)
	if err != nil {
		return wire.KeyChange{}, err
	}
	for _, row.LookupHash = range hashes {
		if _, err := insertChange(ctx, q, row, row.LookupHash); err != nil {
			return wire.KeyChange{}, err
		}
		if row.Revision, err = q.TakeRevision(ctx); err != nil {
			return wire.KeyChange{}, err
		}
	}
	row.LookupHash = nil
	return insertChange(ctx, q, row, key.LookupHash)
}

func insertChange(ctx context.Context, q *sqlcgen.Queries, row sqlcgen.InsertKeyChangeParams, hash []byte) (wire.KeyChange, error) {
	kept, err := q.InsertKeyChange(ctx, row)
	if err != nil {
		return wire.KeyChange{}, err
	}
	c := New(kept.Revision, kept.PreviousRevision, wire.KeyChangeKind(row.Kind), row.AccountID, hash)
	return c, nil
}

func New(rev, prev int64, kind wire.KeyChangeKind, account ident.UUID, hash []byte) wire.KeyChange {
	c := wire.KeyChange{V: wire.Version, Revision: rev, PreviousRevision: prev, Kind: kind, Account: ident.Account.Format(account)}
	if hash != nil {
		c.KeyHash = apikey.Hash(hash)
	}
	return c
}

// FromRow returns a stored change as it is pushed to the proxies.
func FromRow(c sqlcgen.ChangesAfterRow) wire.KeyChange {
	made := wire.KeyChange{V: wire.Version, Revision: c.Revision, PreviousRevision: c.PreviousRevision, Kind: wire.KeyChangeKind(c.Kind), Account: ident.Account.Format(c.AccountID)}
	if len(c.LookupHash) == len(apikey.Hash{}) {
		made.KeyHash = apikey.Hash(c.LookupHash)
	}
	return made
}
