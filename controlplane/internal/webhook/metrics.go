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
			Name: "mgw_webhook_attempts_total", Help: "Attempts to deliver an event, by outcome: delivered, or the class of failure.",
		}, []string{"outcome"}),
		seconds: with.NewHistogram(prometheus.HistogramOpts{
			Name: "mgw_webhook_attempt_seconds", Help: "How long an attempt took.", Buckets: []float64{.01, .05, .1, .5, 1, 2.5, 5, 10, 15},
		}),
		queued: with.NewGauge(prometheus.GaugeOpts{
			Name: "mgw_webhook_queued", Help: "Deliveries that wait, of enabled endpoints.",
		}),
		oldest: with.NewGauge(prometheus.GaugeOpts{
			Name: "mgw_webhook_oldest_pending_age_seconds", Help: "How long the oldest event that is not delivered has waited, of enabled endpoints.",
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
