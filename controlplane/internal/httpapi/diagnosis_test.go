package httpapi_test

import (
	"testing"

	"modelgateway/controlplane/adminclient"
)

func TestDiagnosis(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r, err := b.api.GetDiagnosisWithResponse(t.Context())
	check(t, err)
	if r.JSON200 == nil || r.JSON200.Build != "v1" || r.JSON200.At.IsZero() {
		t.Fatalf("got %s", r.Body)
	}
	found := map[string]adminclient.Finding{}
	for _, f := range r.JSON200.Findings {
		found[string(f.Area)+" "+f.Check] = f
	}
	for name, want := range map[string]adminclient.FindingStatus{
		"postgres migrations": adminclient.OK, "secrets master_keys": adminclient.OK, "proxies live": adminclient.Failure,
	} {
		f, there := found[name]
		if !there || f.Status != want || (want != adminclient.OK) != (f.Advice != nil) {
			t.Errorf("%s: %+v; want %s", name, f, want)
		}
	}
	if r.JSON200.Status != adminclient.Failure {
		t.Errorf("in all: %s; want failure, as no proxy lives", r.JSON200.Status)
	}
	denied, err := b.as(b.token(adminclient.Read)).GetDiagnosisWithResponse(t.Context())
	check(t, err)
	problem(t, denied.ApplicationProblemJSONDefault, 403, "insufficient_scope")
}
