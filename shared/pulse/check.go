package pulse

import (
	"fmt"
	"strings"
)

const (
	// maxCount bounds every count and sum, so that those of many proxies can be added up.
	maxCount = 1 << 55
	// maxMS bounds every age, in milliseconds: 34 years.
	maxMS = 1 << 40
	// maxLabel bounds every name, in bytes, maxInFlight the endpoints of a report.
	maxLabel, maxInFlight = 512, 100
	// maxEndedMS is the last millisecond of the year 9999, after which times have no text.
	maxEndedMS = 253_402_300_799_999
)

// Check returns an error for a report that no proxy of the product sends. Whoever has the credentials of a proxy could send one
// to overflow sums, or names that a database refuses, and so keep the figures of all other proxies from being stored.
func (r *Report) Check() error {
	if err := label("process", r.Process); err != nil {
		return err
	}
	if len(r.InFlight) > maxInFlight {
		return fmt.Errorf("pulse: %d endpoints", len(r.InFlight))
	}

	for endpoint, n := range r.InFlight {
		if err := first(label("endpoint", endpoint), number("in_flight", n, maxCount)); err != nil {
			return err
		}
	}

	err := first(
		number("uptime_ms", r.UptimeMS, maxMS),
		number("spool", r.Spool.Used, maxCount),
		number("spool", r.Spool.Capacity, maxCount),
		number("spool", r.Spool.Bytes, maxCount),
		number("spool", r.Spool.MaxBytes, maxCount),
		number("spool", r.Spool.UnsettledMS, maxMS),
	)

	for i := 0; i < len(r.Totals) && err == nil; i++ {
		err = r.Totals[i].check()
	}

	for i := 0; i < len(r.Breakers) && err == nil; i++ {
		err = r.Breakers[i].check()
	}

	for i := 0; i < len(r.Refusals) && err == nil; i++ {
		err = r.Refusals[i].check()
	}

	return err
}

func (t *Total) check() error {
	err := first(
		label("measure", string(t.Measure)),
		label("endpoint", t.Endpoint),
		label("model", t.Model),
		label("provider", t.Provider),
		label("route", t.Route),
		label("code", t.Code),
		label("outcome", t.Outcome),
		number("status", int64(t.Status), 999),
		number("n", t.N, maxCount),
		number("sum_ms", t.SumMS, maxCount),
	)
	if bounds := len(t.Measure.Bounds()); err == nil && len(t.Buckets) > 0 && len(t.Buckets) != bounds+1 {
		err = fmt.Errorf("pulse: %d buckets of %s", len(t.Buckets), t.Measure)
	}
	for i := 0; i < len(t.Buckets) && err == nil; i++ {
		err = number("buckets", t.Buckets[i], maxCount)
	}
	return err
}

func (b *Breaker) check() error {
	return first(label("route", b.Route), label("state", string(b.State)), label("class", b.Class), number("since_ms", b.SinceMS, maxMS),
		number("next_try_ms", b.NextTryMS, maxMS), number("failures", int64(b.Failures), maxCount), number("failed_ms", b.FailedMS, maxMS),
		number("cooldown_ms", b.CooldownMS, maxMS))
}

func (r *Refusal) check() error {
	err := first(
		label("account", r.Account),
		label("key", r.Key),
		label("code", r.Code),
		label("request_id", r.RequestID),
		label("model", r.Model),
		number("status", int64(r.Status), 999),
		number("n", r.N, maxCount),
		number("first_ms", r.FirstMS, maxMS),
		number("last_ms", r.LastMS, maxMS),
	)
	if err == nil {
		err = label("reason", r.Reason)
	}
	if err == nil && r.Short != nil {
		err = r.Short.check()
	}
	return err
}

func (s *Short) check() error {
	return first(label("pool", string(s.Pool)), label("reason", s.Reason), label("scope", string(s.Scope)), label("limit_id", s.LimitID),
		number("resets_ms", s.ResetsMS, maxEndedMS))
}

// Plausible reports whether a line can be shown.
func (l *Line) Plausible() bool {
	return l.EndedMS >= 0 && l.EndedMS <= maxEndedMS && (l.Short == nil || l.Short.check() == nil)
}

func label(name, text string) error {
	if len(text) > maxLabel || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
		return fmt.Errorf("pulse: %s is too long or has control characters", name)
	}
	return nil
}

func number(name string, n, most int64) error {
	if n < 0 || n > most {
		return fmt.Errorf("pulse: %s is %d", name, n)
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
