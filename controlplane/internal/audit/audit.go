// Package audit defines the audit log: the actor of a request, and the entries that are written in
// the same transaction as a change. An entry is never changed, is removed only by package archive,
// and never contains a secret.
package audit

import (
	"context"
	"encoding/json"
	"time"
)

// Actor is the originator of a change.
type Actor struct {
	// Name is the name of an admin.Principal, or of a component of the control plane.
	Name string
	// RequestID is the request that caused the change; empty if there is none.
	RequestID string
}

// System is the actor of changes that no request causes.
var System = Actor{Name: "system"}

type actorKey struct{}

// WithActor returns a context in which the actor makes the changes.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// By returns the actor of a context; System if it has none.
func By(ctx context.Context) Actor {
	if a, ok := ctx.Value(actorKey{}).(Actor); ok {
		return a
	}
	return System
}

// Entry is one change. Before and After are the JSON forms of the object; null if it did not
// exist.
type Entry struct {
	ID        int64
	At        time.Time
	Actor     string
	Action    string
	Object    string
	Before    json.RawMessage
	After     json.RawMessage
	RequestID string
}

// Query selects entries, newest first.
type Query struct {
	// Object selects the entries of one object; empty means all.
	Object string
	// Actor selects the entries of one actor; empty means all.
	Actor string
	// Action selects one action, such as "key.reveal", or those of a subject, such as "key"; empty means all.
	Action string
	// RequestID selects the entries of one request; empty means all.
	RequestID string
	// From and To bound the time: From ≤ time < To. A zero time is no bound.
	From, To time.Time
	// Before selects entries with a smaller id; zero starts with the newest.
	Before int64
	// Limit is the maximum number of entries.
	Limit int
}

// Store reads entries. The stores of the changed objects write them.
type Store interface {
	// Record writes an entry for something that discloses data and changes nothing.
	Record(ctx context.Context, action, object string) error
	List(ctx context.Context, q Query) ([]Entry, error)
}
