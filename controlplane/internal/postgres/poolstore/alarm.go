package poolstore

import (
	"context"
	"fmt"

	"modelgateway/controlplane/internal/postgres/eventstore"
	"modelgateway/controlplane/internal/postgres/pgconv"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// Watched is a pool with what its alarms are judged by, under lock.
type Watched struct {
	webhook.Pool
	id      int64
	Account ident.UUID
	key     ident.UUID
	// before are the alarms as they are stored.
	before webhook.Alarmed
	// refused tells that a request was refused because the pool is spent.
	refused bool
}

// judge raises the alarms of locked pools and writes what changed by that,
// which mostly is nothing.
func Judge(ctx context.Context, q *sqlcgen.Queries, pools ...Watched) error {
	var marks sqlcgen.SetRaisedAlertsParams
	var events []webhook.Event
	for i := range pools {
		p := &pools[i]
		now, raised := p.Judge(p.refused)
		if now == p.before {
			continue
		}
		marks.Ids = append(marks.Ids, p.id)
		marks.RaisedAlerts = append(marks.RaisedAlerts, int16(now))
		for _, t := range raised {
			events = append(events, p.event(t))
		}
	}
	if len(marks.Ids) == 0 {
		return nil
	}
	if err := q.SetRaisedAlerts(ctx, marks); err != nil {
		return fmt.Errorf("mark alarms: %w", err)
	}
	return eventstore.Insert(ctx, q, events...)
}

// event says what is known of a pool whose alarm was raised.
func (p *Watched) event(t webhook.Type) webhook.Event {
	amount := func(n int64) *money.Nano { return (*money.Nano)(&n) }
	e := webhook.Event{Type: t, AccountID: p.Account, KeyID: p.key}
	if p.Kind == wire.Balance {
		e.Facts.Balance = amount(p.Left())
	} else {
		e.Facts.SpendLimit, e.Facts.Spent = amount(p.Total), amount(p.Settled)
	}
	switch t {
	case webhook.LowBalance:
		e.Facts.Threshold = amount(p.LowAt)
	case webhook.LimitNear:
		e.Facts.Percent = p.Percent
	default:
		e.Facts.Refused = p.refused
	}
	return e
}

// watch takes the alarms of a locked pool; nil of one that has none.
func watch(r *sqlcgen.LockPoolsRow) *Watched {
	if wire.Kind(r.Kind) == wire.Slots {
		return nil
	}
	return &Watched{
		Pool: webhook.Pool{
			Kind: wire.Kind(r.Kind), Unlimited: r.Unlimited, Total: r.Total, Settled: r.Settled,
			LowAt: pgconv.Deref(r.LowBalanceThreshold), Percent: r.LimitAlertPercent, Alarmed: webhook.Alarmed(r.RaisedAlerts),
		},
		id: r.ID, Account: r.AccountID, key: pgconv.Deref(r.KeyID), before: webhook.Alarmed(r.RaisedAlerts),
	}
}

// alarm judges the pools of a book by what it says of them now.
func (s *Stored) Alarm(ctx context.Context, q *sqlcgen.Queries, b *allocator.Allocator, refused map[wire.PoolID]bool) error {
	for i := range s.Watched {
		w := &s.Watched[i]
		p := b.Pools[wire.PoolID(w.id)]
		w.Total, w.Settled, w.refused = p.Total, p.Settled, refused[p.ID]
	}
	return Judge(ctx, q, s.Watched...)
}

// refusals are the pools for whose sake the fresh results refuse requests
// that waiting cannot help.
func Refusals(ops []*wire.LeaseRequest, results map[allocator.RequestKey]*allocator.Result) map[wire.PoolID]bool {
	var refused map[wire.PoolID]bool
	for _, op := range ops {
		result := results[allocator.RequestKey{Session: op.Session, Account: op.Account}]
		if result == nil || !result.New || result.Number != op.Number {
			continue
		}
		for i, d := range result.Response.Decisions {
			kind := wire.Balance
			if d.Reason == wire.KeyLimitSpent {
				kind = wire.KeyLimit
			} else if d.Reason != wire.BalanceSpent {
				continue
			}
			for _, n := range op.Needs[i] {
				if n.Kind != kind {
					continue
				}
				if refused == nil {
					refused = map[wire.PoolID]bool{}
				}
				refused[n.Pool] = true
			}
		}
	}
	return refused
}
