package videojob

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"modelgateway/dataplane/internal/route"
	"modelgateway/shared/event"
	"modelgateway/shared/platform/retry"
)

// A creation has these steps. Its outcome is one of two: a provider has accepted the
// job, and its id is known; or it is certain that nobody will ever charge for the job,
// because no id of a provider is stored anywhere.
//
//	Create       the job is recorded and backed up; otherwise nothing is submitted
//	submit       (package httpapi) a provider is called
//	SaveCreated  the provider's id is known: from now on the client gets the job
//	Reject       no id is known: the client gets an error
//
// The outcome is recorded, or else backed up on the bus, or else stored as soon as
// that is possible. It is never taken back: after SaveCreated no error is returned,
// because the id may have reached the bus although no acknowledgement came. If the
// proxy dies before it has stored an outcome, the job ends without a charge.

const (
	// outcomeTimeout bounds how long a client waits for the record of the outcome, and then for its backup.
	outcomeTimeout = 2 * time.Second
	// outcomeRetryInterval is the delay between two attempts to store an outcome in the background.
	outcomeRetryInterval = time.Second
	// maxStoring bounds the outcomes that are stored in the background at once.
	maxStoring = 1000
)

// Create records a new job. It is called before the provider, which may be called
// only if the error is nil. The error is a *RefusedError if the open jobs of the
// account or key allow no further one.
func (t *Tracker) Create(ctx context.Context, v *event.Video) (*event.Video, error) {
	leave, err := t.lines.enter(ctx, v.AccountID)
	if err != nil { // nothing was sent
		return nil, fmt.Errorf("%w: wait to create a job: %w", ErrUnavailable, err)
	}
	created, err := unpack(t.store.CreateVideo(ctx, v))
	leave()
	if errors.Is(err, ErrUnavailable) {
		// There may be a record, or there will be when a slow control plane has gone on.
		first := *v
		first.Rev = 1
		t.storeOutcome(failedState(&first, ""))
	}
	return created, err
}

// SetRoute records the route that is called next for a job whose first route
// failed.
func (t *Tracker) SetRoute(ctx context.Context, v *event.Video, choice route.Choice) (*event.Video, error) {
	next := *v
	next.Provider = choice.Provider.ID
	next.Route = choice.ID
	next.Credential = choice.Credential.ID
	next.UpstreamModel = choice.UpstreamModel
	return t.save(ctx, &next)
}

// SaveCreated records the object with which a provider has accepted a job. The error
// is ErrNoObject if body is no such object, and nil otherwise: the client gets the job
// even if its outcome cannot be stored yet. A job that is completed already is charged;
// if it cannot be charged now, it stays open and is polled.
func (t *Tracker) SaveCreated(ctx context.Context, v *event.Video, body []byte) (*event.Video, error) {
	next, usage, err := t.readObject(v, body)
	if err != nil {
		return nil, err
	}

	if next.Status == event.VideoCompleted {
		if err := t.charge(next, usage); err != nil {
			open := *v
			open.UpstreamID = next.UpstreamID
			next = &open
		}
	}

	recording, cancel := context.WithTimeout(ctx, outcomeTimeout)
	saved, err := t.recordOutcome(recording, next)
	cancel()
	if err == nil {
		return saved, nil
	}

	storing, cancel := context.WithTimeout(ctx, outcomeTimeout)
	defer cancel()

	if backupErr := t.backUp(storing, next); backupErr != nil {
		t.log.Error(
			"the provider's id of a video job is not stored yet",
			slog.String("video_id", v.ID),
			slog.Any("error", errors.Join(err, backupErr)),
		)
		t.storeOutcome(next)
	}

	return next, nil
}

// Reject ends a job whose client gets an error: no provider has accepted it, or that
// is not known. The reason is for operators, empty if it is certain that no provider
// has it.
func (t *Tracker) Reject(ctx context.Context, v *event.Video, reason string) {
	ctx, cancel := context.WithTimeout(ctx, outcomeTimeout)
	defer cancel()
	next := failedState(v, reason)
	if _, err := t.recordOutcome(ctx, next); err != nil {
		t.storeOutcome(next)
	}
}

// recordOutcome records the outcome of a creation. The record may have changed without
// a response: an update of the route whose response was lost.
func (t *Tracker) recordOutcome(ctx context.Context, v *event.Video) (*event.Video, error) {
	for {
		saved, err := unpack(t.store.UpdateVideo(ctx, v))
		if !errors.Is(err, errConflict) {
			return saved, err
		}
		if saved.Ended() || saved.UpstreamID != "" || saved.Rev <= v.Rev {
			return saved, nil
		}
		next := *v
		next.Rev = saved.Rev
		v = &next
	}
}

// backUp stores a state on the bus, with the revision that it will have.
func (t *Tracker) backUp(ctx context.Context, v *event.Video) error {
	next := *v
	next.Rev++
	return t.store.BackUpVideo(ctx, &next)
}

// storeOutcome stores the outcome of a creation in the background. It tries for as
// long as a job may be without an outcome.
func (t *Tracker) storeOutcome(v *event.Video) {
	select {
	case t.storing <- struct{}{}:
	default:
		t.log.Warn("too many outcomes of video creations wait to be stored", slog.String("video_id", v.ID))
		return
	}
	t.tasks.Go(func() {
		defer func() { <-t.storing }()
		for range creationTimeout / outcomeRetryInterval {
			if t.tryStore(v) {
				return
			}
			if !retry.Sleep(t.ctx, outcomeRetryInterval) {
				break
			}
		}
		t.log.Warn("the outcome of a video creation could not be stored", slog.String("video_id", v.ID))
	})
}

// tryStore backs up and records an outcome. It reports whether one of both is done.
func (t *Tracker) tryStore(v *event.Video) bool {
	ctx, cancel := context.WithTimeout(t.ctx, 2*outcomeTimeout)
	defer cancel()
	backupErr := t.backUp(ctx, v)
	_, err := t.recordOutcome(ctx, v) // even if it is backed up, because a record is read at once
	return backupErr == nil || err == nil
}
