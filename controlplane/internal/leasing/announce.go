package leasing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"modelgateway/controlplane/internal/propagation"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
	"modelgateway/shared/wire/checkwire"
)

// Pusher pushes messages to the proxies, and records revocations outside of
// Postgres.
type Pusher interface {
	// Connected reports whether messages of proxies can arrive.
	Connected() bool
	// Recall asks a session for its idle units. The message may be lost: it is repeated while a lease request waits for
	// the units.
	Recall(session wire.SessionID, r wire.Recall) error
	// Push sends a change to every proxy. acks receives each acknowledgement, with the name of the proxy that sent it,
	// until stop is called.
	Push(ctx context.Context, c wire.KeyChange, acks func(proxy string, a wire.Ack)) (stop func(), err error)
	// AskReserved asks every proxy what the running requests of an account reserve. answers receives each answer,
	// with the name of the proxy that sent it, until stop is called.
	AskReserved(ctx context.Context, q wire.ReservedRequest, answers func(proxy string, a wire.ReservedResponse)) (stop func(), err error)
	// AskExplain asks every proxy how it would answer a request. answers is as for AskReserved.
	AskExplain(ctx context.Context, q wire.ExplainRequest, answers func(proxy string, a wire.ExplainResponse)) (stop func(), err error)
	// AskCheck asks one proxy to call a provider. answers is as for AskReserved.
	AskCheck(ctx context.Context, q checkwire.Request, answers func(proxy string, a checkwire.Response)) (stop func(), err error)
	// RecordRevocation records a revocation outside of Postgres, so that it survives a loss of commits. A revocation
	// counts as confirmed only when it is recorded.
	RecordRevocation(ctx context.Context, c wire.KeyChange) error
}

var _ propagation.Announcer = (*Service)(nil)

// ErrChangeLost says that Postgres lost a committed change before every proxy
// confirmed it. The change has to be made again.
var ErrChangeLost = errors.New("leasing: the change was lost with other commits of Postgres")

// pushInterval is the time between two pushes of an unconfirmed change.
const pushInterval = 250 * time.Millisecond

// Announce tells every proxy of a committed change: it pushes the change, and appends
// it to the stream of changes, from what it has in its hand. Only then it reads the
// sessions, and waits until each live one has acknowledged the change, or the stream
// has confirmed it, or until the timeout. It may be called again for the same change. It returns
// ErrChangeLost if Postgres lost the change.
func (s *Service) Announce(ctx context.Context, c wire.KeyChange) (propagation.Confirmation, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ConfirmTimeout)
	defer cancel()

	a := &announcement{
		service: s,
		change:  c,
		start:   time.Now(),
		acks:    make(chan sentAck, 64),
	}
	err := a.run(ctx)
	switch {
	case errors.Is(err, ErrChangeLost):
		return propagation.Confirmation{}, fmt.Errorf("announce revision %d: %w", c.Revision, err)
	case err != nil:
		return a.confirmation(), fmt.Errorf("announce revision %d: %w", c.Revision, err)
	}

	return a.confirmation(), nil
}

// sentAck is an acknowledgement with the name of the proxy that sent it.
type sentAck struct {
	wire.Ack
	proxy string
}

// announcement is the state of one call of Announce.
type announcement struct {
	service *Service
	change  wire.KeyChange
	start   time.Time
	acks    chan sentAck
	// barrier is nil until the active sessions were read. proxies has their names.
	barrier *session.Barrier
	proxies map[wire.SessionID]string
	// stored is true once the stream of changes has the change. asked is when it was asked for the change.
	stored bool
	asked  time.Time
	// recorded is true once the change needs no record in the recovery bucket, or has one.
	recorded bool
	// survivesLoss is true once the active sessions were read after the change was recorded. Before that, a loss of
	// commits could undo the change unnoticed, so that it must not count as effective.
	survivesLoss bool
}

