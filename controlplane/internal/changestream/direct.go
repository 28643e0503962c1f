package changestream

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"modelgateway/controlplane/internal/audit"
	"modelgateway/controlplane/internal/key"
	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/platform/retry"
	"modelgateway/shared/wire"
)

// Direct is a message of the stream that is not of a control plane, and when the stream has stored it.
type Direct struct {
	// Change is that of an operator; one that is no change is not valid.
	Change   wire.StreamChange
	Place    session.Place
	StoredAt time.Time
}

// DirectStream is the stream of changes with the revocations that operators append
// to it while no control plane runs.
type DirectStream interface {
	// NextDirect returns the first such message behind a sequence number; the sequence of its place is zero if there is none.
	NextDirect(ctx context.Context, after uint64) (Direct, error)
	// AppendDirect appends a revocation.
	AppendDirect(ctx context.Context, c *wire.StreamChange) (session.Place, error)
	// ChangeAt is that of Stream.
	ChangeAt(ctx context.Context, at session.Place) (session.Place, error)
	// Window is that of Stream.
	Window(ctx context.Context) (time.Duration, error)
}

// Keys revokes keys; revoking one again has no further effect.
type Keys interface {
	RevokeByHash(ctx context.Context, hash apikey.Hash, moment time.Time) (key.Revocation, error)
}

// actor is in the audit entries of these revocations.
const actor = "operator of NATS"

// Intake writes the revocations of operators to Postgres.
type Intake struct {
	stream DirectStream
	keys   Keys
	log    *slog.Logger
	taken  prometheus.Counter
	// at is the place of the last message that was handled.
	at      session.Place
	failing bool
}

// NewIntake returns an Intake.
func NewIntake(stream DirectStream, keys Keys, log *slog.Logger, reg prometheus.Registerer) *Intake {
	return &Intake{
		stream: stream,
		keys:   keys,
		log:    log,
		taken: promauto.With(reg).NewCounter(prometheus.CounterOpts{
			Name: "mgw_changes_direct_total",
			Help: "Revocations of operators in the stream of changes that this replica has handled. Each replica handles each, once " +
				"after its start.",
		}),
	}
}

// Run takes in revocations until ctx ends.
func (i *Intake) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := i.Round(ctx)
		if err != nil && !i.failing && ctx.Err() == nil {
			i.log.WarnContext(ctx, "taking in revocations from the stream of changes failed", slog.Any("error", err))
		}
		i.failing = err != nil
		retry.Sleep(ctx, interval)
	}
}

// Round takes in the revocations that are new.
func (i *Intake) Round(ctx context.Context) error {
	for {
		next, err := i.stream.NextDirect(ctx, i.at.Sequence)
		if err != nil {
			return err
		}

		at := next.Place

		if i.at.Incarnation != "" && at.Incarnation != i.at.Incarnation { // another stream, which is read from its start
			i.at = session.Place{}
			continue
		}

		if at.Sequence == 0 {
			return nil
		}

		if c := next.Change; c.Valid() && c.Change.Kind == wire.KeyRevoked && c.Change.Revision == 0 {
			if err := i.revoke(ctx, c.Change.KeyHash, next.StoredAt); err != nil {
				return err
			}
			i.taken.Inc()
		}

		i.at = at
	}
}

// revoke revokes the key of a secret. Then it is in Postgres and announced, even if a proxy has not confirmed it yet.
func (i *Intake) revoke(ctx context.Context, hash apikey.Hash, moment time.Time) error {
	_, err := i.keys.RevokeByHash(audit.WithActor(ctx, audit.Actor{Name: actor}), hash, moment)
	switch {
	case errors.Is(err, key.ErrNotFound):
		i.log.WarnContext(ctx, "an operator has revoked a key that does not exist", slog.String("hash", hash.String()))
	case errors.Is(err, key.ErrSecretEnded):
		i.log.WarnContext(
			ctx,
			"an operator has revoked a secret that a rotation had ended: its key stays valid",
			slog.String("hash", hash.String()),
		)
	default:
		return err
	}
	return nil
}

// Revoke appends the revocations of keys to the stream, and returns when no proxy
// admits one of the keys. note receives progress messages.
func Revoke(
	ctx context.Context,
	stream DirectStream,
	keys []apikey.Hash,
	margin func(time.Duration) time.Duration,
	note func(format string, args ...any),
) error {
	r := revoker{
		stream: stream,
		margin: margin,
		note:   note,
		began:  time.Now(),
	}
	waiting, err := r.append(ctx, keys)
	for err == nil && len(waiting) > 0 {
		if !retry.Sleep(ctx, interval/10) {
			return ctx.Err()
		}
		waiting, err = r.confirm(ctx, waiting)
	}
	return err
}

// revoker revokes keys by the stream.
type revoker struct {
	stream DirectStream
	margin func(time.Duration) time.Duration
	note   func(format string, args ...any)
	began  time.Time
}

// directRevocation is a revocation in the stream that is not confirmed.
type directRevocation struct {
	key          apikey.Hash
	confirmation *session.Confirmation
}

func (r *revoker) clock() session.Instant { return session.Instant{Mono: time.Since(r.began)} }

// append appends the revocations of keys.
func (r *revoker) append(ctx context.Context, keys []apikey.Hash) ([]directRevocation, error) {
	places := make([]session.Place, len(keys))
	for i, key := range keys {
		at, err := r.stream.AppendDirect(ctx, &wire.StreamChange{
			V: wire.Version, ID: rand.Text(), Change: wire.KeyChange{V: wire.Version, Kind: wire.KeyRevoked, KeyHash: key},
		})
		if err != nil {
			return nil, err
		}
		places[i] = at
	}

	if len(keys) == 0 {
		return nil, nil
	}

	window, err := r.stream.Window(ctx)
	if err != nil {
		return nil, err
	}

	r.note("stored %d revocations, the last one as message %d; proxies get them now, and admit a key for %v at most",
		len(keys), places[len(places)-1].Sequence, window)

	waiting := make([]directRevocation, len(keys))
	for i, key := range keys {
		waiting[i] = directRevocation{key, session.NewConfirmation(window + r.margin(window))}
		waiting[i].confirmation.Appended(r.clock(), places[i])
	}

	return waiting, nil
}

// confirm returns the revocations that are not confirmed yet, after it has appended
// again those that the stream has lost.
func (r *revoker) confirm(ctx context.Context, waiting []directRevocation) ([]directRevocation, error) {
	var still []directRevocation
	var lost []apikey.Hash
	for _, w := range waiting {
		if !w.confirmation.Due(r.clock()) {
			still = append(still, w)
			continue
		}
		found, err := r.stream.ChangeAt(ctx, w.confirmation.Place())
		if err != nil {
			return nil, err
		}
		if w.confirmation.Verified(found); !w.confirmation.Done() {
			lost = append(lost, w.key)
		}
	}

	if len(lost) > 0 {
		r.note("the stream has lost %d revocations: they are appended again", len(lost))
	}

	again, err := r.append(ctx, lost)
	return append(still, again...), err
}
