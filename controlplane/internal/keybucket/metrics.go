package keybucket

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	written, failed prometheus.Counter
	left            prometheus.Gauge
	behind          *behind
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		written: f.NewCounter(prometheus.CounterOpts{
			Name: "mgw_key_bucket_records_written_total", Help: "Key records that this replica has written to the bucket of key records.",
		}),
		failed: f.NewCounter(prometheus.CounterOpts{
			Name: "mgw_key_bucket_failures_total",
			Help: "Failed attempts of this replica to compare the bucket of key records with Postgres, or to write to it.",
		}),
		left: f.NewGauge(prometheus.GaugeOpts{
			Name: "mgw_key_bucket_keys_left",
			Help: "Keys that this replica has yet to write while it writes all keys to their bucket; 0 otherwise.",
		}),
		behind: &behind{},
	}

	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mgw_key_bucket_behind_seconds",
		Help: "Seconds for which this replica has not found every committed change in the bucket of key records; 0 if it has.",
	}, m.behind.seconds)

	return m
}

// behind is since when the bucket has lacked a change.
type behind struct {
	mu    sync.Mutex
	since time.Time // zero if it lacks none
}

func (b *behind) set(lacks bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !lacks:
		b.since = time.Time{}
	case b.since.IsZero():
		b.since = time.Now()
	}
}

func (b *behind) seconds() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.since.IsZero() {
		return 0
	}
	return time.Since(b.since).Seconds()
}
