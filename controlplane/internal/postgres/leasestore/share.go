package leasestore

import (
	"context"
	"fmt"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/limit"
	"modelgateway/shared/wire"
)

// raiseShares raises the alarms of the windows of which the allocator has charged a share.
func (s *StoredPools) raiseShares(ctx context.Context, q *sqlcgen.Queries, a *allocator.Allocator) error {
	var reached []int64
	for id, raised := range s.windowAlarms {
		if p := a.Pools[id]; webhook.MayReachShare(p.Total, p.Settled, raised) {
			reached = append(reached, int64(id))
		}
	}
	return RaiseShares(ctx, q, reached...)
}

// RaiseShares evaluates the alarms of windows whose pools are locked and written. It writes the changed alarms and the events of newly
// raised ones.
func RaiseShares(ctx context.Context, q *sqlcgen.Queries, pools ...int64) error {
	if len(pools) == 0 {
		return nil
	}

	rows, err := q.WindowAlarms(ctx, pools)
	if err != nil {
		return fmt.Errorf("read windows: %w", err)
	}

	var changed sqlcgen.SetRaisedAlarmsParams
	var events []webhook.Event
	for i := range rows {
		w := alarmWindow(&rows[i])
		now, raised := w.EvaluateShares()
		if now == w.Raised {
			continue
		}
		changed.Ids = append(changed.Ids, rows[i].ID)
		changed.RaisedAlarms = append(changed.RaisedAlarms, int16(now))
		events = append(events, raised...)
	}

	if len(changed.Ids) == 0 {
		return nil
	}
	if err := q.SetRaisedAlarms(ctx, changed); err != nil {
		return fmt.Errorf("write alarms: %w", err)
	}

	return changestore.InsertEvents(ctx, q, events...)
}

func alarmWindow(r *sqlcgen.WindowAlarmsRow) webhook.Window {
	w := webhook.Window{
		AccountID: r.AccountID,
		KeyID:     postgres.Deref(r.KeyID),
		Limit: webhook.LimitFacts{
			ID:       ident.Limit.Format(r.LimitID),
			Name:     r.Name,
			Scope:    limit.Account,
			Period:   limit.Period(r.Period),
			StartsAt: r.StartsAt,
			ResetsAt: r.EndsAt,
		},
		Amount: r.Amount,
		Spent:  r.Spent,
		Raised: webhook.AlarmSet(r.RaisedAlarms),
	}
	switch {
	case r.KeyID != nil:
		w.Limit.Scope = limit.Key
	case r.ProjectID != nil:
		w.Limit.Scope, w.Limit.ProjectID = limit.Project, projectName(r.ProjectID)
	}
	return w
}

// windowAlarms returns the raised alarms of the windows among locked pools.
func windowAlarms(rows []sqlcgen.LockPoolsRow) map[wire.PoolID]webhook.AlarmSet {
	var raised map[wire.PoolID]webhook.AlarmSet
	for i := range rows {
		if rows[i].LimitNumber == nil {
			continue
		}
		if raised == nil {
			raised = map[wire.PoolID]webhook.AlarmSet{}
		}
		raised[wire.PoolID(rows[i].ID)] = webhook.AlarmSet(rows[i].RaisedAlarms)
	}
	return raised
}
