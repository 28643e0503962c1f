package accountstore

import (
	"context"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/audit"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/money"
)

// LockLimits makes the caller's transaction wait for others of the same actor, if the context has
// limits. It is called before the transaction writes what CheckCredits or CheckReveals counts.
func LockLimits(ctx context.Context, q *sqlcgen.Queries) error {
	if admin.LimitsOf(ctx) == (admin.Limits{}) {
		return nil
	}
	return postgres.Translate("lock the limits of a token", q.LockActor(ctx, audit.By(ctx).Name))
}

// CheckCredits returns admin.ErrLimitReached if the actor of the context has booked more today than
// its limit, including what the transaction has written.
func CheckCredits(ctx context.Context, q *sqlcgen.Queries) error {
	limit := admin.LimitsOf(ctx).CreditsPerDay
	if limit == nil {
		return nil
	}
	booked, err := q.CreditsToday(ctx, audit.By(ctx).Name)
	if err != nil {
		return postgres.Translate("sum the credits of a token", err)
	}
	if money.Nano(booked) > *limit {
		return admin.ErrLimitReached
	}
	return nil
}

// CheckReveals returns admin.ErrLimitReached if the actor of the context has revealed more keys
// today than its limit, including those of the transaction.
func CheckReveals(ctx context.Context, q *sqlcgen.Queries) error {
	limit := admin.LimitsOf(ctx).RevealsPerDay
	if limit == nil {
		return nil
	}
	revealed, err := q.RevealsToday(ctx, audit.By(ctx).Name)
	if err != nil {
		return postgres.Translate("count the revealed keys of a token", err)
	}
	if revealed > *limit {
		return admin.ErrLimitReached
	}
	return nil
}
