// Package traffic shows operators what the proxies do: now, minute by minute, and request by request.
//
// Each control plane receives the reports of all proxies and keeps the last minutes in memory. One of them writes minutes
// and hours to the database. What did not arrive is unknown, which is not zero: each figure carries the number of proxies that it covers.
package traffic

import (
	"maps"
	"time"

	"modelgateway/shared/pulse"
)

const (
	// silentAfter is the age of the last report from which on a proxy counts as silent.
	silentAfter = 3 * pulse.Interval
	// forgetAfter is when a proxy is forgotten that is silent and has no session.
	forgetAfter = 15 * time.Minute
	// maxSeries bounds the series of one process. A proxy has a few thousand at most.
	maxSeries = 20_000
	// maxPeriodSeries bounds the series of a period, maxProcesses the processes, and maxRefusals the refusals of a minute.
	// Further series and refusals are counted together, and the process that was silent longest is forgotten. No fleet
	// reaches them: they bound the memory that a proxy takes which sends ever new names.
	maxPeriodSeries, maxProcesses, maxRefusals = 5000, 5000, 20_000
)

// Sum is what was counted of a series in a period.
type Sum struct {
	N, SumMS int64
	// Buckets is nil for a series without buckets.
	Buckets []int64
}

// add adds another sum. It takes over other's buckets only by value.
func (s *Sum) add(other *Sum) {
	s.N += other.N
	s.SumMS += other.SumMS
	if len(s.Buckets) < len(other.Buckets) {
		s.Buckets = append(s.Buckets, make([]int64, len(other.Buckets)-len(s.Buckets))...)
	}
	for i, n := range other.Buckets {
		s.Buckets[i] += n
	}
}

// since returns the difference to an earlier total of the same series. ok is false if it does not follow from it.
func since(total, earlier *pulse.Total) (difference Sum, ok bool) {
	difference = Sum{N: total.N - earlier.N, SumMS: total.SumMS - earlier.SumMS}
	if difference.N < 0 || difference.SumMS < 0 || len(total.Buckets) < len(earlier.Buckets) {
		return Sum{}, false
	}
	if len(total.Buckets) > 0 {
		difference.Buckets = make([]int64, len(total.Buckets))
	}

	for i, n := range total.Buckets {
		if i < len(earlier.Buckets) {
			n -= earlier.Buckets[i]
		}
		if n < 0 {
			return Sum{}, false
		}
		difference.Buckets[i] = n
	}

	return difference, true
}

// Quantile returns an estimate of a quantile of the observed times, nil without any: within a bucket they are taken to be
// spread evenly. Beyond the last bound it returns the bound.
func (s *Sum) Quantile(m pulse.Measure, q float64) *time.Duration {
	bounds := m.Bounds()
	all := int64(0)
	for _, n := range s.Buckets {
		all += n
	}

	if all == 0 || len(bounds) == 0 {
		return nil
	}

	rank, below, lower := q*float64(all), int64(0), 0.0
	for i, n := range s.Buckets {
		if i >= len(bounds) {
			break
		}
		upper := float64(bounds[i])
		if n > 0 && float64(below+n) >= rank {
			d := time.Duration((lower + (upper-lower)*(rank-float64(below))/float64(n)) * float64(time.Millisecond))
			return &d
		}
		below, lower = below+n, upper
	}

	d := time.Duration(lower) * time.Millisecond
	return &d
}

// Period is what was counted in a span of time.
type Period struct {
	From time.Time
	Sums map[pulse.Series]*Sum
	// Heard has the requests in flight at the last report of each proxy that reported in the period, by name.
	Heard map[string]int64
}

// sum returns the sum of a series, of which there are not too many.
func (p *Period) sum(series pulse.Series) *Sum {
	known := p.Sums[series]
	if known == nil && len(p.Sums) >= maxPeriodSeries {
		series = pulse.Series{Measure: series.Measure, Outcome: other}
		known = p.Sums[series]
	}
	if known == nil {
		known = &Sum{}
		p.Sums[series] = known
	}
	return known
}

// Each calls add for every series of a measure.
func (p *Period) Each(m pulse.Measure, add func(pulse.Series, *Sum)) {
	for series, sum := range p.Sums {
		if series.Measure == m {
			add(series, sum)
		}
	}
}

// merge adds what another period has counted.
func (p *Period) merge(other *Period) {
	for series, sum := range other.Sums {
		p.sum(series).add(sum)
	}
	maps.Copy(p.Heard, other.Heard)
}

func newPeriod(from time.Time) *Period {
	return &Period{From: from, Sums: map[pulse.Series]*Sum{}, Heard: map[string]int64{}}
}

// window keeps the last periods of one width.
type window struct {
	width   time.Duration
	periods []*Period // a ring, by the number of the period since 1970
	newest  time.Time
}

func newWindow(width time.Duration, periods int) *window {
	return &window{width: width, periods: make([]*Period, periods)}
}

// at returns the period of a time, which becomes the newest. A period that is over does not change any more, also if the
// clock is set back.
func (w *window) at(now time.Time) *Period {
	from := now.Truncate(w.width)
	if from.Before(w.newest) {
		from = w.newest
	}
	w.newest = from
	place := &w.periods[w.place(from)]
	if *place == nil || !(*place).From.Equal(from) {
		*place = newPeriod(from)
	}
	return *place
}

func (w *window) place(from time.Time) int {
	return int(from.UnixMilli() / w.width.Milliseconds() % int64(len(w.periods)))
}

// last returns n complete periods before a time, oldest first. Periods in which nothing was reported are empty.
func (w *window) last(now time.Time, n int) []*Period {
	periods := make([]*Period, n)
	for i := range periods {
		from := now.Truncate(w.width).Add(-time.Duration(n-i) * w.width)
		periods[i] = w.periods[w.place(from)]
		if periods[i] == nil || !periods[i].From.Equal(from) {
			periods[i] = newPeriod(from)
		}
	}
	return periods
}

// sum adds up n complete periods before a time.
func (w *window) sum(now time.Time, n int) *Period {
	all := newPeriod(now.Truncate(w.width).Add(-time.Duration(n) * w.width))
	for _, p := range w.last(now, n) {
		all.merge(p)
	}
	return all
}
