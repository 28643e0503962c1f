package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
)

// failures returns the failures of a diagnosis, as area, check and detail.
func failures(ctx context.Context, r *rig.Rig) ([]string, error) {
	answer, err := r.Admin.GetDiagnosis(ctx, nil)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, f := range answer.Value.Findings {
		if f.Status == adminclient.FindingStatusFailure {
			found = append(found, fmt.Sprintf("%s %s: %s", f.Area, f.Check, f.Detail))
		}
	}
	return found, nil
}

// checkNoFailure waits until a diagnosis has no failure.
func checkNoFailure(t *testing.T, r *rig.Rig) {
	t.Helper()
	rig.Await(t, "a diagnosis without a failure", func(ctx context.Context) error {
		found, err := failures(ctx, r)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("got %s", strings.Join(found, "; "))
		}
		return err
	})
}

// awaitFailure waits until a diagnosis has a failure of a check, and no other one.
func awaitFailure(t *testing.T, r *rig.Rig, check string) {
	t.Helper()
	rig.Await(t, "the failure "+check, func(ctx context.Context) error {
		found, err := failures(ctx, r)
		if err == nil && (len(found) != 1 || !strings.HasPrefix(found[0], check+":")) {
			err = fmt.Errorf("got %q", found)
		}
		return err
	})
}

// The diagnosis fails while nothing is served, whatever the reason, and not before and after.
func TestDiagnosisFailsWhileNothingIsServed(t *testing.T) {
	rig.Long(t)
	r := rig.Start(t, rig.Options{DataPlanes: 1, ControlSettings: shortSessions()})
	checkNoFailure(t, r)

	r.End(t, rig.DataPlane1)
	awaitFailure(t, r, "proxies live")
	r.Resume(t, rig.DataPlane1)
	checkNoFailure(t, r)

	r.Halt(t, rig.DataPlane1)
	awaitFailure(t, r, "proxies live")
	r.Resume(t, rig.DataPlane1)
	checkNoFailure(t, r)

	// The only provider of a model refuses every connection.
	account := r.Account(t, rig.AccountSpec{})
	dead := r.Provider(t, rig.Provider{BaseURL: "http://127.0.0.1:1"})
	model := r.Model(t, rig.Model{Routes: []rig.Route{{Provider: dead, UpstreamModel: "m", Formats: []string{"chat"}}}})
	checkNoFailure(t, r) // nothing is known before the first call
	rig.Await(t, "the failure of the model", func(ctx context.Context) error {
		answer, err := r.Try(ctx, rig.Request{Path: "/v1/chat/completions", Key: account.Key, Body: stream(model)})
		if err != nil {
			return err
		}
		found, err := failures(ctx, r)
		if err == nil && (len(found) != 1 || !strings.HasPrefix(found[0], "catalog served:")) {
			err = fmt.Errorf("after the answer %d the failures are %q", answer.Status, found)
		}
		return err
	})
}

// The diagnosis reports usage that waits, for example because a table is locked, and not usage
// that is on its way, or waits for a consumer of an earlier epoch.
func TestDiagnosisReportsUsageThatWaits(t *testing.T) {
	rig.Long(t)
	r := rig.Start(t, rig.Options{ControlSettings: shortSessions()})
	l := startLoadOn(t, r, clients)
	l.await(t, 60, answered)
	checkNoFailure(t, r)

	release := lockTable(t, r, "usage_records")
	l.await(t, 30, answered)
	lag := func(ctx context.Context, want func(adminclient.Finding) bool) error {
		answer, err := r.Admin.GetDiagnosis(ctx, nil)
		if err != nil {
			return err
		}
		for _, f := range answer.Value.Findings {
			if f.Check == "usage_lag" {
				if want(f) {
					return nil
				}
				return fmt.Errorf("got %s: %s", f.Status, f.Detail)
			}
		}
		return errors.New("no such check")
	}
	rig.Await(t, "usage that lags", func(ctx context.Context) error {
		return lag(ctx, func(f adminclient.Finding) bool { return f.Status != adminclient.FindingStatusOK })
	})
	release()
	rig.Await(t, "usage that does not lag", func(ctx context.Context) error {
		return lag(ctx, func(f adminclient.Finding) bool { return f.Status == adminclient.FindingStatusOK })
	})
	checkBills(t, l, l.finish(), credit)
}
