package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
)

func TestRotateMasterKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	issued := b.key(b.account(5).ID, "")
	state := func() *adminclient.MasterKeyState {
		t.Helper()
		r, err := b.api.GetMasterKeyWithResponse(t.Context())
		check(t, err)
		if r.JSON200 == nil {
			t.Fatalf("master key: %s", r.Body)
		}
		return r.JSON200
	}
	want := []adminclient.MasterKey{{ID: "m1", Configured: true, Current: true, Secrets: 1}}
	if before := state(); cmp.Diff(want, before.Keys) != "" || before.Rotation != nil {
		t.Errorf("before: %+v", before)
	}
	started, err := b.api.RotateMasterKeyWithResponse(t.Context(), nil)
	check(t, err)
	again, err := b.api.RotateMasterKeyWithResponse(t.Context(), nil)
	check(t, err)
	if started.StatusCode() != http.StatusAccepted || started.JSON202.State != adminclient.Running || started.JSON202.ID != again.JSON202.ID {
		t.Fatalf("rotate: %s, then %s", started.Body, again.Body)
	}
	check(t, b.rotations.Work(t.Context()))
	after := state()
	want = []adminclient.MasterKey{{ID: "m1", Configured: true, Current: true, DataKeys: 1}}
	if diff := cmp.Diff(want, after.Keys); diff != "" || after.Rotation == nil || after.Rotation.State != adminclient.Done || after.Rotation.Changed != 1 {
		t.Errorf("after: %+v (-want +got):\n%s", after.Rotation, diff)
	}
	shown, err := b.api.RevealKeyWithResponse(t.Context(), issued.ID, nil)
	check(t, err)
	if shown.JSON200 == nil || shown.JSON200.Secret != issued.Secret {
		t.Errorf("show: %s", shown.Body)
	}
}

// TestMasterKeyInUse: a key under which something rests is shown, known or not,
// and is none that may be taken away.
func TestMasterKeyInUse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.key(b.account(5).ID, "")
	b.exec("update api_keys set cipher_key_id = 'm0'")
	r, err := b.api.GetMasterKeyWithResponse(t.Context())
	check(t, err)
	if r.JSON200 == nil {
		t.Fatalf("master key: %s", r.Body)
	}
	want := []adminclient.MasterKey{{ID: "m0", Secrets: 1}, {ID: "m1", Configured: true, Current: true}}
	if diff := cmp.Diff(want, r.JSON200.Keys); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

func TestRotatePepper(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.key(b.account(5).ID, "")
	started, err := b.api.RotatePepperWithResponse(t.Context(), nil)
	check(t, err)
	if started.JSON202 == nil || started.JSON202.Target != b.hasher.ID() {
		t.Fatalf("rotate: %s", started.Body)
	}
	check(t, b.rotations.Work(t.Context()))
	state, err := b.api.GetPepperWithResponse(t.Context())
	check(t, err)
	if p := state.JSON200; p == nil || p.Current != b.hasher.ID() || len(p.Configured) != 1 || p.Ready != 1 || p.Waiting != 0 || p.HashOnly != 0 ||
		p.Rotation == nil || p.Rotation.State != adminclient.Done {
		t.Errorf("pepper: %s", state.Body)
	}
}
