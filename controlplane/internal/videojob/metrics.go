package videojob

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// JobMetrics exports the open video jobs.
type JobMetrics struct {
	jobs    Jobs
	byState *prometheus.GaugeVec
	oldest  prometheus.Gauge
}

// NewJobMetrics returns metrics that are zero until the first Update.
func NewJobMetrics(jobs Jobs, reg prometheus.Registerer) *JobMetrics {
	with := promauto.With(reg)
	return &JobMetrics{
		jobs: jobs,
		byState: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mgw_video_jobs", Help: "Open video jobs by state, and those given up within the last day.",
		}, []string{"state"}),
		oldest: with.NewGauge(prometheus.GaugeOpts{
			Name: "mgw_video_jobs_oldest_open_seconds", Help: "Age of the oldest open video job in seconds.",
		}),
	}
}

// Update counts the jobs.
func (m *JobMetrics) Update(ctx context.Context) error {
	sum, err := m.jobs.Summary(ctx)
	if err != nil {
		return err
	}
	for _, state := range []State{Queued, Running, Unknown, Stuck, GivenUp} {
		m.byState.WithLabelValues(string(state)).Set(float64(sum.Jobs[state]))
	}
	m.oldest.Set(sum.OldestOpen.Seconds())
	return nil
}
