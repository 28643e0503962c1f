package refused

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/shared/apierr"
	"modelgateway/shared/limit"
	"modelgateway/shared/pulse"
	"modelgateway/shared/wire"
)

// A refusal says at which level the limit is, in its message and to programs.
func TestRefusalNamesTheLimit(t *testing.T) {
	t.Parallel()
	ends := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for want, l := range map[string]*limit.Limit{
		"The spend limit lim_1 of this account is reached":           {Name: "lim_1", Scope: limit.Account},
		"The spend limit lim_2 of this API key's project is reached": {Name: "lim_2", Scope: limit.Project},
		"The spend limit lim_3 of this API key is reached":           {Name: "lim_3", Scope: limit.Key},
		"The spend limit of this API key is reached":                 nil,
	} {
		r := &admission.RefusedError{Decision: wire.Decision{Reason: wire.LimitInsufficient}, Limit: l, ResetsAt: ends, KeyID: "key_1"}
		if got := NoUnits(r); got.Status != http.StatusForbidden || !strings.HasPrefix(got.Message, want+": ") {
			t.Errorf("got %d %q; want %q", got.Status, got.Message, want)
		}
		scope, id, until := limit.Key, "key_1", ""
		if l != nil {
			scope, id, until = l.Scope, l.Name, "2026-12-01T00:00:00Z"
		}
		h := http.Header{}
		SetLimit(h, r)
		if h.Get("X-Limit-Scope") != string(scope) || h.Get("X-Limit-Id") != id || h.Get("X-Limit-Resets-At") != until {
			t.Errorf("%s: got %v", want, h)
		}
		resets := int64(0)
		if l != nil {
			resets = ends.UnixMilli()
		}
		if s := Short(r); s.Pool != pulse.Limit || s.Scope != scope || s.LimitID != id || s.ResetsMS != resets {
			t.Errorf("%s: reported as %+v", want, s)
		}
	}
}

// A limit that leaves something is not reached: the client has to know what its request lacks.
func TestRefusalSaysWhatTheRequestMayCostMoreThanTheLimitLeaves(t *testing.T) {
	t.Parallel()
	r := &admission.RefusedError{Decision: wire.Decision{Reason: wire.LimitInsufficient, Free: 1000}, Wanted: 201_000, KeyID: "key_1"}
	got := NoUnits(r)
	const want = "The spend limit of this API key leaves 0.000001, and this request may cost 0.000201. Ask for less output, or have the limit raised."
	if got.Status != http.StatusForbidden || got.Code != apierr.SpendLimitExceeded || got.Message != want {
		t.Errorf("got %d %s %q; want %q", got.Status, got.Code, got.Message, want)
	}
	r.Free = 0
	if got := NoUnits(r); got.Message != "The spend limit of this API key is reached: 0.00 remains." {
		t.Errorf("with nothing left: got %q", got.Message)
	}
}
