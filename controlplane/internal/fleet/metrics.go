package fleet

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics exports the usage that no proxy publishes.
type Metrics struct {
	store     Store
	unsettled *prometheus.GaugeVec
}

// NewMetrics registers the metrics. There are none until the first Update.
func NewMetrics(store Store, reg prometheus.Registerer) *Metrics {
	return &Metrics{store, promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{
		Name: "mgw_sessions_unsettled",
		Help: "Requests whose usage a proxy without an active session has not delivered, by the name of the proxy. Start it again with its disk.",
	}, []string{"dataplane"})}
}

// Update sets the metrics to the current state of the sessions.
func (m *Metrics) Update(ctx context.Context) error {
	f, err := m.store.Fleet(ctx)
	if err != nil {
		return err
	}
	m.unsettled.Reset()
	for name, n := range f.Unserved() {
		m.unsettled.WithLabelValues(name).Set(float64(n))
	}
	return nil
}
