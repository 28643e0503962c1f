package webhook

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	attempts *prometheus.CounterVec
	seconds  prometheus.Histogram
	queued   prometheus.Gauge
	oldest   prometheus.Gauge
	// endpoints by state.
	endpoints *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	with := promauto.With(reg)
	return &metrics{
		attempts: with.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_webhook_attempts_total", Help: "Webhook delivery attempts by outcome: delivered, or the error class.",
		}, []string{"outcome"}),
		seconds: with.NewHistogram(prometheus.HistogramOpts{
			Name:    "mgw_webhook_attempt_seconds",
			Help:    "Duration of webhook delivery attempts in seconds.",
			Buckets: []float64{.01, .05, .1, .5, 1, 2.5, 5, 10, 15},
		}),
		queued: with.NewGauge(prometheus.GaugeOpts{
			Name: "mgw_webhook_queued", Help: "Pending webhook deliveries of enabled endpoints.",
		}),
		oldest: with.NewGauge(prometheus.GaugeOpts{
			Name: "mgw_webhook_oldest_pending_age_seconds",
			Help: "Age in seconds of the oldest pending webhook delivery of an enabled endpoint.",
		}),
		endpoints: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mgw_webhook_endpoints",
			Help: "Webhook endpoints by state: enabled, disabled by an operator, or failed, which the control plane has disabled.",
		}, []string{"state"}),
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

func (m *metrics) backlog(b *Backlog) {
	m.queued.Set(float64(b.Pending))
	m.oldest.Set(b.Oldest.Seconds())
	for _, state := range []string{"enabled", "disabled", "failed"} {
		m.endpoints.WithLabelValues(state).Set(float64(b.Endpoints[state]))
	}
}
