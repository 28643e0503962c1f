package traffic

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/project"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/ident"
	"modelgateway/shared/pulse"
)

// Measure is what a Series shows over time.
type Measure string

// The measures.
const (
	Requests Measure = "requests"
	Attempts Measure = "attempts"
	Refusals Measure = "refusals"
	Tokens   Measure = "tokens"
	Cost     Measure = "cost"
	TTFT     Measure = "ttft"
	Duration Measure = "duration"
)

// source is the reported measure in which a label is, and the outcome of its rows; empty for all.
type source struct {
	measure pulse.Measure
	outcome string
}

// sources has the labels of each measure, and where they come from. The empty label stands for the whole.
var sources = map[Measure]map[string]source{
	Requests: {
		"": {
			pulse.Requests,
			"",
		},
		"endpoint": {pulse.Requests, ""},
		"status":   {pulse.Requests, ""},
		"code":     {pulse.Requests, ""},
		"outcome":  {pulse.Requests, ""},
		"model":    {pulse.ModelRequests, ""},
		"provider": {pulse.Duration, ""},
		"route":    {pulse.Duration, ""},
	},
	Refusals: {
		"": {
			pulse.Requests,
			"refused",
		},
		"endpoint": {pulse.Requests, "refused"},
		"status":   {pulse.Requests, "refused"},
		"code":     {pulse.Requests, "refused"},
		"model":    {pulse.ModelRequests, "refused"},
	},
	Attempts: {"": {pulse.Attempts, ""}, "provider": {pulse.Attempts, ""}, "route": {pulse.Attempts, ""}, "outcome": {pulse.Attempts, ""}},
	Tokens:   {"": {pulse.Tokens, ""}, "model": {pulse.Tokens, ""}, "provider": {pulse.Tokens, ""}, "outcome": {pulse.Tokens, ""}},
	Cost:     {"": {pulse.Charges, ""}, "model": {pulse.Charges, ""}, "provider": {pulse.Charges, ""}},
	TTFT:     {"": {pulse.FirstToken, ""}, "provider": {pulse.FirstToken, ""}, "route": {pulse.FirstToken, ""}},
	Duration: {"": {pulse.Duration, ""}, "endpoint": {pulse.Duration, ""}, "provider": {pulse.Duration, ""}, "route": {pulse.Duration, ""}},
}

// Steps are the lengths of the periods of a Series, by name.
var Steps = map[string]time.Duration{"1m": time.Minute, "1h": time.Hour, "1d": 24 * time.Hour}

const (
	// maxPoints bounds the periods of a Series, maxLabels its labels; the smallest are added up beyond it.
	maxPoints = 1500
	maxLabels = 30
)

// Query selects a Series.
type Query struct {
	Measure Measure
	// By is the label that tells the sums of a period apart; empty for none.
	By   string
	Step time.Duration
	// From and To are rounded outwards to whole steps.
	From, To time.Time
	// Reported and Outcome select the rows.
	Reported pulse.Measure
	Outcome  string
}

// Series is a measure over time.
type Series struct {
	Query
	// FromRecords is set if the figures are sums of settled requests; otherwise they are what the proxies have reported.
	FromRecords bool
	Points      []Point
}

// Point is one period of a Series.
type Point struct {
	// Written says how much of the period is known. If no minute is, nothing of it is.
	Written
	// Sums are by label.
	Sums map[string]*Sum
}

// Stored is one sum by step and label.
type Stored struct {
	At    time.Time
	Label string
	Sum
}

// Service answers questions about the past.
type Service struct {
	store Store
	live  *Live
	now   func() time.Time
}

// NewService returns a Service. now is the clock; nil means time.Now.
func NewService(store Store, live *Live, now func() time.Time) *Service {
	if now == nil {
		now = time.Now
	}
	return &Service{store, live, now}
}

// Series returns a measure over time. Zero times mean the last 60 steps.
func (s *Service) Series(ctx context.Context, q Query) (*Series, error) {
	if err := s.complete(&q); err != nil {
		return nil, err
	}

	series := &Series{
		Query:       q,
		FromRecords: q.Step == Steps["1d"] && (q.Measure == Cost || q.Measure == Tokens) && (q.By == "" || q.By == "model"),
	}
	read := s.store.Read
	if series.FromRecords {
		read = s.store.Records
	}

	stored, err := read(ctx, &q)
	if err != nil {
		return nil, err
	}

	covered, err := s.store.Coverage(ctx, &q)
	if err != nil {
		return nil, err
	}

	series.Points = points(&q, stored, covered)
	return series, nil
}

