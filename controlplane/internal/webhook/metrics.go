package webhook

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	attempts *prometheus.CounterVec
	seconds  prometheus.Histogram
	queued   prometheus.Gauge
	oldest   prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	with := promauto.With(reg)
	return &metrics{
		attempts: with.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_webhook_attempts_total", Help: "Webhook delivery attempts by outcome: delivered, or the error class.",
		}, []string{"outcome"}),
		seconds: with.NewHistogram(prometheus.HistogramOpts{
			Name: "mgw_webhook_attempt_seconds", Help: "Duration of webhook delivery attempts in seconds.", Buckets: []float64{.01, .05, .1, .5, 1, 2.5, 5, 10, 15},
		}),
		queued: with.NewGauge(prometheus.GaugeOpts{
			Name: "mgw_webhook_queued", Help: "Pending webhook deliveries of enabled endpoints.",
		}),
		oldest: with.NewGauge(prometheus.GaugeOpts{
			Name: "mgw_webhook_oldest_pending_age_seconds", Help: "Age in seconds of the oldest pending webhook delivery of an enabled endpoint.",
		}),
	}
}

func (m *metrics) attempted(a *Attempt) {
	outcome := "delivered"
	if a.Error != "" {
		outcome = string(a.Error)
	}
	m.attempts.WithLabelValues(outcome).Inc()
	m.seconds.Observe(a.Latency.Seconds())
}

func (m *metrics) backlog(count int64, age time.Duration) {
	m.queued.Set(float64(count))
	m.oldest.Set(age.Seconds())
}
