// Package video owns the records of video jobs: a job is recorded before its
// provider is called, changed only from the state that its changer has seen,
// and put on the work queue until it has ended. Each of its states is kept on
// the bus too, whence a loss of commits in Postgres has it restored.
//
// It bills nothing: the proxy that sees a job completed reports its usage
// under the request that made the job, and settlement takes it once.
package video

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
	// ErrNotFound says that there is no such job, or it is another account's.
	ErrNotFound = errors.New("video: no such job")
	// ErrConflict says that the record was changed since it was read, or has ended.
	ErrConflict = errors.New("video: the job has changed")
)

// Store keeps the records.
type Store interface {
	// Insert writes a new record. The same record again changes nothing.
	Insert(ctx context.Context, v *event.Video) error
	// Get reads a record; an empty account reads any.
	Get(ctx context.Context, id, account string) (*event.Video, error)
	// Update writes a record whose Rev is the stored one, and counts it up. Otherwise, and when the stored one has
	// ended, it returns ErrConflict.
	Update(ctx context.Context, v *event.Video) (*event.Video, error)
	// Open lists jobs that have not ended and were not changed for a while, those that were left for longest first, from
	// behind a place in that order.
	Open(ctx context.Context, idle time.Duration, after Place, limit int) ([]Idle, error)
}

// Place is where a job stands in the order of their last changes. The zero
// Place is before all.
type Place struct {
	UpdatedAt time.Time
	ID        ident.UUID
}

// Idle is a job that nobody has changed for a while.
type Idle struct {
	Place
	Poll event.VideoPoll
}

// Queue takes jobs to be polled. A job that is queued already stays queued
// once. After an error some may be queued.
type Queue interface {
	EnqueuePolls(ctx context.Context, polls ...event.VideoPoll) error
}

const (
	// sweepPause is the time between two looks for jobs that fell off the queue.
	sweepPause = 15 * time.Second
	// idle is how long a job may go unchanged before it is queued again.
	idle = 30 * time.Second
	// sweepLimit bounds the jobs that a sweep lists and queues at once.
	sweepLimit = 500
)

// Service is one replica.
type Service struct {
	store Store
	queue Queue
	kept  BackupStore
	log   *slog.Logger
	stop  context.CancelFunc
	task  sync.WaitGroup
}

// New returns a Service that is not started.
func New(store Store, queue Queue, kept BackupStore, log *slog.Logger) *Service {
	return &Service{store: store, queue: queue, kept: kept, log: log}
}

// Start queues open jobs again, from time to time, until Stop.
func (s *Service) Start(ctx context.Context) {
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.task.Go(func() {
		ticker := time.NewTicker(sweepPause)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
				s.log.ErrorContext(ctx, "sweep video jobs", "error", err)
			}
		}
	})
}

// Stop ends sweeping.
func (s *Service) Stop() {
	s.stop()
	s.task.Wait()
}

// Sweep queues all jobs that have not ended and that nobody has changed for a
// while: their message may have been lost. Those that are queued already, and
// unchanged because their provider says the same for long, are in nobody's way.
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

// Create records a job and queues it. Once it is recorded, a message that is
// lost is made good by Sweep. A job that cannot be kept is not made: its
// provider has not been called yet.
func (s *Service) Create(ctx context.Context, v *event.Video) (*event.VideoReply, error) {
	v.Rev = 1
	if err := s.keep(ctx, v); err != nil {
		return nil, err
	}
	if err := s.store.Insert(ctx, v); err != nil {
		return nil, fmt.Errorf("record video job: %w", err)
	}
	if err := s.queue.EnqueuePolls(ctx, event.VideoPoll{V: event.Version, ID: v.ID}); err != nil {
		s.log.WarnContext(ctx, "queue video job", "video_id", v.ID, "error", err)
	}
	return done(v), nil
}

// Get reads a job.
func (s *Service) Get(ctx context.Context, q *event.VideoGet) (*event.VideoReply, error) {
	v, err := s.store.Get(ctx, q.ID, q.AccountID)
	switch {
	case errors.Is(err, ErrNotFound):
		return &event.VideoReply{V: event.Version, Status: event.VideoNotFound}, nil
	case err != nil:
		return nil, fmt.Errorf("read video job: %w", err)
	}
	return done(v), nil
}

// keepTimeout bounds the wait for the bus.
const keepTimeout = time.Second

func (s *Service) keep(ctx context.Context, v *event.Video) error {
	if err := validate(v); err != nil {
		return fmt.Errorf("keep video job: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	if err := s.kept.KeepVideo(ctx, v); err != nil {
		return fmt.Errorf("keep video job: %w", err)
	}
	return nil
}

// Update changes a job. A conflict is answered with the record as it is. A
// state that cannot be kept is recorded all the same: refused, it would be lost
// for certain.
func (s *Service) Update(ctx context.Context, v *event.Video) (*event.VideoReply, error) {
	seen := *v
	seen.Object = storable(v.Object)
	next := seen
	next.Rev++
	if err := s.keep(ctx, &next); err != nil {
		s.log.WarnContext(ctx, "a loss of commits would lose this state of a video job", "video_id", v.ID, "error", err)
	}
	updated, err := s.store.Update(ctx, &seen)
	switch {
	case errors.Is(err, ErrNotFound):
		return &event.VideoReply{V: event.Version, Status: event.VideoNotFound}, nil
	case errors.Is(err, ErrConflict):
		return s.conflict(ctx, v.ID)
	case err != nil:
		return nil, fmt.Errorf("change video job: %w", err)
	}
	if updated.Error != "" {
		s.log.ErrorContext(ctx, "video job given up", "video_id", v.ID, "provider", v.Provider, "reason", updated.Error)
	}
	return done(updated), nil
}

// conflict answers with the record as it is, which may be that there is none.
func (s *Service) conflict(ctx context.Context, id string) (*event.VideoReply, error) {
	reply, err := s.Get(ctx, &event.VideoGet{V: event.Version, ID: id})
	if err == nil && reply.Status == event.VideoDone {
		reply.Status = event.VideoConflict
	}
	return reply, err
}

func done(v *event.Video) *event.VideoReply {
	return &event.VideoReply{V: event.Version, Status: event.VideoDone, Video: v}
}
