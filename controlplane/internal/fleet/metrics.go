package fleet

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics exports the sessions, and the usage that no proxy publishes.
type Metrics struct {
	store     Store
	sessions  *prometheus.GaugeVec
	unsettled *prometheus.GaugeVec
}

// NewMetrics registers the metrics. There are none until the first Update.
func NewMetrics(store Store, reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	sessions := f.NewGaugeVec(prometheus.GaugeOpts{
		Name: "mgw_proxy_sessions",
		Help: "Sessions of proxies by state: active, expired (without heartbeats, not fenced yet), fenced, or closed with usage that " +
			"has not arrived.",
	}, []string{"state"})
	return &Metrics{store, sessions, f.NewGaugeVec(prometheus.GaugeOpts{
		Name: "mgw_sessions_unsettled",
		Help: "Requests whose usage a proxy without an active session has not delivered, by the name of the proxy. Start it again " +
			"with its disk.",
	}, []string{"dataplane"})}
}

// Update sets the metrics to the current state of the sessions.
func (m *Metrics) Update(ctx context.Context) error {
	f, err := m.store.Fleet(ctx)
	if err != nil {
		return err
	}

	states := map[string]int{
		Active:  0,
		Expired: 0,
		Fenced:  0,
		Closed:  0,
	}

	for i := range f.Proxies {
		states[f.Proxies[i].State]++
	}

	for state, n := range states {
		m.sessions.WithLabelValues(state).Set(float64(n))
	}

	m.unsettled.Reset()
	for name, n := range f.Unserved() {
		m.unsettled.WithLabelValues(name).Set(float64(n))
	}

	return nil
}