// complete checks a query and fills in what it leaves open.
func (s *Service) complete(q *Query) error {
	var invalid validation.Errors
	if from, known := sources[q.Measure]; !known {
		invalid.Add("measure", "must be one of %v", slices.Sorted(maps.Keys(sources)))
	} else if of, known := from[q.By]; !known {
		labels := slices.DeleteFunc(slices.Sorted(maps.Keys(from)), func(label string) bool { return label == "" })
		invalid.Add("by", "must be one of %v for this measure", labels)
	} else {
		q.Reported, q.Outcome = of.measure, of.outcome
	}

	if q.Step == 0 {
		invalid.Add("step", "must be 1m, 1h or 1d")
		return invalid.Err()
	}

	if q.To.IsZero() {
		q.To = s.now()
	}
	if to := q.To.Truncate(q.Step); to.Before(q.To) {
		q.To = to.Add(q.Step)
	}

	if q.From.IsZero() {
		const steps = 60
		q.From = q.To.Add(-steps * q.Step)
	}

	q.From, q.To = q.From.UTC().Truncate(q.Step), q.To.UTC()
	switch {
	case !q.From.Before(q.To):
		invalid.Add("to", "must be after from")
	case q.To.Sub(q.From) > maxPoints*q.Step:
		invalid.Add("from", "must be at most %d steps before to", maxPoints)
	}

	return invalid.Err()
}

// points returns every period of a query, also those of which nothing is known.
func points(q *Query, stored []Stored, covered []Written) []Point {
	totals := map[string]int64{}
	for i := range stored {
		totals[stored[i].Label] += stored[i].N
	}

	kept := map[string]bool{}
	largest := slices.SortedFunc(maps.Keys(totals), func(a, b string) int {
		return cmp.Or(cmp.Compare(totals[b], totals[a]), cmp.Compare(a, b))
	})
	for i, label := range largest {
		kept[label] = i < maxLabels || len(totals) <= maxLabels+1
	}

	all := make([]Point, 0, q.To.Sub(q.From)/q.Step)
	for at := q.From; at.Before(q.To); at = at.Add(q.Step) {
		all = append(all, Point{Written: Written{At: at}, Sums: map[string]*Sum{}})
	}

	place := func(at time.Time) *Point {
		if i := int(at.Sub(q.From) / q.Step); !at.Before(q.From) && i < len(all) {
			return &all[i]
		}
		return &Point{Sums: map[string]*Sum{}}
	}

	for _, w := range covered {
		p := place(w.At)
		p.Minutes, p.Heard, p.Silent = w.Minutes, w.Heard, w.Silent
	}

	for i := range stored {
		p, label := place(stored[i].At), stored[i].Label
		if !kept[label] {
			label = other
		}
		if p.Sums[label] == nil {
			p.Sums[label] = &Sum{}
		}
		p.Sums[label].add(&stored[i].Sum)
	}

	return all
}

// RefusalQuery selects refusals. Zero values select all.
type RefusalQuery struct {
	Account *account.ID
	Key     *key.ID
	// Project is the project that the key is in now, or project.None; zero for all.
	Project project.ID
	Code    string
	// RequestID is the last request of the refusals; empty for all.
	RequestID string
	From, To  time.Time
	// Before is the id of the last refusal of the page before, zero for the first page.
	Before int64
	Limit  int
}

// HourlyRefusal counts the refused requests of one account, key and code in an hour.
type HourlyRefusal struct {
	ID   int64
	Hour time.Time
	Refusal
}

// Refusals lists refused requests, newest first. Those with a certain last request are found as soon as they are reported, before
// their minute is written: whoever has the id of a refused request asks at once.
func (s *Service) Refusals(ctx context.Context, q RefusalQuery) ([]HourlyRefusal, error) {
	if q.To.IsZero() {
		q.To = s.now().Add(time.Hour)
	}
	if q.RequestID == "" {
		return s.store.Refusals(ctx, &q)
	}

	// The id says when the request began, so that not all hours are searched for it.
	id, err := ident.Request.Parse(q.RequestID)
	if err != nil {
		return nil, nil //nolint:nilerr // no request has such an id
	}
	if from := id.Time().Add(-time.Hour); from.After(q.From) {
		q.From = from
	}
	if to := id.Time().Add(2 * time.Hour); to.Before(q.To) {
		q.To = to
	}

	// Which project a key is in now, Postgres alone knows.
	found, err := s.store.Refusals(ctx, &q)
	if err == nil && len(found) == 0 && q.Project == (project.ID{}) {
		found = s.live.refused(&q)
	}
	return found, err
}
