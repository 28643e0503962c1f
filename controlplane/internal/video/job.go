package video

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
)

// State is how a job stands, as an operator sees it.
type State string

// The states.
const (
	// Queued and Running jobs go their way.
	Queued  State = "queued"
	Running State = "in_progress"
	// Unknown jobs may or may not be at their provider: it was called and has named no job.
	Unknown State = "unknown"
	// Stuck jobs have been open for much longer than a video takes.
	Stuck State = "stuck"
	// Completed and Failed jobs have ended at their provider.
	Completed State = "completed"
	Failed    State = "failed"
	// GivenUp jobs were ended by the gateway itself, without a charge.
	GivenUp State = "given_up"
)

// Job is a record with what is known around it.
type Job struct {
	ID                   ident.UUID
	State                State
	Record               event.Video
	CreatedAt, UpdatedAt time.Time
	EndedAt              *time.Time
}

// JobQuery selects jobs, the newest first. Zero values select all.
type JobQuery struct {
	AccountID account.ID
	Status    string
	State     State
	// From and To bound when jobs were made.
	From, To time.Time
	// Before takes jobs older than this one.
	Before ident.UUID
	Limit  int
}

// Summary counts the jobs that may want attention: those that are open, and
// those that were given up within a day.
type Summary struct {
	Jobs map[State]int64
	// OldestOpen is how long the oldest open job has been open; zero if there is none.
	OldestOpen time.Duration
}

// Jobs reads records for people.
type Jobs interface {
	Jobs(ctx context.Context, q JobQuery) ([]Job, error)
	// Job returns one, or ErrNotFound.
	Job(ctx context.Context, id ident.UUID) (Job, error)
	Summary(ctx context.Context) (Summary, error)
}
