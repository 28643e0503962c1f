package traffic

import (
	"time"

	"modelgateway/shared/pulse"
)

// RefusalKey is what refused requests have in common that are counted together. Account and Key are empty for requests
// without a valid key.
type RefusalKey struct {
	Account, Key, Code string
	Status             int
	// Other is set if the requests are of several accounts or keys, because there were too many.
	Other bool
}

// Refusal counts refused requests of one key in a period.
type Refusal struct {
	RefusalKey
	N           int64
	First, Last time.Time
	// RequestID is the id of the last request, Model the model that it asked for, Reason why it was refused, if its code does not
	// say that, and Short what it lacked; nil if no pool was short.
	RequestID, Model, Reason string
	Short                    *pulse.Short
}

// add adds further requests. The newer ones say what was short.
func (r *Refusal) add(other *Refusal) {
	if r.N == 0 || other.First.Before(r.First) {
		r.First = other.First
	}
	if !other.Last.Before(r.Last) {
		r.Last, r.RequestID, r.Model, r.Reason, r.Short = other.Last, other.RequestID, other.Model, other.Reason, other.Short
	}
	r.N += other.N
}

// refused returns the refusals of the last hour whose last request is that of the query.
func (l *Live) refused(q *RefusalQuery) []HourlyRefusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []HourlyRefusal
	for minute, counts := range l.refusals {
		hour := minute.UTC().Truncate(time.Hour)
		if hour.Before(q.From.UTC().Truncate(time.Hour)) || !hour.Before(q.To) || q.Before != 0 {
			continue
		}
		for key, r := range counts {
			if r.RequestID == q.RequestID && (q.Code == "" || key.Code == q.Code) &&
				(q.Account == nil || key.Account == q.Account.String()) && (q.Key == nil || key.Key == q.Key.String()) {
				found = append(found, HourlyRefusal{Hour: hour, Refusal: *r})
			}
		}
	}
	return found
}

// countRefusals adds the refusals of a report to the current minute. The caller holds the lock.
func (l *Live) countRefusals(now time.Time, r *pulse.Report) {
	if len(r.Refusals) == 0 {
		return
	}

	minute := now.Truncate(time.Minute)
	counts := l.refusals[minute]
	if counts == nil {
		counts = map[RefusalKey]*Refusal{}
		l.refusals[minute] = counts
		for earlier := range l.refusals {
			if now.Sub(earlier) > longPeriods*longWidth {
				delete(l.refusals, earlier)
			}
		}
	}

	for i := range r.Refusals {
		q := &r.Refusals[i]
		key := RefusalKey{q.Account, q.Key, q.Code, q.Status, q.Other}
		known := counts[key]
		if known == nil && len(counts) >= maxRefusals {
			key = RefusalKey{Status: q.Status, Other: true}
			known = counts[key]
		}

		if known == nil {
			known = &Refusal{RefusalKey: key}
			counts[key] = known
		}

		known.add(&Refusal{
			N:         q.N,
			First:     now.Add(-time.Duration(q.FirstMS) * time.Millisecond),
			Last:      now.Add(-time.Duration(q.LastMS) * time.Millisecond),
			RequestID: q.RequestID,
			Model:     q.Model,
			Short:     q.Short,
			Reason:    q.Reason,
		})
	}
}
