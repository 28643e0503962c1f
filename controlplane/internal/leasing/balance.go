package leasing

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"time"

	"modelgateway/shared/wire"
)

// Asker asks every proxy what the running requests of an account hold. Answers
// receives each answer until stop is called.
type Asker interface {
	AskHeld(ctx context.Context, q wire.ReservedRequest, answers func(wire.ReservedResponse)) (stop func(), err error)
}

// heldWait is how long the proxies may take to answer.
const heldWait = 250 * time.Millisecond

// Balance reads the figures of an account and a key. What is reserved is what
// running requests hold, as their proxies say; if not all of them answer, it is
// all that their leases hold, idle units and unsettled charges included.
func (s *Service) Balance(ctx context.Context, r *wire.BalanceRequest) (*wire.BalanceResponse, error) {
	reply, err := s.store.Balance(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("read balance of %s: %w", r.AccountID, err)
	}
	asker, ok := s.pusher.(Asker)
	if !ok || (reply.Reserved == 0 && reply.KeyReserved == 0) {
		return reply, nil
	}
	held, complete, err := s.held(ctx, asker, r.AccountID)
	if err != nil {
		s.log.Warn("ask proxies what is held", slog.Any("error", err))
	}
	if complete {
		reply.Reserved = min(held[reply.BalancePool], reply.Reserved)
		if reply.Limited {
			reply.KeyReserved = min(held[reply.LimitPool], reply.KeyReserved)
		}
	}
	return reply, nil
}

// held adds up what the live sessions answer. complete is false if one of them
// did not.
func (s *Service) held(ctx context.Context, asker Asker, account string) (sum map[wire.PoolID]int64, complete bool, err error) {
	live, err := s.store.Pending(ctx, math.MaxInt64)
	if err != nil {
		return nil, false, err
	}
	waiting := map[wire.SessionID]bool{}
	for _, p := range live {
		waiting[p.Session] = true
	}
	ctx, cancel := context.WithTimeout(ctx, heldWait)
	defer cancel()
	answers := make(chan wire.ReservedResponse, len(live)+1)
	stop, err := asker.AskHeld(ctx, wire.ReservedRequest{V: wire.Version, Account: account}, func(h wire.ReservedResponse) {
		select {
		case answers <- h:
		case <-ctx.Done():
		}
	})
	if err != nil {
		return nil, false, err
	}
	defer stop()
	sum = map[wire.PoolID]int64{}
	for len(waiting) > 0 {
		select {
		case h := <-answers:
			if waiting[h.Session] {
				delete(waiting, h.Session)
				for pool, amount := range h.Reserved {
					sum[pool] += amount
				}
			}
		case <-ctx.Done():
			return nil, false, nil
		}
	}
	return sum, true, nil
}

// Running is what running requests hold of a pool of an account. It is not
// complete if a live proxy has not answered.
func (s *Service) Running(ctx context.Context, account string, pool wire.PoolID) (amount int64, complete bool) {
	asker, ok := s.pusher.(Asker)
	if !ok {
		return 0, false
	}
	held, complete, err := s.held(ctx, asker, account)
	if err != nil {
		s.log.Warn("ask proxies what is held", slog.Any("error", err))
		return 0, false
	}
	return held[pool], complete
}
