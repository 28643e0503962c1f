// Package margin compares what requests were charged with what they cost the operator.
package margin

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/project"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/money"
)

// By is what a report has a line for.
type By string

// The kinds of lines.
const (
	ByDay        By = "day"
	ByAccount    By = "account"
	ByProject    By = "project"
	ByKey        By = "key"
	ByModel      By = "model"
	ByProvider   By = "provider"
	ByRoute      By = "route"
	ByCredential By = "credential"
)

// All are all kinds of lines.
var All = []By{ByDay, ByAccount, ByProject, ByKey, ByModel, ByProvider, ByRoute, ByCredential}

// Query selects the calls of a report. Zero members select all.
type Query struct {
	By        By
	AccountID account.ID
	ProjectID project.ID
	KeyID     key.ID
	// Provider, Route and Credential are those of a call: a request that was served by another route may have calls of this one.
	Model, Provider, Route, Credential string
	// From and To are days: From ≤ day < To. They are midnights of UTC, whatever the zone is; nil is UTC.
	From, To time.Time
	Zone     *time.Location
	// After selects the lines after this one; nil starts with the first.
	After *Position
	// Limit is the maximum number of lines.
	Limit int
}

// longest bounds a period in days: a report is computed from the records.
const longest = 31

// defaultDays is how long a period without a beginning is, in days.
const defaultDays = 7

// Complete fills in the days that are not given, and checks them. now is the present time.
func (q *Query) Complete(now time.Time) error {
	zone := q.Zone
	if zone == nil {
		zone = time.UTC
	}
	if q.To.IsZero() {
		year, month, day := now.In(zone).Date()
		q.To = time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
	}
	if q.From.IsZero() {
		q.From = q.To.AddDate(0, 0, -defaultDays)
	}
	switch {
	case !q.From.Before(q.To):
		return validation.New("to", "must be after from")
	case q.To.After(q.From.AddDate(0, 0, longest)):
		return validation.New("to", "must be at most %d days after from", longest)
	}
	return nil
}

// StartsOfDays returns when each day of the period begins, and the last ends.
func (q *Query) StartsOfDays() []time.Time {
	return (&usage.TotalQuery{From: q.From, To: q.To, Zone: q.Zone}).StartsOfDays()
}

// Sums compares charges and costs of calls.
type Sums struct {
	// Requests counts the requests whose last call is one of these. Charged is what was charged for them.
	Requests int64
	Charged  money.Nano
	// ProviderCost is what the calls cost whose cost is known. Loss is the part of it for which nothing was charged: of calls that did
	// not serve their request, and of requests that cost the customer nothing.
	ProviderCost, Loss money.Nano
	// Unknown counts the calls whose cost is unknown; UnknownCharged is what was charged for them.
	Unknown        int64
	UnknownCharged money.Nano
}

// Margin returns what the operator has earned with the calls whose cost is known; it is negative for a loss.
func (s *Sums) Margin() money.Nano { return s.Charged - s.UnknownCharged - s.ProviderCost }

// Share returns the margin in thousandths of what was charged for the calls whose cost is known, rounded towards less. ok is false if
// that was nothing.
func (s *Sums) Share() (thousandths int64, ok bool) {
	charged := s.Charged - s.UnknownCharged
	if charged <= 0 {
		return 0, false
	}
	// ProviderCost may be a multiple of the charge, so the quotient is computed first.
	whole, rest := s.ProviderCost/charged, s.ProviderCost%charged
	const maxProduct = (1<<63 - 1) / 1000
	for rest > maxProduct {
		rest, charged = rest/2, charged/2
	}
	part := (rest*1000 + charged - 1) / charged
	return 1000 - 1000*int64(whole) - int64(part), true
}

// Line is the report of one account, route, or whatever the query asks for.
type Line struct {
	// Name is the day, the id as the API has it, or the name of the credential, whose Provider is that in which it is; empty
	// for none, such as requests of keys in no project.
	Name, Provider string
	// Label is what people call it; empty if they call it Name, or if it is no more.
	Label string
	// Route is what Name is the route of; empty for other lines.
	Route Route
	Sums
}

// Route is a model and the provider that serves it.
type Route struct{ Model, Provider string }

// Position is the place of a line in the list.
type Position struct {
	Margin         money.Nano
	Provider, Name string
}

// Position returns the place of the line.
func (l *Line) Position() Position { return Position{l.Margin(), l.Provider, l.Name} }

// Report are lines with the least margin first, and the sums of all lines of the query, not only of these.
type Report struct {
	Lines []Line
	Total Sums
}

// Store computes reports.
type Store interface {
	// Margin returns usage.ErrRecordsDropped if not all records of the period are kept.
	Margin(ctx context.Context, q *Query) (Report, error)
}
