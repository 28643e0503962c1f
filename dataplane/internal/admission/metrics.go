package admission

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics counts admissions, refusals and recalls.
type Metrics struct {
	local, synchronous, recalls prometheus.Counter
	refusals                    *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	admissions := f.NewCounterVec(prometheus.CounterOpts{
		Name: "mgw_lease_admissions_total",
		Help: "Requests that asked for a reservation, by mode: local from idle units, synchronous by a lease request.",
	}, []string{"mode"})
	return &Metrics{
		local:       admissions.WithLabelValues("local"),
		synchronous: admissions.WithLabelValues("synchronous"),
		refusals: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_admission_refusals_total",
			Help: "Requests that the control plane refused, by reason (limit_insufficient, balance_insufficient, no_slot, limit_reserved " +
				"or balance_reserved) and by whose limit, slots or balance was short: account, project or key. Rate limits of providers " +
				"and creations of video jobs are not among them.",
		}, []string{"reason", "scope"}),
		recalls: f.NewCounter(prometheus.CounterOpts{Name: "mgw_lease_recalls_total", Help: "Recalls of idle units received."}),
	}
}
