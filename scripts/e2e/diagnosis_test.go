package e2e

import (
	"context"
	"fmt"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
)

// A healthy system has no findings, and every proxy reports that it has the secrets of the
// control plane.
func TestHealthySystemHasNoFindings(t *testing.T) {
	t.Parallel()
	r := rig.Get(t)
	rig.Await(t, "a diagnosis without failure", func(ctx context.Context) error {
		answer, err := r.Admin.GetDiagnosis(ctx, nil)
		if err != nil {
			return err
		}
		same := 0
		for _, f := range answer.Value.Findings {
			if f.Status == adminclient.FindingStatusFailure && f.Area != "catalog" { // other tests break providers
				return fmt.Errorf("%s %s: %s", f.Area, f.Check, f.Detail)
			}
			if (f.Check == "pepper" || f.Check == "ready") && f.Status == adminclient.FindingStatusOK {
				same++
			}
		}
		if same != 2*len(r.Proxies) {
			return fmt.Errorf("%d checks of %d proxies passed; want each to be ready and to have the pepper", same, len(r.Proxies))
		}
		return nil
	})
}
