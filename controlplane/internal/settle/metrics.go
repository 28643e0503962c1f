package settle

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// QuarantineMetrics exports the size of the quarantine.
type QuarantineMetrics struct {
	quarantine *Quarantine
	open       prometheus.Gauge
}

// NewQuarantineMetrics registers the metrics. They are zero until the first Update.
func NewQuarantineMetrics(q *Quarantine, reg prometheus.Registerer) *QuarantineMetrics {
	return &QuarantineMetrics{q, promauto.With(reg).NewGauge(prometheus.GaugeOpts{
		Name: "mgw_quarantine_open_events", Help: "Quarantined usage events that no operator has released or dismissed yet.",
	})}
}

// Update sets the metrics to the current number of open events.
func (m *QuarantineMetrics) Update(ctx context.Context) error {
	open, err := m.quarantine.CountOpen(ctx)
	if err != nil {
		return err
	}
	m.open.Set(float64(open))
	return nil
}
