// Package videojob manages the records of video jobs. A job is recorded before its provider is
// called, is changed only from the state that the caller has read, and stays on the work queue
// until it has ended. Each state is also stored in NATS, from where it is restored if Postgres
// loses commits. A proxy stores the outcome of a creation there itself if it cannot be recorded;
// it is recorded when the job is read next.
//
// This package charges nothing: the proxy that finds a job completed reports its usage with the id
// of the request that created the job, and settlement books it once.
package videojob

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"modelgateway/shared/event"
	"modelgateway/shared/ident"
)

var (
	// ErrNotFound is returned if the job does not exist or belongs to another account.
	ErrNotFound = errors.New("videojob: no such job")
	// ErrConflict is returned if the job has changed since it was read, or has ended.
	ErrConflict = errors.New("videojob: the job has changed")
)

// Store stores the records of jobs.
type Store interface {
	// Insert stores a new record and sets its Limits, unless it is refused because of the unbilled jobs of its account, key or
	// limits. Inserting the same record again changes nothing.
	Insert(ctx context.Context, v *event.Video) (*event.VideoRefusal, error)
	// Get returns a record. An empty account matches any.
	Get(ctx context.Context, id, account string) (*event.Video, error)
	// Update stores a record whose Rev equals the stored one, and increments Rev. Otherwise, and if the stored job
	// has ended, it returns ErrConflict.
	Update(ctx context.Context, v *event.Video) (*event.Video, error)
	// Open lists jobs that were not changed for the idle time and have not ended, or have failed without a report of what they may
	// cost the operator, least recently changed first, after a position in that order.
	Open(ctx context.Context, idle time.Duration, after Place, limit int) ([]Idle, error)
}

// Place is a position in the order of the last changes. The zero Place is before all jobs.
type Place struct {
	UpdatedAt time.Time
	ID        ident.UUID
}

// Idle is a job that was not changed for a while.
type Idle struct {
	Place
	Poll event.VideoPoll
}

// Queue is the work queue of jobs to poll. A job that is queued already stays queued once. After
// an error, some jobs may be queued.
type Queue interface {
	EnqueuePolls(ctx context.Context, polls ...event.VideoPoll) error
}

const (
	// sweepPause is the interval between two sweeps for jobs that may be missing on the queue.
	sweepPause = 15 * time.Second
	// idle is how long a job may stay unchanged before it is queued again.
	idle = 30 * time.Second
	// sweepLimit bounds the jobs that a sweep lists and queues at once.
	sweepLimit = 500
)

// Service manages video jobs on one replica.
type Service struct {
	store   Store
	queue   Queue
	backups BackupStore
	log     *slog.Logger
	stop    context.CancelFunc
	task    sync.WaitGroup
}

// New returns a Service that is not started.
func New(store Store, queue Queue, backups BackupStore, log *slog.Logger) *Service {
	return &Service{
		store:   store,
		queue:   queue,
		backups: backups,
		log:     log,
	}
}

// Start sweeps now and then regularly, until Stop is called.
func (s *Service) Start(ctx context.Context) {
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.task.Go(func() {
		ticker := time.NewTicker(sweepPause)
		defer ticker.Stop()
		for ctx.Err() == nil {
			if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
				s.log.ErrorContext(ctx, "sweeping video jobs failed", "error", err)
			}
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	})
}

// Stop stops sweeping and waits.
func (s *Service) Stop() {
	s.stop()
	s.task.Wait()
}

// Sweep queues all jobs that a poller has still to look at and that were not changed for a while, since their message may have been
// lost. Queueing a job that is queued already has no effect.
func (s *Service) Sweep(ctx context.Context) error {
	for after := (Place{}); ; {
		jobs, err := s.store.Open(ctx, idle, after, sweepLimit)
		if err != nil {
			return fmt.Errorf("list open video jobs: %w", err)
		}

		polls := make([]event.VideoPoll, len(jobs))
		for i := range jobs {
			polls[i], after = jobs[i].Poll, jobs[i].Place
		}

		if len(polls) > 0 {
			if err := s.queue.EnqueuePolls(ctx, polls...); err != nil {
				return fmt.Errorf("queue video jobs: %w", err)
			}
		}

		if len(jobs) < sweepLimit {
			return nil
		}
	}
}

