package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease"
	"modelgateway/shared/money"
)

// emit writes events in the transaction of their cause.
func emit(ctx context.Context, q *sqlcgen.Queries, events ...webhook.Event) error {
	if len(events) == 0 {
		return nil
	}
	var arg sqlcgen.InsertEventsParams
	for i := range events {
		e := &events[i]
		facts, err := json.Marshal(&e.Facts)
		if err != nil {
			return fmt.Errorf("encode facts of %s: %w", e.Type, err)
		}
		arg.Ids = append(arg.Ids, ident.New())
		arg.Types = append(arg.Types, string(e.Type))
		arg.AccountIds = append(arg.AccountIds, e.AccountID)
		arg.KeyIds = append(arg.KeyIds, e.KeyID)
		arg.Facts = append(arg.Facts, facts)
		arg.Once = append(arg.Once, e.Once)
	}
	if err := q.InsertEvents(ctx, arg); err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	return nil
}

// emitHourly writes an event for the operator, at most one of its type and
// subject in an hour: what goes wrong all the time is not news every time.
func emitHourly(ctx context.Context, q *sqlcgen.Queries, e webhook.Event, subject string) error {
	e.Once = fmt.Sprintf("%s %s", e.Type, time.Now().UTC().Format("2006-01-02T15"))
	if subject != "" {
		e.Once += " " + subject
	}
	// Looked at first, so that transactions do not wait for one another at the unique name.
	if written, err := q.EventWritten(ctx, e.Once); err != nil || written {
		return err
	}
	return emit(ctx, q, e)
}

// TellOperator writes an event that no change in the database causes, at most
// one of its type in an hour.
func (s WebhookStore) TellOperator(ctx context.Context, e webhook.Event) error {
	return s.tx(ctx, "tell operator", func(q *sqlcgen.Queries) error { return emitHourly(ctx, q, e, "") })
}

// watched is a pool with what its alarms are judged by, under lock.
type watched struct {
	webhook.Pool
	id      int64
	account ident.UUID
	key     ident.UUID
	// before are the alarms as they are stored.
	before webhook.Alarmed
	// refused tells that a request was refused because the pool is spent.
	refused bool
}

// judge raises the alarms of locked pools and writes what changed by that,
// which mostly is nothing.
func judge(ctx context.Context, q *sqlcgen.Queries, pools ...watched) error {
	var marks sqlcgen.SetAlarmedParams
	var events []webhook.Event
	for i := range pools {
		p := &pools[i]
		now, raised := p.Judge(p.refused)
		if now == p.before {
			continue
		}
		marks.Ids = append(marks.Ids, p.id)
		marks.Alarmed = append(marks.Alarmed, int16(now))
		for _, t := range raised {
			events = append(events, p.event(t))
		}
	}
	if len(marks.Ids) == 0 {
		return nil
	}
	if err := q.SetAlarmed(ctx, marks); err != nil {
		return fmt.Errorf("mark alarms: %w", err)
	}
	return emit(ctx, q, events...)
}

// event says what is known of a pool whose alarm was raised.
func (p *watched) event(t webhook.Type) webhook.Event {
	amount := func(n int64) *money.Nano { return (*money.Nano)(&n) }
	e := webhook.Event{Type: t, AccountID: p.account, KeyID: p.key}
	if p.Kind == lease.Balance {
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
func watch(r *sqlcgen.LockPoolsRow) *watched {
	if lease.Kind(r.Kind) == lease.Slots {
		return nil
	}
	return &watched{
		Pool: webhook.Pool{
			Kind: lease.Kind(r.Kind), Unlimited: r.Unlimited, Total: r.Total, Settled: r.Settled,
			LowAt: deref(r.AlarmAt), Percent: r.AlarmPercent, Alarmed: webhook.Alarmed(r.Alarmed),
		},
		id: r.ID, account: r.AccountID, key: deref(r.KeyID), before: webhook.Alarmed(r.Alarmed),
	}
}

// alarm judges the pools of a book by what it says of them now.
func (s *storedBook) alarm(ctx context.Context, q *sqlcgen.Queries, b *lease.Book, refused map[lease.PoolID]bool) error {
	for i := range s.watched {
		w := &s.watched[i]
		p := b.Pools[lease.PoolID(w.id)]
		w.Total, w.Settled, w.refused = p.Total, p.Settled, refused[p.ID]
	}
	return judge(ctx, q, s.watched...)
}

// refusals are the pools for whose sake the fresh results refuse requests
// that waiting cannot help.
func refusals(ops []*lease.Op, results map[lease.OpKey]*lease.Result) map[lease.PoolID]bool {
	var refused map[lease.PoolID]bool
	for _, op := range ops {
		result := results[lease.OpKey{Session: op.Session, Account: op.Account}]
		if result == nil || !result.Fresh || result.No != op.No {
			continue
		}
		for i, d := range result.Reply.Decisions {
			kind := lease.Balance
			if d.Reason == lease.LimitSpent {
				kind = lease.Limit
			} else if d.Reason != lease.BalanceSpent {
				continue
			}
			for _, n := range op.Needs[i] {
				if n.Kind != kind {
					continue
				}
				if refused == nil {
					refused = map[lease.PoolID]bool{}
				}
				refused[n.Pool] = true
			}
		}
	}
	return refused
}
