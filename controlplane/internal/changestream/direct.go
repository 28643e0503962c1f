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
	"modelgateway/shared/platform/sleep"
	"modelgateway/shared/wire"
)

// DirectStream is the stream of changes with the revocations that operators append
// to it while no control plane runs.
type DirectStream interface {
	// NextDirect returns the first such message behind a sequence number, and its place; sequence zero if there is none. One
	// that is no change is not valid.
	NextDirect(ctx context.Context, after uint64) (wire.StreamChange, session.Place, error)
	// AppendDirect appends a revocation.
	AppendDirect(ctx context.Context, c *wire.StreamChange) (session.Place, error)
	// ChangeAt is that of Stream.
	ChangeAt(ctx context.Context, at session.Place) (session.Place, error)
	// Windows returns the longest window of the proxies that send heartbeats, and their number.
	Windows(ctx context.Context) (longest time.Duration, proxies int, err error)
}

// Keys revokes keys; revoking one again has no further effect.
type Keys interface {
	RevokeByHash(ctx context.Context, hash apikey.Hash) (key.Revocation, error)
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
	return &Intake{stream: stream, keys: keys, log: log, taken: promauto.With(reg).NewCounter(prometheus.CounterOpts{
		Name: "mgw_changes_direct_total",
		Help: "Revocations of operators in the stream of changes that this replica has handled. Each replica handles each, once after its start.",
	})}
}

// Run takes in revocations until ctx ends.
func (i *Intake) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := i.Round(ctx)
		if err != nil && !i.failing && ctx.Err() == nil {
			i.log.WarnContext(ctx, "taking in revocations from the stream of changes failed", slog.Any("error", err))
		}
		i.failing = err != nil
		sleep.For(ctx, interval)
	}
}

// Round takes in the revocations that are new.
func (i *Intake) Round(ctx context.Context) error {
	for {
		c, at, err := i.stream.NextDirect(ctx, i.at.Sequence)
		if err != nil {
			return err
		}
		if i.at.Incarnation != "" && at.Incarnation != i.at.Incarnation { // another stream, which is read from its start
			i.at = session.Place{}
			continue
		}
		if at.Sequence == 0 {
			return nil
		}
		if c.Valid() && c.Change.Kind == wire.KeyRevoked && c.Change.Revision == 0 {
			// Then it is in Postgres and announced, even if a proxy has not confirmed it yet.
			switch _, err := i.keys.RevokeByHash(audit.WithActor(ctx, audit.Actor{Name: actor}), c.Change.KeyHash); {
			case errors.Is(err, key.ErrNotFound):
				i.log.WarnContext(ctx, "an operator has revoked a key that does not exist", slog.String("hash", c.Change.KeyHash.String()))
			case err != nil:
				return err
			}
			i.taken.Inc()
		}
		i.at = at
	}
}

// Revoke appends the revocation of a key to the stream, and returns when no proxy
// that needs freshness admits the key. note is told what happens.
func Revoke(ctx context.Context, stream DirectStream, hash apikey.Hash, margin func(time.Duration) time.Duration, note func(format string, args ...any)) error {
	c := &wire.StreamChange{V: wire.Version, Change: wire.KeyChange{V: wire.Version, Kind: wire.KeyRevoked, KeyHash: hash}}
	var confirmation *session.Confirmation
	began := time.Now()
	clock := func() session.Instant { return session.Instant{Mono: time.Since(began)} }
	for {
		if confirmation == nil || confirmation.Append() {
			c.ID = rand.Text()
			at, err := stream.AppendDirect(ctx, c)
			if err != nil {
				return err
			}
			window, proxies, err := stream.Windows(ctx) // of the heartbeats before it, and some more
			if err != nil {
				return err
			}
			note("stored as message %d; %d proxies get it now, and admit the key for %v at most", at.Sequence, proxies, window)
			confirmation = session.NewConfirmation(window + margin(window))
			confirmation.Appended(clock(), at)
		}
		if confirmation.Due(clock()) {
			found, err := stream.ChangeAt(ctx, confirmation.Place())
			if err != nil {
				return err
			}
			if confirmation.Verified(found); confirmation.Done() {
				return nil
			}
			note("the stream has lost it: it is appended again")
			continue
		}
		if !sleep.For(ctx, interval/10) {
			return ctx.Err()
		}
	}
}
