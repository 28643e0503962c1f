package bytebudget

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// refusals counts the bodies that had no room.
type refusals struct{ full, share, tooLarge prometheus.Counter }

func newRefusals() refusals {
	counter := func(reason string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{
			Name:        "mgw_body_refusals_total",
			ConstLabels: prometheus.Labels{"reason": reason},
			Help: "Request bodies, answers in one piece and large events of streams without room in the budget for bodies, by " +
				"reason: full, share of the account, too_large.",
		})
	}
	return refusals{counter("full"), counter("share"), counter("too_large")}
}

// count counts a refusal and returns it.
func (r *refusals) count(err error) error {
	switch {
	case errors.Is(err, ErrFull):
		r.full.Inc()
	case errors.Is(err, ErrShare):
		r.share.Inc()
	case errors.Is(err, ErrTooLarge):
		r.tooLarge.Inc()
	}
	return err
}

var (
	usedBytes = prometheus.NewDesc(
		"mgw_body_bytes",
		"Bytes of request bodies, answers in one piece and large events of streams that are held now.",
		nil,
		nil,
	)
	sizeBytes = prometheus.NewDesc("mgw_body_budget_bytes", "Size of the budget for bodies.", nil, nil)
)

func (b *Budget) Describe(descriptions chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(b, descriptions)
}

func (b *Budget) Collect(metrics chan<- prometheus.Metric) {
	metrics <- prometheus.MustNewConstMetric(usedBytes, prometheus.GaugeValue, float64(b.Used()))
	metrics <- prometheus.MustNewConstMetric(sizeBytes, prometheus.GaugeValue, float64(b.size))
	metrics <- b.refusals.full
	metrics <- b.refusals.share
	metrics <- b.refusals.tooLarge
}
