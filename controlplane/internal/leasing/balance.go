package leasing

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"modelgateway/shared/wire"
	"modelgateway/shared/wire/checkwire"
)

// reservedWait is how long the proxies may take to answer.
const reservedWait = 250 * time.Millisecond

// Balance returns the balance of an account and the limit of a key. The reserved
// amounts are those of running requests, as the proxies report them. If a proxy
// does not answer, they are everything outstanding in leases, including idle
// units and unsettled charges.
func (s *Service) Balance(ctx context.Context, r *wire.BalanceRequest) (*wire.BalanceResponse, error) {
	reply, err := s.store.Balance(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("read balance of %s: %w", r.AccountID, err)
	}
	if reply.Reserved == 0 && reply.KeyReserved == 0 {
		return reply, nil
	}

	reserved, complete, err := s.reserved(ctx, r.AccountID)
	if err != nil {
		s.log.Warn("asking the proxies for reserved amounts failed", slog.Any("error", err))
	}

	if complete {
		reply.Reserved = min(reserved[reply.BalancePool], reply.Reserved)
		if reply.Limited {
			reply.KeyReserved = min(reserved[reply.LimitPool], reply.KeyReserved)
		}
	}

	return reply, nil
}

// reserved adds up the reserved amounts that the live sessions report, by pool.
// complete is false if one of them did not answer.
func (s *Service) reserved(ctx context.Context, account string) (sum map[wire.PoolID]int64, complete bool, err error) {
	reported, silent, err := s.RunningBySession(ctx, account)
	if err != nil || len(silent) > 0 {
		return nil, false, err
	}
	sum = map[wire.PoolID]int64{}
	for _, amounts := range reported {
		for pool, amount := range amounts {
			sum[pool] += amount
		}
	}
	return sum, true, nil
}

// RunningBySession asks the live proxies what the running requests of an account
// reserve, by session and pool. It returns what they reported, and the names of the
// proxies that did not answer.
func (s *Service) RunningBySession(
	ctx context.Context,
	account string,
) (reported map[wire.SessionID]map[wire.PoolID]int64, silent []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, reservedWait)
	defer cancel()
	answers, silent, err := ask(ctx, s, func(a *wire.ReservedResponse) wire.SessionID { return a.Session },
		func(answer func(string, wire.ReservedResponse)) (func(), error) {
			return s.pusher.AskReserved(ctx, wire.ReservedRequest{V: wire.Version, Account: account}, answer)
		})
	if err != nil {
		return nil, nil, err
	}
	reported = map[wire.SessionID]map[wire.PoolID]int64{}
	for session, a := range answers {
		reported[session] = a.Reserved
	}
	return reported, silent, nil
}

// ask asks the live proxies and waits for their answers, until ctx ends. It returns the answers by session,
// and the names of the proxies that did not answer. sessionOf returns the session of an answer; send sends the question.
func ask[R any](
	ctx context.Context,
	s *Service,
	sessionOf func(*R) wire.SessionID,
	send func(answer func(proxy string, a R)) (stop func(), err error),
) (
	answered map[wire.SessionID]R, silent []string, err error,
) {
	live, err := s.store.LiveSessions(ctx)
	if err != nil {
		return nil, nil, err
	}

	waiting := maps.Clone(live)
	answers := make(chan R, len(live)+1)
	stop, err := send(func(proxy string, a R) {
		if live[sessionOf(&a)] != proxy {
			return // another proxy cannot speak for the session
		}
		select {
		case answers <- a:
		case <-ctx.Done():
		}
	})
	if err != nil {
		return nil, nil, err
	}
	defer stop()
	answered = map[wire.SessionID]R{}
	for len(waiting) > 0 {
		select {
		case a := <-answers:
			if _, waits := waiting[sessionOf(&a)]; waits {
				delete(waiting, sessionOf(&a))
				answered[sessionOf(&a)] = a
			}
		case <-ctx.Done():
			return answered, slices.Sorted(maps.Values(waiting)), nil
		}
	}

	return answered, nil, nil
}

// explainWait is how long the proxies may take to explain a request.
const explainWait = 2 * time.Second

// Explain asks the live proxies how they would answer a request now. It returns their answers, and the names of the
// proxies that did not answer.
func (s *Service) Explain(
	ctx context.Context,
	q *wire.ExplainRequest,
) (answers map[wire.SessionID]wire.ExplainResponse, silent []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, explainWait)
	defer cancel()
	return ask(ctx, s, func(a *wire.ExplainResponse) wire.SessionID { return a.Session },
		func(answer func(string, wire.ExplainResponse)) (func(), error) {
			return s.pusher.AskExplain(ctx, *q, answer)
		})
}

// checkWait is how long a proxy may take to check a provider: longer than the calls.
const checkWait = 25 * time.Second

// CheckProvider asks one live proxy to call a provider, the first by name. The name is empty if no proxy is live; answered
// is false if it did not answer.
func (s *Service) CheckProvider(ctx context.Context, provider string) (name string, checked checkwire.Response, answered bool, err error) {
	live, err := s.store.LiveSessions(ctx)
	if err != nil || len(live) == 0 {
		return "", checked, false, err
	}

	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	name = slices.Min(slices.Collect(maps.Values(live)))
	answers := make(chan checkwire.Response, 1)
	q := checkwire.Request{V: wire.Version, Proxy: name, Provider: provider}
	stop, err := s.pusher.AskCheck(ctx, q, func(proxy string, a checkwire.Response) {
		if proxy != name || live[a.Session] != proxy {
			return // another proxy cannot speak for the session
		}
		select {
		case answers <- a:
		default:
		}
	})
	if err != nil {
		return name, checked, false, err
	}
	defer stop()
	select {
	case checked = <-answers:
		return name, checked, true, nil
	case <-ctx.Done():
		return name, checked, false, nil
	}
}

// Running returns the units of an account's pool that running requests reserve.
// complete is false if a live proxy did not answer.
func (s *Service) Running(ctx context.Context, account string, pool wire.PoolID) (amount int64, complete bool) {
	running, complete := s.RunningByPool(ctx, account)
	return running[pool], complete
}

func (s *Service) RunningByPool(ctx context.Context, account string) (running map[wire.PoolID]int64, complete bool) {
	running, complete, err := s.reserved(ctx, account)
	if err != nil {
		s.log.Warn("asking the proxies for reserved amounts failed", slog.Any("error", err))
		return nil, false
	}
	return running, complete
}
