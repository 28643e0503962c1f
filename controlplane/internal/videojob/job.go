package videojob

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
)

// State is the state of a job for operators.
type State string

// The states.
const (
	// Queued and Running jobs are in progress at their provider.
	Queued  State = "queued"
	Running State = "in_progress"
	// Unknown jobs may or may not exist at their provider: it was called and has not returned an id.
	Unknown State = "unknown"
	// Stuck jobs have been open for much longer than a video takes.
	Stuck State = "stuck"
	// Completed and Failed jobs have ended at their provider.
	Completed State = "completed"
	Failed    State = "failed"
	// GivenUp jobs were ended by the gateway, without a charge.
	GivenUp State = "given_up"
)

const (
	// UnknownAfter is the age at which the outcome of a job without a provider's id is unknown.
	UnknownAfter = 5 * time.Minute
	// StuckAfter is the age at which an open job is stuck.
	StuckAfter = 2 * time.Hour
)

// Job is the record of a job with its state and times.
type Job struct {
	ID                   ident.UUID
	State                State
	Record               event.Video
	CreatedAt, UpdatedAt time.Time
	EndedAt              *time.Time
}

// JobQuery selects jobs, newest first. Zero members select all.
type JobQuery struct {
	AccountID account.ID
	Status    string
	State     State
	// From and To bound the time of creation.
	From, To time.Time
	// Before selects jobs older than this one.
	Before ident.UUID
	Limit  int
}

// Summary counts the open jobs, and those that were given up within the last day.
type Summary struct {
	Jobs map[State]int64
	// OldestOpen is the age of the oldest open job; zero if there is none.
	OldestOpen time.Duration
}

// Jobs reads video jobs for operators.
type Jobs interface {
	Jobs(ctx context.Context, q JobQuery) ([]Job, error)
	// Job returns one job, or ErrNotFound.
	Job(ctx context.Context, id ident.UUID) (Job, error)
	Summary(ctx context.Context) (Summary, error)
}
