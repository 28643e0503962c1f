package ops

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Expiries exports the Unix times at which certificates expire. It is a prometheus.Collector.
type Expiries struct {
	// Desc has one label, the name of the certificate.
	Desc *prometheus.Desc
	// Times returns the expiry by name. A certificate whose function returns an error is left out.
	Times map[string]func() (time.Time, error)
}

func (e Expiries) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- e.Desc }

func (e Expiries) Collect(metrics chan<- prometheus.Metric) {
	for name, read := range e.Times {
		if at, err := read(); err == nil {
			metrics <- prometheus.MustNewConstMetric(e.Desc, prometheus.GaugeValue, float64(at.Unix()), name)
		}
	}
}
