package operationsapi_test

import (
	"net/http"
	"slices"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

func TestDiagnosis(t *testing.T) {
	t.Parallel()
	b := start(t)
	r, err := servertest.Answered(b.API.GetDiagnosis(t.Context(), nil))
	servertest.Check(t, err)
	if r.StatusCode != http.StatusOK || r.Value.Build != "v1" || r.Value.At.IsZero() {
		t.Fatalf("got %s", r.Body)
	}
	found := map[string]adminclient.Finding{}
	for _, f := range r.Value.Findings {
		found[string(f.Area)+" "+f.Check] = f
	}
	for name, want := range map[string]adminclient.FindingStatus{
		"postgres migrations": adminclient.FindingStatusOK, "secrets master_keys": adminclient.FindingStatusOK, "proxies live": adminclient.FindingStatusFailure,
	} {
		f, there := found[name]
		if !there || f.Status != want || (want != adminclient.FindingStatusOK) != (f.Advice != nil) {
			t.Errorf("%s: %+v; want %s", name, f, want)
		}
	}
	if r.Value.Status != adminclient.FindingStatusFailure {
		t.Errorf("in all: %s; want failure, as no proxy lives", r.Value.Status)
	}
	without, err := servertest.Answered(b.API.GetDiagnosis(t.Context(), &adminclient.GetDiagnosisParams{Ledger: new(false)}))
	servertest.Check(t, err)
	ledger := func(f adminclient.Finding) bool { return f.Area == "ledger" }
	if all, rest := r.Value.Findings, without.Value.Findings; !slices.ContainsFunc(all, ledger) || slices.ContainsFunc(rest, ledger) || len(rest) >= len(all) {
		t.Errorf("got %d findings, and %+v without the ledger", len(all), rest)
	}
	denied, err := servertest.Answered(b.As(b.Token(adminclient.ScopeRead)).GetDiagnosis(t.Context(), nil))
	servertest.Check(t, err)
	servertest.Problem(t, denied.Problem, 403, "insufficient_scope")
}
