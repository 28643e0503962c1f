package ledger

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Alarm notifies the operator of a failed ledger check.
type Alarm interface {
	// LedgerCheckFailed gets the names of the checks that found differences.
	LedgerCheckFailed(ctx context.Context, checks []string) error
}

// History keeps the results of periodic checks.
type History interface {
	RecordCheck(ctx context.Context, scope string, report *Report) error
}

// Monitor runs ledger checks periodically. It exports their results as metrics, keeps
// them, logs the differences and notifies the operator of them.
type Monitor struct {
	history   History
	ledger    *Service
	alarm     Alarm
	log       *slog.Logger
	differing *prometheus.GaugeVec
	ok, last  *prometheus.GaugeVec
	seconds   *prometheus.GaugeVec
}

// NewMonitor returns a Monitor of a ledger.
func NewMonitor(s *Service, alarm Alarm, history History, log *slog.Logger, reg prometheus.Registerer) *Monitor {
	with := promauto.With(reg)
	gauge := func(name, help, label string) *prometheus.GaugeVec {
		return with.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label})
	}
	return &Monitor{
		ledger:    s,
		alarm:     alarm,
		history:   history,
		log:       log,
		differing: gauge("mgw_ledger_check_differing_rows", "Rows that violated an invariant in the last ledger check.", "check"),
		ok:        gauge("mgw_ledger_check_ok", "1 if the last ledger check of the scope found no difference, 0 if it did.", "scope"),
		last:      gauge("mgw_ledger_check_timestamp_seconds", "Unix time of the last ledger check.", "scope"),
		seconds:   gauge("mgw_ledger_check_duration_seconds", "Duration of the last ledger check in seconds.", "scope"),
	}
}

// CheckChanged checks what was written since the last check.
func (m *Monitor) CheckChanged(ctx context.Context) error {
	report, err := m.ledger.CheckChanged(ctx)
	if err != nil {
		return err
	}
	return m.report(ctx, "changed", &report)
}

// CheckRecent checks everything except old usage records.
func (m *Monitor) CheckRecent(ctx context.Context) error {
	report, err := m.ledger.CheckRecent(ctx)
	if err != nil {
		return err
	}
	return m.report(ctx, "recent", &report)
}

func (m *Monitor) report(ctx context.Context, scope string, report *Report) error {
	m.last.WithLabelValues(scope).Set(float64(report.At.Unix()))
	m.seconds.WithLabelValues(scope).Set(report.Took.Seconds())
	for _, check := range report.Checks {
		m.differing.WithLabelValues(check.Name).Set(float64(check.Differing))
	}
	m.ok.WithLabelValues(scope).Set(map[bool]float64{true: 1}[report.OK()])
	return errors.Join(m.history.RecordCheck(ctx, scope, report), m.Notify(ctx, scope, report))
}

// Notify logs the differences that a check found, and notifies the operator of them.
func (m *Monitor) Notify(ctx context.Context, scope string, report *Report) error {
	if failed := m.logDifferences(ctx, scope, report); failed != nil {
		return m.alarm.LedgerCheckFailed(ctx, failed)
	}
	return nil
}

// logDifferences logs the first differing row of every failed check and returns
// the names of these checks.
func (m *Monitor) logDifferences(ctx context.Context, scope string, report *Report) (failed []string) {
	for _, check := range report.Checks {
		if check.First == nil {
			continue
		}
		failed = append(failed, check.Name)
		m.log.ErrorContext(ctx, "ledger check found differences", "scope", scope, "check", check.Name, "differing", check.Differing,
			"row", check.First.Row, "want", check.First.Want, "got", check.First.Got)
	}
	return failed
}
