package accountstore

import (
	"context"
	"crypto/sha256"
	"time"

	"modelgateway/controlplane/internal/idempotency"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/vault"
)

// Idempotency keeps requests and responses.
type Idempotency struct{ db *postgres.DB }

// NewIdempotency returns a store that uses db.
func NewIdempotency(db *postgres.DB) *Idempotency { return &Idempotency{db} }

func (s *Idempotency) Begin(ctx context.Context, fresh idempotency.Stored) (idempotency.Stored, error) {
	r := &fresh.Request
	inserted, err := s.db.Queries().InsertIdempotencyKey(ctx, sqlcgen.InsertIdempotencyKeyParams{
		Actor:       r.Actor,
		Key:         r.Key,
		Method:      r.Method,
		Path:        r.Path,
		BodyHash:    r.BodyHash[:],
		OperationID: fresh.Operation,
	})
	if err != nil {
		return idempotency.Stored{}, postgres.Translate("insert idempotency key", err)
	}
	if inserted == 1 {
		return fresh, nil
	}

	row, err := s.db.Queries().GetIdempotencyKey(ctx, sqlcgen.GetIdempotencyKeyParams{Actor: r.Actor, Key: r.Key})
	if err != nil {
		return idempotency.Stored{}, postgres.Translate("read idempotency key", err)
	}

	return idempotency.Stored{
		Request: idempotency.Request{
			Actor:    row.Actor,
			Key:      row.Key,
			Method:   row.Method,
			Path:     row.Path,
			BodyHash: [sha256.Size]byte(row.BodyHash),
		},
		Operation:   row.OperationID,
		Status:      int(postgres.Deref(row.Status)),
		ContentType: postgres.Deref(row.ContentType),
		ETag:        row.Etag,
		Sealed:      vault.Sealed{Text: row.Body, KeyID: postgres.Deref(row.CipherKeyID)},
	}, nil
}

func (s *Idempotency) Finish(ctx context.Context, done idempotency.Stored) error {
	return postgres.Translate("write response", s.db.Queries().FinishIdempotencyKey(ctx, sqlcgen.FinishIdempotencyKeyParams{
		Actor:       done.Request.Actor,
		Key:         done.Request.Key,
		OperationID: done.Operation,
		Status:      int32(done.Status),
		ContentType: done.ContentType,
		Etag:        done.ETag,
		Body:        done.Sealed.Text,
		CipherKeyID: done.Sealed.KeyID,
	}))
}

func (s *Idempotency) Release(ctx context.Context, refused idempotency.Stored) error {
	return postgres.Translate("release idempotency key", s.db.Queries().ReleaseIdempotencyKey(ctx, sqlcgen.ReleaseIdempotencyKeyParams{
		Actor: refused.Request.Actor, Key: refused.Request.Key, OperationID: refused.Operation,
	}))
}

func (s *Idempotency) Expire(ctx context.Context, age time.Duration) (int64, error) {
	removed, err := postgres.DeleteInBatches(func() (int64, error) {
		return s.db.Queries().
			ExpireIdempotencyKeys(ctx, sqlcgen.ExpireIdempotencyKeysParams{AgeSeconds: age.Seconds(), MaxRows: postgres.BatchRows})
	})
	return removed, postgres.Translate("expire idempotency keys", err)
}
