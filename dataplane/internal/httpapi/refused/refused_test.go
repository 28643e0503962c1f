package refused

import (
	"fmt"
	"testing"
	"time"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/auth"
	"modelgateway/dataplane/internal/bytebudget"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/pulse"
)

// Seven refusals share two codes and one status: those who run the gateway see which it was.
func TestRefusalsHaveReasonsBesideTheirCodes(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		pulse.ReasonKeyInactive: &auth.InactiveError{Reason: pulse.ReasonKeyInactive},
		pulse.ReasonMaintenance: Maintenance(&catalogkv.Maintenance{}, time.Now()),
		pulse.ReasonNoSession:   admission.ErrNoSession,
		pulse.ReasonNoSpool:     fmt.Errorf("%w: full", admission.ErrNoSpool),
		pulse.ReasonNoRoom:      bytebudget.ErrFull,
		pulse.ReasonNoRoute:     NoRoute(time.Second),
		pulse.ReasonUndecided:   fmt.Errorf("%w: no decision in 2s", admission.ErrUnavailable),
		"":                      &admission.RefusedError{},
	} {
		if got := Reason(fmt.Errorf("a step: %w", err)); got != want {
			t.Errorf("%v: got %q; want %q", err, got, want)
		}
	}
	if got := Reason(nil); got != "" {
		t.Errorf("without an error: got %q", got)
	}
}
