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
	"modelgateway/controlplane/internal/ledgercheck"
)

// jobs runs functions periodically, each at its own interval. Every replica runs
// all of them, so a job must be safe to run several times at once.
type jobs struct {
	log  *slog.Logger
	list []job
	// succeeded has the time of the last success by job.
	succeeded *prometheus.GaugeVec
	cancel    context.CancelFunc
	done      sync.WaitGroup
}

type job struct {
	name  string
	every time.Duration
	run   func(ctx context.Context) error
}

func newJobs(log *slog.Logger, reg prometheus.Registerer) *jobs {
	return &jobs{log: log, succeeded: promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{
		Name: "mgw_job_last_success_timestamp_seconds",
		Help: "Unix time of the last success of a background job in this replica; until the first, when the jobs were started.",
	}, []string{"name"})} // not "job", which is a label of Prometheus itself
}

func (j *jobs) every(name string, every time.Duration, run func(context.Context) error) {
	j.list = append(j.list, job{name, every, run})
}

func (j *jobs) start(ctx context.Context) {
	ctx, j.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, each := range j.list {
		j.succeeded.WithLabelValues(each.name).SetToCurrentTime()
		j.done.Go(func() { j.loop(ctx, each) })
	}
}

func (j *jobs) stop() {
	j.cancel()
	j.done.Wait()
}

func (j *jobs) loop(ctx context.Context, each job) {
	// A random delay keeps replicas that start together from running together.
	timer := time.NewTimer(rand.N(each.every))
	defer timer.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if err := each.run(ctx); err == nil {
			j.succeeded.WithLabelValues(each.name).SetToCurrentTime()
		} else if ctx.Err() == nil {
			j.log.ErrorContext(ctx, "job failed", "job", each.name, "error", err)
		}
		timer.Reset(each.every)
	}
}

// checkHistory keeps the results of periodic ledger checks.
type checkHistory struct{ checks *ledgercheck.Service }

func (h *checkHistory) RecordCheck(ctx context.Context, scope string, report *ledger.Report) error {
	return h.checks.Record(ctx, ledgercheck.Kind(scope), report)
}
