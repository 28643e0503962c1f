package leasing

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	batchSize, batchSeconds, announceSeconds, lookupSize prometheus.Histogram
	refused, recalls, stale                              prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		batchSize: f.NewHistogram(prometheus.HistogramOpts{
			Name: "mgw_lease_batch_size", Help: "Ops and returns in one transaction.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256},
		}),
		batchSeconds: f.NewHistogram(prometheus.HistogramOpts{
			Name: "mgw_lease_batch_seconds", Help: "Time of one transaction of ops and returns.",
			Buckets: []float64{.0005, .001, .002, .004, .008, .016, .032, .064, .128, .5, 2},
		}),
		lookupSize: f.NewHistogram(prometheus.HistogramOpts{
			Name: "mgw_key_lookup_batch_size", Help: "Key records read in one statement.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256},
		}),
		stale: f.NewCounter(prometheus.CounterOpts{
			Name: "mgw_key_lookups_stale_total", Help: "Lookups of keys that were dropped because nobody waited for them any more.",
		}),
		announceSeconds: f.NewHistogram(prometheus.HistogramOpts{
			Name: "mgw_revocation_lag_seconds", Help: "Time until every proxy has confirmed a change of keys or accounts.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .5, 1, 5, 30, 60},
		}),
		recalls: f.NewCounter(prometheus.CounterOpts{
			Name: "mgw_lease_recalls_sent_total", Help: "Recalls of idle units sent to proxies.",
		}),
		refused: f.NewCounter(prometheus.CounterOpts{
			Name: "mgw_lease_queue_refused_total", Help: "Messages turned away because the queue was full.",
		}),
	}
}

func (m *metrics) batch(size int, d time.Duration) {
	m.batchSize.Observe(float64(size))
	m.batchSeconds.Observe(d.Seconds())
}

// lookups notes how many of those that came were still wanted.
func (m *metrics) lookups(wanted, came int) {
	m.stale.Add(float64(came - wanted))
	if wanted > 0 {
		m.lookupSize.Observe(float64(wanted))
	}
}

func (m *metrics) announced(start time.Time) { m.announceSeconds.Observe(time.Since(start).Seconds()) }
