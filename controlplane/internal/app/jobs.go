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
	books     *ledger.Service
	operator  operator
	log       *slog.Logger
	differing *prometheus.GaugeVec
	last      prometheus.Gauge
}

// operator is told of what a person should look at.
type operator interface {
	TellOperator(ctx context.Context, e webhook.Event) error
}

func newLedgerCheck(books *ledger.Service, tell operator, log *slog.Logger, reg prometheus.Registerer) *ledgerCheck {
	with := promauto.With(reg)
	return &ledgerCheck{
		books: books, operator: tell, log: log,
		differing: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mgw_ledger_check_differing_rows", Help: "Rows that broke an invariant at the last self-check.",
		}, []string{"check"}),
		last: with.NewGauge(prometheus.GaugeOpts{
			Name: "mgw_ledger_check_timestamp_seconds", Help: "Time of the last self-check.",
		}),
	}
}

func (c *ledgerCheck) run(ctx context.Context) error {
	report, err := c.books.CheckRecent(ctx)
	if err != nil {
		return err
	}
	var failed []string
	for _, check := range report.Checks {
		c.differing.WithLabelValues(check.Name).Set(float64(check.Differing))
		if check.First != nil {
			failed = append(failed, check.Name)
			c.log.ErrorContext(ctx, "ledger check", "check", check.Name, "differing", check.Differing,
				"row", check.First.Row, "want", check.First.Want, "got", check.First.Got)
		}
	}
	c.last.Set(float64(report.At.Unix()))
	if failed == nil {
		return nil
	}
	return c.operator.TellOperator(ctx, webhook.Event{Type: webhook.CheckFailed, Facts: webhook.Facts{Checks: failed}})
}
