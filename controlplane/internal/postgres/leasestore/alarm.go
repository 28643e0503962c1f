package leasestore

import (
	"context"
	"fmt"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/wire"
)

// AlarmPool is a locked pool with its alarms.
type AlarmPool struct {
	webhook.Pool
	id int64
	// stored are the raised alarms in the database.
	stored webhook.AlarmSet
	// refused reports that a request was refused because the pool cannot cover it.
	refused bool
}

// UpdateAlarms evaluates the alarms of locked pools. It writes the changed alarms and
// the events of newly raised ones.
func UpdateAlarms(ctx context.Context, q *sqlcgen.Queries, pools ...AlarmPool) error {
	var changed sqlcgen.SetRaisedAlarmsParams
	var events []webhook.Event
	for i := range pools {
		p := &pools[i]
		now, raised := p.EvaluateAlarms(p.refused)
		if now == p.stored {
			continue
		}
		changed.Ids = append(changed.Ids, p.id)
		changed.RaisedAlarms = append(changed.RaisedAlarms, int16(now))
		for _, t := range raised {
			events = append(events, p.Event(t, p.refused))
		}
	}

	if len(changed.Ids) == 0 {
		return nil
	}
	if err := q.SetRaisedAlarms(ctx, changed); err != nil {
		return fmt.Errorf("write alarms: %w", err)
	}

	return changestore.InsertEvents(ctx, q, events...)
}

// alarmPoolOf returns a locked pool with its alarms; nil if its kind has none.
func alarmPoolOf(r *sqlcgen.LockPoolsRow) *AlarmPool {
	if wire.PoolKind(r.Kind) == wire.Slots || r.LimitNumber != nil {
		return nil
	}
	return &AlarmPool{
		Pool: webhook.Pool{
			AccountID: r.AccountID,
			KeyID:     postgres.Deref(r.KeyID),
			Kind:      wire.PoolKind(r.Kind),
			Unlimited: r.Unlimited,
			Total:     r.Total,
			Settled:   r.Settled,
			Peak:      r.Peak,
			LowAt:     postgres.Deref(r.LowBalanceThreshold),
			Percent:   r.LimitAlertPercent,
			Raised:    webhook.AlarmSet(r.RaisedAlarms),
		},
		id: r.ID, stored: webhook.AlarmSet(r.RaisedAlarms),
	}
}

// UpdateAlarms evaluates the alarms of the pools in the state that the allocator computed.
func (s *StoredPools) UpdateAlarms(ctx context.Context, q *sqlcgen.Queries, a *allocator.Allocator, refused map[wire.PoolID]bool) error {
	for i := range s.AlarmPools {
		p := &s.AlarmPools[i]
		now := a.Pools[wire.PoolID(p.id)]
		p.Total, p.Settled, p.refused = now.Total, now.Settled, refused[now.ID]
	}
	if err := UpdateAlarms(ctx, q, s.AlarmPools...); err != nil {
		return err
	}
	return s.raiseShares(ctx, q, a)
}
