package admission

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics counts admissions and recalls.
type Metrics struct{ local, synchronous, recalls prometheus.Counter }

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	admissions := f.NewCounterVec(prometheus.CounterOpts{
		Name: "mgw_lease_admissions_total", Help: "Requests that asked for a reservation, by mode: local from idle units, synchronous by a lease request.",
	}, []string{"mode"})
	return &Metrics{
		local: admissions.WithLabelValues("local"), synchronous: admissions.WithLabelValues("synchronous"),
		recalls: f.NewCounter(prometheus.CounterOpts{Name: "mgw_lease_recalls_total", Help: "Recalls of idle units received."}),
	}
}
