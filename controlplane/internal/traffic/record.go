package traffic

import (
	"cmp"
	"context"
	"slices"
	"time"

	"modelgateway/shared/pulse"
)

const (
	// maxRows bounds the rows of a minute. The smallest are added up beyond it.
	maxRows = 2000
	// other is the outcome of rows that are added up because there were too many.
	other = "other"
	// dueAfter is how long after its end a minute is written. A control plane that lacks reports of a proxy, or of a
	// part of the minute because it has just started, lets others write first.
	dueAfter, dueSilent, dueBegun = 4 * time.Second, 20 * time.Second, 30 * time.Second
)

// Row is what was counted of a series in a minute.
type Row struct {
	pulse.Series
	Sum
}

// Minute is what was counted in a minute.
type Minute struct {
	At time.Time
	// Heard and Silent are the numbers of proxies that reported, and that did not although they have a session.
	Heard, Silent int
	Rows          []Row
	Refusals      []Refusal
}

// Written is a minute, or several, as they are stored.
type Written struct {
	At time.Time
	// Minutes is how many are written, Heard the least number of proxies that reported in one of them, Silent the greatest number of
	// those that were not.
	Minutes, Heard, Silent int
}

// Store keeps minutes and hours.
type Store interface {
	// Written returns the minutes of a span that are written.
	Written(ctx context.Context, from, to time.Time) ([]Written, error)
	// Write writes a minute and adds it to its hour, unless it is written or another control plane is writing.
	Write(ctx context.Context, m *Minute) error
	// Read returns sums by step and label, and Coverage the minutes written by step.
	Read(ctx context.Context, q *Query) ([]Stored, error)
	Coverage(ctx context.Context, q *Query) ([]Written, error)
	// Records returns tokens and cost of settled requests by UTC day.
	Records(ctx context.Context, q *Query) ([]Stored, error)
	// Refusals returns refused requests by hour, newest first.
	Refusals(ctx context.Context, q *RefusalQuery) ([]HourlyRefusal, error)
}

// Recorder writes what Live has received.
type Recorder struct {
	live  *Live
	store Store
}

// NewRecorder returns a Recorder.
func NewRecorder(live *Live, store Store) *Recorder { return &Recorder{live, store} }

// Run writes the minutes that are over and that no control plane has written.
func (r *Recorder) Run(ctx context.Context) error {
	minutes := r.live.minutes()
	if len(minutes) == 0 {
		return nil
	}

	written, err := r.store.Written(ctx, minutes[0].At, minutes[len(minutes)-1].At.Add(time.Minute))
	if err != nil {
		return err
	}

	for i := range minutes {
		m := &minutes[i]
		if slices.ContainsFunc(written, func(w Written) bool { return w.At.Equal(m.At) }) {
			continue
		}
		if err := r.store.Write(ctx, m); err != nil {
			return err
		}
	}

	return nil
}

// minutes returns the minutes that are over and have reports, oldest first. Of the minute in which it started, a control
// plane that is alone writes what it has received: the refusals would be lost otherwise.
func (l *Live) minutes() []Minute {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	heardFrom := l.began.Add(silentAfter) // until then, the first reports say what had been before
	var all []Minute
	for _, p := range l.long.last(now, longPeriods-2) {
		age := now.Sub(p.From.Add(longWidth))
		silent := 0
		for _, s := range l.sessions {
			if _, heard := p.Heard[s.Name]; !heard {
				silent++
			}
		}

		switch {
		case len(p.Heard) == 0, age < dueAfter, silent > 0 && age < dueSilent, p.From.Before(heardFrom) && age < dueBegun:
			continue
		}

		m := Minute{
			At:     p.From,
			Heard:  len(p.Heard),
			Silent: silent,
			Rows:   p.rows(),
		}

		for _, refusal := range l.refusals[p.From] {
			m.Refusals = append(m.Refusals, *refusal)
		}

		slices.SortFunc(m.Refusals, func(a, b Refusal) int {
			return cmp.Or(
				cmp.Compare(a.Account, b.Account),
				cmp.Compare(a.Key, b.Key),
				cmp.Compare(a.Code, b.Code),
				cmp.Compare(a.Status, b.Status),
			)
		})

		all = append(all, m)
	}

	return all
}

// rows returns the rows of a minute. The smallest of each measure are added up if there are too many.
func (p *Period) rows() []Row {
	rows := make([]Row, 0, len(p.Sums))
	for series, sum := range p.Sums {
		rows = append(rows, Row{series, *sum})
	}

	slices.SortFunc(rows, func(a, b Row) int { return cmp.Or(cmp.Compare(b.N, a.N), a.Compare(b.Series)) })
	const measures = 16 // more than there are
	if len(rows) <= maxRows {
		return rows
	}

	rest := map[pulse.Measure]*Row{}
	for _, row := range rows[maxRows-measures:] {
		if rest[row.Measure] == nil {
			rest[row.Measure] = &Row{Series: pulse.Series{Measure: row.Measure, Outcome: other}}
		}
		rest[row.Measure].add(&row.Sum)
	}

	rows = rows[:maxRows-measures]
	for _, row := range rest {
		rows = append(rows, *row)
	}

	return rows
}
