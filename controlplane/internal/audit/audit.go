// Package audit owns the record of who changed what: the actor of a request,
// and the entries that are written in the same transaction as the change. An
// entry is never changed or removed, and never holds a secret.
package audit

import (
	"context"
	"encoding/json"
	"time"
)

// Actor is on whose behalf a change is made.
type Actor struct {
	// Name is the name of an admin.Principal, or the part of the control plane that acts by itself.
	Name string
	// RequestID is the request that caused the change; empty if there is none.
	RequestID string
}

// System is the actor of what no request asked for.
var System = Actor{Name: "system"}

type actorKey struct{}

// WithActor returns a context whose changes are made by an actor.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// By returns the actor of a context, System if it has none.
func By(ctx context.Context) Actor {
	if a, ok := ctx.Value(actorKey{}).(Actor); ok {
		return a
	}
	return System
}

// Entry is one change. Before and After are the object in JSON; null where it
// did not exist.
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
	// Before takes entries with a smaller id; zero starts at the newest.
	Before int64
	// Limit is the greatest number of entries.
	Limit int
}

// Store reads entries. They are written by the stores of what changed.
type Store interface {
	List(ctx context.Context, q Query) ([]Entry, error)
}
