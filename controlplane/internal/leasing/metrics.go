package leasing

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	batchSize, batchSeconds, announceSeconds, lookupSize prometheus.Histogram
	refused, tooLarge, recalls, stale                    prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		batchSize: f.NewHistogram(prometheus.HistogramOpts{
			Name: "mgw_lease_batch_size", Help: "Number of lease requests and returns in one transaction.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256},
		}),
		batchSeconds: f.NewHistogram(prometheus.HistogramOpts{
			Name: "mgw_lease_batch_seconds", Help: "Duration of one transaction of lease requests and returns.",
			Buckets: []float64{.0005, .001, .002, .004, .008, .016, .032, .064, .128, .5, 2},
		}),
		lookupSize: f.NewHistogram(prometheus.HistogramOpts{
			Name: "mgw_key_lookup_batch_size", Help: "Number of key records read by one statement.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256},
		}),
		stale: f.NewCounter(prometheus.CounterOpts{
			Name: "mgw_key_lookups_stale_total", Help: "Key lookups that were dropped because their proxies no longer waited for them.",
		}),
		announceSeconds: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "mgw_revocation_lag_seconds",
			Help:    "Time that a key change waited until every proxy had confirmed it, or until the wait timed out.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .5, 1, 5, 30, 60},
		}),
		recalls: f.NewCounter(prometheus.CounterOpts{
			Name: "mgw_lease_recalls_sent_total", Help: "Recalls of idle units sent to proxies.",
		}),
		tooLarge: f.NewCounter(prometheus.CounterOpts{
			Name: "mgw_lease_messages_too_large_total",
			Help: "Lease requests and returns refused because they had more reports or needs than a proxy sends.",
		}),
		refused: f.NewCounter(prometheus.CounterOpts{
			Name: "mgw_lease_queue_refused_total", Help: "Lease requests, returns and key lookups refused because the queue was full.",
		}),
	}
}

func (m *metrics) batch(size int, d time.Duration) {
	m.batchSize.Observe(float64(size))
	m.batchSeconds.Observe(d.Seconds())
}

// lookups records a batch of lookups: how many there were, and for how many a proxy still waited.
func (m *metrics) lookups(awaited, total int) {
	m.stale.Add(float64(total - awaited))
	if awaited > 0 {
		m.lookupSize.Observe(float64(awaited))
	}
}

func (m *metrics) announced(start time.Time) { m.announceSeconds.Observe(time.Since(start).Seconds()) }
