// Package idempotency owns the promise of the Idempotency-Key header: the same
// request sent again is done once and answered alike.
//
// The key is bound to an operation id before anything is done, and whatever
// the request makes takes that id. So a request repeated after a crash, or
// twice at once, makes nothing twice, even when no answer was kept. Answers
// are kept sealed, since they can hold a secret.
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

// Kept is how long an answer is kept.
const Kept = 24 * time.Hour

// Request is what a key is bound to.
type Request struct {
	// Actor has keys of its own.
	Actor  string
	Key    string
	Method string
	// Path is the whole path, with ids.
	Path     string
	BodyHash [sha256.Size]byte
}

// Answer is the answer to a request.
type Answer struct {
	Status      int
	ContentType string
	// ETag is empty for an answer that has none.
	ETag string
	Body []byte
}

// Stored is what a Store keeps of a request. Sealed is zero until it is
// answered.
type Stored struct {
	Request     Request
	Operation   ident.UUID
	Status      int
	ContentType string
	ETag        string
	Sealed      vault.Sealed
}

// Store keeps requests and answers.
type Store interface {
	// Begin keeps a request, or returns the one that was kept before under its actor and key.
	Begin(ctx context.Context, s Stored) (Stored, error)
	// Finish keeps the answer, unless there is one already.
	Finish(ctx context.Context, s Stored) error
	// Release forgets a request, unless there is an answer.
	Release(ctx context.Context, s Stored) error
	// Expire removes what is older than an age and returns how many there were.
	Expire(ctx context.Context, age time.Duration) (int64, error)
}

// Keeper keeps the promise over a Store.
type Keeper struct {
	store Store
	vault *vault.Vault
}

// New returns a Keeper.
func New(store Store, v *vault.Vault) *Keeper { return &Keeper{store, v} }

// Attempt is one attempt at a request that is bound to its key.
type Attempt struct {
	Operation ident.UUID
	// Before is the answer that was given before, nil if none was kept.
	Before  *Answer
	request Request
	// first: no other attempt was bound before.
	first bool
}

// Begin binds a request to its key; ErrConflict if the key belongs to another
// request.
func (k *Keeper) Begin(ctx context.Context, r Request) (Attempt, error) {
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
	body, err := k.vault.Open(found.Sealed, AnswerContext(found.Operation))
	if err != nil {
		return Attempt{}, fmt.Errorf("idempotency: %w", err)
	}
	attempt.Before = &Answer{found.Status, found.ContentType, found.ETag, body}
	return attempt, nil
}

// Finish keeps the answer to a request.
func (k *Keeper) Finish(ctx context.Context, a Attempt, answer Answer) error {
	return k.store.Finish(ctx, Stored{
		Request: a.request, Operation: a.Operation, Status: answer.Status, ContentType: answer.ContentType, ETag: answer.ETag,
		Sealed: k.vault.Seal(answer.Body, AnswerContext(a.Operation)),
	})
}

// Release frees the key of a request that was refused for what it says, so that
// it can be used for the request as it should be. Only the first attempt does:
// what an earlier one did, nobody knows.
func (k *Keeper) Release(ctx context.Context, a Attempt) error {
	if !a.first {
		return nil
	}
	return k.store.Release(ctx, Stored{Request: a.request, Operation: a.Operation})
}

// Expire removes answers that need not be kept any more.
func (k *Keeper) Expire(ctx context.Context) (int64, error) { return k.store.Expire(ctx, Kept) }

// AnswerContext is what the answer of an operation is sealed for.
func AnswerContext(operation ident.UUID) string { return "answer:" + string(operation[:]) }

type operationKey struct{}

// WithOperation returns a context of a request that is bound to an operation.
func WithOperation(ctx context.Context, id ident.UUID) context.Context {
	return context.WithValue(ctx, operationKey{}, id)
}

// Operation is the id that what the request makes is to take: that of its
// key, or a new one if it has none.
func Operation(ctx context.Context) ident.UUID {
	if id, ok := ctx.Value(operationKey{}).(ident.UUID); ok {
		return id
	}
	return ident.New()
}
