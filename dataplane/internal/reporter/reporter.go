// Package reporter tells the control planes every two seconds what the proxy does: the counters that its metrics have, its
// circuit breakers, and the requests that it has refused since the last report.
//
// It reads counters and stays off the way of requests; only a refused request is counted by it. Nothing depends on a
// report: one that cannot be sent is not repeated, because the next has the same totals.
package reporter

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"modelgateway/shared/pulse"
	"modelgateway/shared/wire"
)

// Config has the sources of the report. All are required and are called every two seconds.
type Config struct {
	// Proxy is the name of the proxy.
	Proxy string
	// SessionFunc returns the id of the current session, zero without one.
	SessionFunc  func() wire.SessionID
	DrainingFunc func() bool
	InFlightFunc func() map[string]int64
	SpoolFunc    func() pulse.Spool
	TotalsFunc   func() []pulse.Total
	BreakersFunc func() []pulse.Breaker
	Refusals     *Refusals
	// SendFunc sends an encoded report.
	SendFunc func(data []byte) error
	Log      *slog.Logger
}

// Reporter sends the reports of one process.
type Reporter struct {
	cfg     Config
	process string
	started time.Time
	// cursor is the first row of the next report, if not all rows fit into one.
	cursor int
	// failing means that the last report could not be sent.
	failing bool
}

// New returns a Reporter.
func New(cfg Config) *Reporter {
	return &Reporter{cfg: cfg, process: rand.Text(), started: time.Now()}
}

// Run sends reports until ctx ends, and then a last one.
func (r *Reporter) Run(ctx context.Context) {
	ticker := time.NewTicker(pulse.Interval)
	defer ticker.Stop()
	for {
		r.send(ctx, ctx.Err() != nil)
		if ctx.Err() != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// send makes and sends one report.
func (r *Reporter) send(ctx context.Context, last bool) {
	now := time.Now()
	report, data, err := r.report(now, last)
	if err == nil {
		err = r.cfg.SendFunc(data)
	}
	if err != nil {
		r.cfg.Refusals.restore(now, report.Refusals)
		if !r.failing {
			r.cfg.Log.WarnContext(ctx, "report of the traffic could not be sent", slog.Any("error", err))
		}
	}
	r.failing = err != nil
}

// maxRefusals is the part of a report that refusals may take, in bytes.
const maxRefusals = pulse.MaxReport / 2

// report makes the next report and encodes it.
func (r *Reporter) report(now time.Time, last bool) (*pulse.Report, []byte, error) {
	report := &pulse.Report{
		V:        pulse.Version,
		Proxy:    r.cfg.Proxy,
		Process:  r.process,
		Session:  r.cfg.SessionFunc(),
		UptimeMS: now.Sub(r.started).Milliseconds(),
		Draining: r.cfg.DrainingFunc(),
		Last:     last,
		InFlight: r.cfg.InFlightFunc(),
		Spool:    r.cfg.SpoolFunc(),
		Refusals: r.cfg.Refusals.take(now, maxRefusals),
	}

	const frame = 96 // the names of the lists, and partial
	r.fill(report, pulse.MaxReport-frame-size(report))
	data, err := json.Marshal(report)
	if err != nil {
		return report, nil, fmt.Errorf("reporter: encode report: %w", err)
	}

	return report, data, nil
}

// fill adds the breakers and totals that fit into room bytes. If not all fit, the next report continues after them.
func (r *Reporter) fill(report *pulse.Report, room int) {
	totals, breakers := r.cfg.TotalsFunc(), r.cfg.BreakersFunc()
	rows := len(totals) + len(breakers)
	for i := range rows {
		at := (r.cursor + i) % rows
		if at < len(breakers) {
			if room -= size(breakers[at]); room >= 0 {
				report.Breakers = append(report.Breakers, breakers[at])
			}
		} else if total := totals[at-len(breakers)]; true {
			if room -= size(total); room >= 0 {
				report.Totals = append(report.Totals, total)
			}
		}
		if room < 0 {
			r.cursor, report.Partial = at, true
			return
		}
	}

	r.cursor = 0
}
