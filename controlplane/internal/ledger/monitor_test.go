package ledger_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/controlplane/internal/ledger"
)

// alarm records what the operator is told.
type alarm struct {
	told [][]string
	err  error
}

func (a *alarm) LedgerCheckFailed(_ context.Context, checks []string) error {
	a.told = append(a.told, checks)
	return a.err
}

func TestDifferencesOfALedgerCheckAreLoggedAndTold(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	told := &alarm{}
	m := ledger.NewMonitor(nil, told, nil, slog.New(slog.NewTextHandler(&log, nil)), prometheus.NewRegistry())

	fine := ledger.Report{Checks: []ledger.Check{{Name: "pool_conservation", Compared: 12}}}
	if err := m.Notify(t.Context(), "recent", &fine); err != nil || len(told.told) != 0 || log.Len() != 0 || !fine.OK() {
		t.Errorf("without a difference: %v, told %v, log %q", err, told.told, log.String())
	}

	wrong := ledger.Report{Checks: []ledger.Check{
		{Name: "pool_conservation", Compared: 12},
		{Name: "balance", Compared: 4, Differing: 2, First: &ledger.Difference{Row: "account acc_1", Want: 700, Got: 900}},
	}}
	told.err = errors.New("the webhook cannot be written")
	if err := m.Notify(t.Context(), "recent", &wrong); !errors.Is(err, told.err) || wrong.OK() {
		t.Errorf("an alarm that was not raised is no error: %v", err)
	}
	if len(told.told) != 1 || !slices.Equal(told.told[0], []string{"balance"}) {
		t.Errorf("told %v; want the check that failed", told.told)
	}
	for _, part := range []string{"check=balance", "differing=2", `row="account acc_1"`, "want=700", "got=900"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("the log does not say %s: %s", part, log.String())
		}
	}
}
