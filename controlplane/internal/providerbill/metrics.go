package providerbill

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics shows what is open of bills.
type Metrics struct {
	bills          *Service
	overdue, share prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(bills *Service, reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	return &Metrics{
		bills,
		f.NewGauge(prometheus.GaugeOpts{
			Name: "mgw_provider_bills_overdue",
			Help: "Bills of providers of which more than 0.1 % has been open for 48 hours since the import.",
		}),
		f.NewGauge(prometheus.GaugeOpts{
			Name: "mgw_provider_bill_open_ratio",
			Help: "The largest part that is open of a bill of a provider, of those that are overdue; 0 if none is.",
		}),
	}
}

// Update reads what is open.
func (m *Metrics) Update(ctx context.Context) error {
	bills, share, err := m.bills.Overdue(ctx)
	if err != nil {
		return err
	}
	m.overdue.Set(float64(bills))
	m.share.Set(share)
	return nil
}
