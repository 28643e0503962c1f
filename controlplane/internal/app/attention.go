package app

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"modelgateway/controlplane/internal/settle"
	"modelgateway/controlplane/internal/video"
)

// attention keeps the metrics of what a person should look at: events in
// quarantine and video jobs that do not come to an end.
type attention struct {
	quarantine *settle.Quarantine
	videos     video.Jobs
	open       prometheus.Gauge
	jobs       *prometheus.GaugeVec
	oldest     prometheus.Gauge
}

func newAttention(quarantine *settle.Quarantine, videos video.Jobs, reg prometheus.Registerer) *attention {
	with := promauto.With(reg)
	return &attention{
		quarantine: quarantine, videos: videos,
		open: with.NewGauge(prometheus.GaugeOpts{
			Name: "mgw_quarantine_open_events", Help: "Usage events that could not be settled and that nobody has decided about.",
		}),
		jobs: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mgw_video_jobs", Help: "Open video jobs by state, and those given up within a day.",
		}, []string{"state"}),
		oldest: with.NewGauge(prometheus.GaugeOpts{
			Name: "mgw_video_jobs_oldest_open_seconds", Help: "How long the oldest open video job has been open.",
		}),
	}
}

func (a *attention) run(ctx context.Context) error {
	open, err := a.quarantine.Open(ctx)
	if err != nil {
		return err
	}
	a.open.Set(float64(open))
	sum, err := a.videos.Summary(ctx)
	if err != nil {
		return err
	}
	for _, state := range []video.State{video.Queued, video.Running, video.Unknown, video.Stuck, video.GivenUp} {
		a.jobs.WithLabelValues(string(state)).Set(float64(sum.Jobs[state]))
	}
	a.oldest.Set(sum.OldestOpen.Seconds())
	return nil
}
