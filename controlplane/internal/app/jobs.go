package app

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/webhook"
)

// jobs run again and again, each in its own rhythm. Every replica runs them,
// so a job must do no harm when it runs twice.
type jobs struct {
	log    *slog.Logger
	list   []job
	cancel context.CancelFunc
	done   sync.WaitGroup
}

type job struct {
	name  string
	every time.Duration
	run   func(ctx context.Context) error
}

func newJobs(log *slog.Logger) *jobs { return &jobs{log: log} }

func (j *jobs) every(name string, every time.Duration, run func(context.Context) error) {
	j.list = append(j.list, job{name, every, run})
}

func (j *jobs) start(ctx context.Context) {
	ctx, j.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, each := range j.list {
		j.done.Go(func() { j.loop(ctx, each) })
	}
}

func (j *jobs) stop() {
	j.cancel()
	j.done.Wait()
}

func (j *jobs) loop(ctx context.Context, each job) {
	// Replicas that start together do not work together.
	timer := time.NewTimer(rand.N(each.every))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if err := each.run(ctx); err != nil && ctx.Err() == nil {
			j.log.ErrorContext(ctx, "job failed", "job", each.name, "error", err)
		}
		timer.Reset(each.every)
	}
}

// ledgerCheck runs the self-check for the metrics.
type ledgerCheck struct {
	operator  operator
	log       *slog.Logger
	differing *prometheus.GaugeVec
	ok, last  *prometheus.GaugeVec
	seconds   *prometheus.GaugeVec
}

// operator is told of what a person should look at.
type operator interface {
	TellOperator(ctx context.Context, e webhook.Event) error
}

func newLedgerCheck(tell operator, log *slog.Logger, reg prometheus.Registerer) *ledgerCheck {
	with := promauto.With(reg)
	gauge := func(name, help, label string) *prometheus.GaugeVec {
		return with.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label})
	}
	return &ledgerCheck{
		operator: tell, log: log,
		differing: gauge("mgw_ledger_check_differing_rows", "Rows that broke an invariant at its last self-check.", "check"),
		ok:        gauge("mgw_ledger_check_ok", "1 if the last self-check of the scope found no difference.", "scope"),
		last:      gauge("mgw_ledger_check_timestamp_seconds", "Time of the last self-check.", "scope"),
		seconds:   gauge("mgw_ledger_check_duration_seconds", "How long the last self-check took.", "scope"),
	}
}

// job returns a job that compares what a scope holds.
func (c *ledgerCheck) job(scope string, compare func(context.Context) (ledger.Report, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		report, err := compare(ctx)
		if err != nil {
			return err
		}
		c.last.WithLabelValues(scope).Set(float64(report.At.Unix()))
		c.seconds.WithLabelValues(scope).Set(report.Took.Seconds())
		failed := c.note(ctx, scope, &report)
		if failed == nil {
			c.ok.WithLabelValues(scope).Set(1)
			return nil
		}
		c.ok.WithLabelValues(scope).Set(0)
		return c.operator.TellOperator(ctx, webhook.Event{Type: webhook.CheckFailed, Facts: webhook.Facts{Checks: failed}})
	}
}

// note logs every check that found something, with the first differing row.
func (c *ledgerCheck) note(ctx context.Context, scope string, report *ledger.Report) (failed []string) {
	for _, check := range report.Checks {
		c.differing.WithLabelValues(check.Name).Set(float64(check.Differing))
		if check.First == nil {
			continue
		}
		failed = append(failed, check.Name)
		c.log.ErrorContext(ctx, "ledger check", "scope", scope, "check", check.Name, "differing", check.Differing,
			"row", check.First.Row, "want", check.First.Want, "got", check.First.Got)
	}
	return failed
}
