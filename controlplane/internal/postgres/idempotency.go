package postgres

import (
	"context"
	"crypto/sha256"
	"time"

	"modelgateway/controlplane/internal/idempotency"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/vault"
)

// IdempotencyStore keeps requests and answers; it implements
// idempotency.Store.
type IdempotencyStore struct{ *DB }

// Begin implements idempotency.Store.
func (s IdempotencyStore) Begin(ctx context.Context, fresh idempotency.Stored) (idempotency.Stored, error) {
	r := &fresh.Request
	inserted, err := s.q.InsertIdempotencyKey(ctx, sqlcgen.InsertIdempotencyKeyParams{
		Actor: r.Actor, Key: r.Key, Method: r.Method, Path: r.Path, BodyHash: r.BodyHash[:], OperationID: fresh.Operation,
	})
	if err != nil {
		return idempotency.Stored{}, Translate("keep request", err)
	}
	if inserted == 1 {
		return fresh, nil
	}
	row, err := s.q.GetIdempotencyKey(ctx, sqlcgen.GetIdempotencyKeyParams{Actor: r.Actor, Key: r.Key})
	if err != nil {
		return idempotency.Stored{}, Translate("find kept request", err)
	}
	return idempotency.Stored{
		Request: idempotency.Request{
			Actor: row.Actor, Key: row.Key, Method: row.Method, Path: row.Path, BodyHash: [sha256.Size]byte(row.BodyHash),
		},
		Operation: row.OperationID, Status: int(deref(row.Status)), ContentType: deref(row.ContentType), ETag: row.Etag,
		Sealed: vault.Sealed{Text: row.Body, KeyID: deref(row.CipherKeyID)},
	}, nil
}

// Finish implements idempotency.Store.
func (s IdempotencyStore) Finish(ctx context.Context, done idempotency.Stored) error {
	return Translate("keep answer", s.q.FinishIdempotencyKey(ctx, sqlcgen.FinishIdempotencyKeyParams{
		Actor: done.Request.Actor, Key: done.Request.Key, OperationID: done.Operation,
		Status: int32(done.Status), ContentType: done.ContentType, Etag: done.ETag, Body: done.Sealed.Text, CipherKeyID: done.Sealed.KeyID,
	}))
}

// Release implements idempotency.Store.
func (s IdempotencyStore) Release(ctx context.Context, refused idempotency.Stored) error {
	return Translate("forget refused request", s.q.ReleaseIdempotencyKey(ctx, sqlcgen.ReleaseIdempotencyKeyParams{
		Actor: refused.Request.Actor, Key: refused.Request.Key, OperationID: refused.Operation,
	}))
}

// Expire implements idempotency.Store.
func (s IdempotencyStore) Expire(ctx context.Context, age time.Duration) (int64, error) {
	removed, err := inBatches(func() (int64, error) {
		return s.q.ExpireIdempotencyKeys(ctx, sqlcgen.ExpireIdempotencyKeysParams{AgeSeconds: age.Seconds(), MaxRows: removeBatch})
	})
	return removed, Translate("expire kept requests", err)
}
