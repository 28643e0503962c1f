package leasing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"modelgateway/controlplane/internal/propagation"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/platform/sleep"
	"modelgateway/shared/wire"
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

// Announce pushes a committed change to every proxy until each live session has
// acknowledged it or has expired, or until the timeout. It may be called again for
// the same change. It returns ErrChangeLost if Postgres lost the change.
func (s *Service) Announce(ctx context.Context, c wire.KeyChange) (propagation.Confirmation, error) {
	if s.cfg.OnChange != nil {
		s.cfg.OnChange()
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ConfirmTimeout)
	defer cancel()
	a := &announcement{service: s, change: c, start: time.Now(), acks: make(chan sentAck, 64)}
	confirmation, err := a.run(ctx)
	if err != nil {
		return propagation.Confirmation{}, fmt.Errorf("announce revision %d: %w", c.Revision, err)
	}
	return confirmation, nil
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
	// asked is when the stream of changes was asked for the change.
	asked time.Time
	// recorded is true once the change needs no record in the recovery bucket, or has one.
	recorded bool
	// survivesLoss is true once the active sessions were read after the change was recorded. Before that, a loss of
	// commits could undo the change unnoticed, so that it must not count as effective.
	survivesLoss bool
}

// run repeats the push until the barrier is done and the change survives a loss
// of commits, or until ctx ends.
func (a *announcement) run(ctx context.Context) (propagation.Confirmation, error) {
	switch err := a.readActive(ctx); {
	case err != nil && ctx.Err() != nil: // the sessions are unknown; none is valid for longer than this bound
		return propagation.Confirmation{Bound: a.service.cfg.SessionTTL + a.service.cfg.margin()}, nil
	case err != nil:
		return propagation.Confirmation{}, err
	}
	defer a.service.metrics.announced(a.start)
	for {
		done, err := a.push(ctx)
		if err != nil {
			return propagation.Confirmation{}, err
		}
		if ctx.Err() != nil || (done && a.survivesLoss) {
			return a.confirmation(), nil
		}
		if err := a.readActive(ctx); errors.Is(err, ErrChangeLost) {
			return propagation.Confirmation{}, err
		}
		a.askStream(ctx)
		if done && !a.survivesLoss { // recording or reading failed
			sleep.For(ctx, pushInterval)
		}
	}
}

// readActive records the change if necessary, and then reads the sessions for the
// barrier.
//
// The sessions are read after the commit of the change. A session that registers
// later has no key records from before.
func (a *announcement) readActive(ctx context.Context) error {
	a.recorded = a.recorded || a.recordRevocation(ctx)
	cfg := a.service.cfg
	active, err := a.service.store.ActiveSessions(ctx, a.change, cfg.SessionTTL, cfg.margin())
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

// recordRevocation records the change outside of Postgres if it is a revocation.
// It returns false if that failed.
func (a *announcement) recordRevocation(ctx context.Context) bool {
	if a.change.Kind != wire.KeyRevoked {
		return true
	}
	if err := a.service.pusher.RecordRevocation(ctx, a.change); err != nil {
		a.service.log.WarnContext(ctx, "recording a revocation outside of Postgres failed", slog.Any("error", err))
		return false
	}
	return true
}

// push sends the change once, and then collects acknowledgements for
// pushInterval. It returns true as soon as the barrier is done.
func (a *announcement) push(ctx context.Context) (done bool, err error) {
	stop, err := a.service.pusher.Push(ctx, a.change, func(proxy string, ack wire.Ack) {
		select {
		case a.acks <- sentAck{ack, proxy}:
		case <-ctx.Done():
		}
	})
	if err != nil {
		return false, err
	}
	defer stop()
	interval := time.NewTimer(pushInterval)
	defer interval.Stop()
	for {
		if a.barrier.Done() {
			return true, nil
		}
		select {
		case ack := <-a.acks:
			if name := a.proxies[ack.Session]; name != "" && name == ack.proxy { // no proxy can speak for another
				a.barrier.Ack(ack.Ack)
			}
		case <-interval.C:
			return false, nil
		case <-ctx.Done():
			return false, nil
		}
	}
}

func (a *announcement) confirmation() propagation.Confirmation {
	return propagation.Confirmation{
		Effective: a.barrier.Done() && a.survivesLoss, Confirmed: a.barrier.Confirmed(),
		Bound: a.barrier.MaxWait(a.service.cfg.margin()), Waiting: a.barrier.Waiting(),
	}
}