// run repeats its rounds until the barrier is done and the change survives a loss of
// commits, or until ctx ends.
func (a *announcement) run(ctx context.Context) error {
	for over := false; !over; over = ctx.Err() != nil || a.effective() {
		if err := a.round(ctx); err != nil {
			return err
		}
	}
	a.service.metrics.announced(a.start)
	return nil
}

// round pushes the change once, appends and records it if that has not succeeded yet,
// reads the sessions, and collects acknowledgements until pushInterval has passed since
// the push. Neither the push nor the stream waits for Postgres: while it is unavailable, all
// proxies that can be reached get the change. A later error with Postgres does not end
// the wait, unless the change is lost.
func (a *announcement) round(ctx context.Context) error {
	interval := time.NewTimer(pushInterval)
	defer interval.Stop()

	stop, err := a.service.pusher.Push(ctx, a.change, func(proxy string, ack wire.Ack) {
		select {
		case a.acks <- sentAck{ack, proxy}:
		case <-ctx.Done():
		}
	})

	a.append(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if err := a.readActive(ctx); ctx.Err() == nil && (errors.Is(err, ErrChangeLost) || err != nil && a.barrier == nil) {
		return err
	}

	if a.barrier != nil {
		a.askStream(ctx)
		a.collect(ctx, interval.C)
	}

	return nil
}

// append appends the change to the stream of changes, if that has not succeeded yet. The stream gets each of the changes that were
// committed together on its own: one of a secret that it does not have would be unknown to a proxy that no push reaches.
func (a *announcement) append(ctx context.Context) {
	if a.stored {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for _, one := range a.change.All() {
		if err := a.service.cfg.Append(ctx, one); err != nil {
			a.service.log.DebugContext(ctx, "the stream of changes does not take a change yet", slog.Any("error", err))
			return
		}
	}
	a.stored = true
}

// readActive records the change if necessary, and then reads the sessions for the
// barrier.
//
// The sessions are read after the commit of the change. A session that registers
// later has no key records from before.
func (a *announcement) readActive(ctx context.Context) error {
	a.recorded = a.recorded || a.recordRevocation(ctx)
	active, err := a.service.store.ActiveSessions(ctx, a.change)
	if err != nil {
		return err
	}

	a.proxies = make(map[wire.SessionID]string, len(active))
	for _, s := range active {
		a.proxies[s.Session] = s.Proxy
	}

	if a.barrier == nil {
		a.barrier = session.NewBarrier(a.change.Revision, active)
	} else {
		a.barrier.Refresh(active)
	}

	a.survivesLoss = a.recorded
	return nil
}

// recordRevocation records the change outside of Postgres if it is a revocation, for every secret of the key: if a rotation
// is lost with the commits of Postgres, an older secret is the current one again. It returns false if that failed.
func (a *announcement) recordRevocation(ctx context.Context) bool {
	if a.change.Kind != wire.KeyRevoked {
		return true
	}
	for _, one := range a.change.All() {
		if err := a.service.pusher.RecordRevocation(ctx, one); err != nil {
			a.service.log.WarnContext(ctx, "recording a revocation outside of Postgres failed", slog.Any("error", err))
			return false
		}
	}
	return true
}

// collect collects acknowledgements until the change is effective, or over.
func (a *announcement) collect(ctx context.Context, over <-chan time.Time) {
	for !a.effective() {
		select {
		case ack := <-a.acks:
			if name := a.proxies[ack.Session]; name != "" && name == ack.proxy { // no proxy can speak for another
				a.barrier.Ack(ack.Ack)
			}
		case <-over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// effective reports whether no proxy admits without the change any more.
func (a *announcement) effective() bool {
	return a.barrier != nil && a.barrier.Done() && a.survivesLoss
}

func (a *announcement) confirmation() propagation.Confirmation {
	if a.barrier == nil {
		return propagation.Confirmation{}
	}
	c := propagation.Confirmation{Effective: a.effective(), Confirmed: a.barrier.Confirmed(), Waiting: a.barrier.Waiting()}
	c.Bound, _ = session.Reach{
		Stored:  a.stored,
		Read:    true,
		Waiting: c.Waiting,
	}.Bound()
	return c
}
