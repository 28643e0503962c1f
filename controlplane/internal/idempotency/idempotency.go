// Package idempotency implements the Idempotency-Key header: a repeated request is executed once
// and gets the same response.
//
// The key is bound to an operation id before the request is executed, and the object that the
// request creates gets that id. So a request that is repeated after a crash, or sent twice at once,
// creates nothing twice even if no response was stored. Responses are stored encrypted, since they
// can contain a secret.
package idempotency

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"modelgateway/controlplane/internal/vault"
	"modelgateway/shared/ident"
)

// ErrConflict is returned for a key that was used for another request.
var ErrConflict = errors.New("idempotency: the key was used for another request")

// Retention is how long a response is stored.
const Retention = 24 * time.Hour

// Request identifies the request that a key is bound to.
type Request struct {
	// Actor is the namespace of the key.
	Actor  string
	Key    string
	Method string
	// Path is the path with the ids in it, not the pattern of the route.
	Path     string
	BodyHash [sha256.Size]byte
}

// Response is the response to a request.
type Response struct {
	Status      int
	ContentType string
	// ETag is empty for a response without one.
	ETag string
	Body []byte
}

// Stored is the stored form of a request. Sealed is zero until it has a response.
type Stored struct {
	Request     Request
	Operation   ident.UUID
	Status      int
	ContentType string
	ETag        string
	Sealed      vault.Sealed
}

// Store stores requests and responses.
type Store interface {
	// Begin stores a request, or returns the request that is already stored with its actor and key.
	Begin(ctx context.Context, s Stored) (Stored, error)
	// Finish stores the response, unless there is one already.
	Finish(ctx context.Context, s Stored) error
	// Release deletes a request, unless it has a response.
	Release(ctx context.Context, s Stored) error
	// Expire deletes requests older than age and returns their number.
	Expire(ctx context.Context, age time.Duration) (int64, error)
}

// Service binds requests to keys and stores their responses.
type Service struct {
	store Store
	vault *vault.Vault
}

// New returns a Service.
func New(store Store, v *vault.Vault) *Service { return &Service{store, v} }

// Attempt is one attempt to execute a request.
type Attempt struct {
	Operation ident.UUID
	// Before is the stored response; nil if there is none.
	Before  *Response
	request Request
	// first reports that no other attempt was made before.
	first bool
}

// Begin binds a request to its key. It returns ErrConflict if the key belongs to another request.
func (k *Service) Begin(ctx context.Context, r Request) (Attempt, error) {
	fresh := ident.New()
	found, err := k.store.Begin(ctx, Stored{Request: r, Operation: fresh})
	if err != nil {
		return Attempt{}, err
	}
	if found.Request != r {
		return Attempt{}, ErrConflict
	}

	attempt := Attempt{Operation: found.Operation, request: r, first: found.Operation == fresh}
	if found.Sealed.IsZero() {
		return attempt, nil
	}

	body, err := k.vault.Open(found.Sealed, ResponseContext(found.Operation))
	if err != nil {
		return Attempt{}, fmt.Errorf("idempotency: %w", err)
	}

	attempt.Before = &Response{found.Status, found.ContentType, found.ETag, body}
	return attempt, nil
}

// Finish stores the response to a request.
func (k *Service) Finish(ctx context.Context, a Attempt, response Response) error {
	return k.store.Finish(ctx, Stored{
		Request:     a.request,
		Operation:   a.Operation,
		Status:      response.Status,
		ContentType: response.ContentType,
		ETag:        response.ETag,
		Sealed:      k.vault.Seal(response.Body, ResponseContext(a.Operation)),
	})
}

// Release releases the key of an invalid request, so that it can be used for the corrected
// request. Only the first attempt releases it, since the effect of an earlier one is unknown.
func (k *Service) Release(ctx context.Context, a Attempt) error {
	if !a.first {
		return nil
	}
	return k.store.Release(ctx, Stored{Request: a.request, Operation: a.Operation})
}

// Expire deletes requests older than Retention, with their responses.
func (k *Service) Expire(ctx context.Context) (int64, error) { return k.store.Expire(ctx, Retention) }

// ResponseContext returns the encryption context of a response.
func ResponseContext(operation ident.UUID) string { return "answer:" + string(operation[:]) }