// Create records a job, backs it up and queues it, or refuses it. Its provider may be called only after a response with
// VideoDone: after an error the proxy ends the job, which may be recorded. If the message to the queue is lost, Sweep
// queues the job again.
func (s *Service) Create(ctx context.Context, v *event.Video) (*event.VideoResponse, error) {
	v.Rev = 1
	if err := validate(v); err != nil {
		return nil, fmt.Errorf("record video job: %w", err)
	}

	refusal, err := s.store.Insert(ctx, v)
	if err != nil {
		return nil, fmt.Errorf("record video job: %w", err)
	}
	if refusal != nil {
		return &event.VideoResponse{V: event.Version, Status: event.VideoRefused, Refusal: refusal}, nil
	}
	if err := s.backUp(ctx, v); err != nil {
		return nil, err
	}
	if err := s.queue.EnqueuePolls(ctx, event.VideoPoll{V: event.Version, ID: v.ID, AccountID: v.AccountID}); err != nil {
		s.log.WarnContext(ctx, "queueing a video job failed", "video_id", v.ID, "error", err)
	}

	return done(v), nil
}

// Get returns a job.
func (s *Service) Get(ctx context.Context, q *event.VideoGetRequest) (*event.VideoResponse, error) {
	v, err := s.store.Get(ctx, q.ID, q.AccountID)
	if err == nil && v.UpstreamID == "" && !v.Ended() {
		v, err = s.applyBackup(ctx, v)
	}
	switch {
	case errors.Is(err, ErrNotFound):
		return &event.VideoResponse{V: event.Version, Status: event.VideoNotFound}, nil
	case err != nil:
		return nil, fmt.Errorf("read video job: %w", err)
	}
	return done(v), nil
}

// applyBackup records the outcome of a creation that could be stored only in the backup: the provider's id, or that no
// provider has the job.
func (s *Service) applyBackup(ctx context.Context, v *event.Video) (*event.Video, error) {
	limited, cancel := context.WithTimeout(ctx, backupTimeout)
	defer cancel()
	newest, err := s.backups.NewestVideo(limited, v.ID)
	if err != nil {
		return nil, fmt.Errorf("read backup: %w", err)
	}
	if newest == nil || compareStates(v, newest) >= 0 || newest.AccountID != v.AccountID || newest.KeyID != v.KeyID ||
		newest.RequestID != v.RequestID {
		return v, nil
	}

	next := *newest
	next.Rev, next.Object = v.Rev, storable(newest.Object)
	updated, err := s.store.Update(ctx, &next)
	if errors.Is(err, ErrConflict) {
		return s.store.Get(ctx, v.ID, v.AccountID)
	}

	return updated, err
}

// backupTimeout bounds the wait for NATS.
const backupTimeout = time.Second

func (s *Service) backUp(ctx context.Context, v *event.Video) error {
	if err := validate(v); err != nil {
		return fmt.Errorf("back up video job: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, backupTimeout)
	defer cancel()
	if err := s.backups.BackUpVideo(ctx, v); err != nil {
		return fmt.Errorf("back up video job: %w", err)
	}
	return nil
}

// Update changes a job. On a conflict it returns the current record. A state that cannot be backed
// up is recorded anyway, because rejecting it would lose it for certain.
func (s *Service) Update(ctx context.Context, v *event.Video) (*event.VideoResponse, error) {
	seen := *v
	seen.Object = storable(v.Object)
	next := seen
	next.Rev++
	if err := s.backUp(ctx, &next); err != nil {
		s.log.WarnContext(ctx, "backing up a video job failed", "video_id", v.ID, "error", err)
	}

	updated, err := s.store.Update(ctx, &seen)
	switch {
	case errors.Is(err, ErrNotFound):
		return &event.VideoResponse{V: event.Version, Status: event.VideoNotFound}, nil
	case errors.Is(err, ErrConflict):
		return s.conflict(ctx, v.ID)
	case err != nil:
		return nil, fmt.Errorf("change video job: %w", err)
	}

	s.logGivenUp(ctx, updated)
	return done(updated), nil
}

// logGivenUp logs a job that the gateway has ended. It is an error if the provider had accepted the job; otherwise the
// client of the creation got an error, or no provider may have the job.
func (s *Service) logGivenUp(ctx context.Context, v *event.Video) {
	if v.Error == "" {
		return
	}
	level := slog.LevelWarn
	if v.UpstreamID != "" {
		level = slog.LevelError
	}
	s.log.Log(ctx, level, "video job given up", "video_id", v.ID, "provider", v.Provider, "reason", v.Error)
}

// conflict returns the current record of a job, or that there is none.
func (s *Service) conflict(ctx context.Context, id string) (*event.VideoResponse, error) {
	reply, err := s.Get(ctx, &event.VideoGetRequest{V: event.Version, ID: id})
	if err == nil && reply.Status == event.VideoDone {
		reply.Status = event.VideoConflict
	}
	return reply, err
}

func done(v *event.Video) *event.VideoResponse {
	return &event.VideoResponse{V: event.Version, Status: event.VideoDone, Video: v}
}
