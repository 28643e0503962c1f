package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/audit"
	"modelgateway/controlplane/internal/change"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease"
)

// write runs a change in a transaction that has taken the next revision, so
// that changes are numbered in commit order.
func (db *DB) write(ctx context.Context, operation string, fn func(q *sqlcgen.Queries, rev int64) error) error {
	return db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		rev, err := q.NextRev(ctx)
		if err != nil {
			return Translate(operation, err)
		}
		return Translate(operation, fn(q, rev))
	})
}

// note writes an audit entry. Before and after are written as JSON; nil means
// that the object did not exist.
func note(ctx context.Context, q *sqlcgen.Queries, action string, object fmt.Stringer, before, after any) error {
	by := audit.By(ctx)
	entry := sqlcgen.InsertAuditParams{Actor: by.Name, RequestID: by.RequestID, Action: action, Object: object.String()}
	for _, side := range []struct {
		value any
		into  *[]byte
	}{{before, &entry.Before}, {after, &entry.After}} {
		if side.value == nil {
			continue
		}
		text, err := json.Marshal(side.value)
		if err != nil {
			return fmt.Errorf("audit %s: %w", action, err)
		}
		*side.into = text
	}
	return q.InsertAudit(ctx, entry)
}

// keepChange numbers a change of a key or account for the proxies. Key is nil
// for a change of the whole account. A key that has several hashes may be known
// to proxies by any of them: each gets a change of its own. That of the key's
// own hash is the last and is returned: nobody has applied it who has not
// applied the others, and it is what is remembered outside of Postgres.
func keepChange(ctx context.Context, q *sqlcgen.Queries, rev int64, kind lease.ChangeKind, account ident.UUID, key *sqlcgen.ApiKey) (lease.Change, error) {
	row := sqlcgen.InsertKeyChangeParams{Rev: rev, Kind: string(kind), AccountID: account}
	if key == nil {
		return insertChange(ctx, q, row, nil)
	}
	row.KeyID = &key.ID
	hashes, err := q.OtherHashes(ctx, key.ID)
	if err != nil {
		return lease.Change{}, err
	}
	for _, row.LookupHash = range hashes {
		if _, err := insertChange(ctx, q, row, row.LookupHash); err != nil {
			return lease.Change{}, err
		}
		if row.Rev, err = q.NextRev(ctx); err != nil {
			return lease.Change{}, err
		}
	}
	row.LookupHash = nil
	return insertChange(ctx, q, row, key.LookupHash)
}

func insertChange(ctx context.Context, q *sqlcgen.Queries, row sqlcgen.InsertKeyChangeParams, hash []byte) (lease.Change, error) {
	kept, err := q.InsertKeyChange(ctx, row)
	if err != nil {
		return lease.Change{}, err
	}
	c := changeOf(kept.Rev, kept.Prev, lease.ChangeKind(row.Kind), row.AccountID, hash)
	change.Made(ctx, c)
	return c, nil
}

func changeOf(rev, prev int64, kind lease.ChangeKind, account ident.UUID, hash []byte) lease.Change {
	c := lease.Change{V: lease.Version, Rev: rev, Prev: prev, Kind: kind, Account: ident.Account.Format(account)}
	if hash != nil {
		c.KeyHash = apikey.Hash(hash)
	}
	return c
}
