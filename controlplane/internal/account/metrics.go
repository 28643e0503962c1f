package account

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"modelgateway/shared/money"
)

// BalanceSummary counts the accounts by the state of their balance; each counts once.
type BalanceSummary struct {
	// Negative: the balance is below zero. Exhausted: it is zero, or a request was refused because of it since the last
	// payment. Low: it is below the threshold of the account. Sufficient: none of these.
	Negative, Exhausted, Low, Sufficient int64
	// Overdrawn is the sum of the negative balances, as a positive amount.
	Overdrawn money.Nano
	// Overrun is the sum of what was charged beyond what had been granted, Late of what was charged after the session had
	// closed, of all balances since they exist.
	Overrun, Late money.Nano
}

// BalanceReader reads the balances of all accounts.
type BalanceReader interface {
	SummarizeBalances(ctx context.Context) (BalanceSummary, error)
}

// BalanceMetrics exports the state of the balances.
type BalanceMetrics struct {
	reader                   BalanceReader
	accounts                 *prometheus.GaugeVec
	overdrawn, overrun, late prometheus.Gauge
}

// NewBalanceMetrics registers the metrics. There are no accounts until the first Update.
func NewBalanceMetrics(reader BalanceReader, reg prometheus.Registerer) *BalanceMetrics {
	f := promauto.With(reg)
	return &BalanceMetrics{
		reader: reader,
		accounts: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mgw_accounts",
			Help: "Accounts by the state of their balance: negative, exhausted (zero, or a request was refused because of it), low " +
				"(below the threshold) or sufficient.",
		}, []string{"state"}),
		overdrawn: f.NewGauge(prometheus.GaugeOpts{
			Name: "mgw_negative_balance",
			Help: "Sum of the negative balances in currency units, as a positive number: credit that the operator did not want to give.",
		}),
		overrun: f.NewGauge(prometheus.GaugeOpts{
			Name: "mgw_balance_overrun",
			Help: "Sum of what was charged to balances beyond what had been granted, in currency units, since the accounts exist.",
		}),
		late: f.NewGauge(prometheus.GaugeOpts{
			Name: "mgw_balance_late_charges",
			Help: "Sum of what was charged to balances after the session of the proxy had closed, in currency units, since the " +
				"accounts exist.",
		}),
	}
}

// Update sets the metrics to the current balances.
func (m *BalanceMetrics) Update(ctx context.Context) error {
	sum, err := m.reader.SummarizeBalances(ctx)
	if err != nil {
		return err
	}
	for state, n := range map[string]int64{
		"negative":   sum.Negative,
		"exhausted":  sum.Exhausted,
		"low":        sum.Low,
		"sufficient": sum.Sufficient,
	} {
		m.accounts.WithLabelValues(state).Set(float64(n))
	}
	m.overdrawn.Set(float64(sum.Overdrawn) / float64(money.Unit))
	m.overrun.Set(float64(sum.Overrun) / float64(money.Unit))
	m.late.Set(float64(sum.Late) / float64(money.Unit))
	return nil
}
