package httpapi_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/shared/apikey"
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

// What keeps an old pepper from going can be seen, and ends by revocation.
func TestHashOnlyKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.account(5)
	b.key(a.ID, "") // its text is known
	var imports []adminclient.ImportedKey
	for _, name := range []string{"one", "two", "three"} {
		imports = append(imports, adminclient.ImportedKey{AccountID: a.ID, Name: name, Hash: b.hasher.Hash(apikey.Generate()).String()})
	}
	made, err := b.api.ImportKeysWithResponse(t.Context(), nil, adminclient.KeyImport{Keys: imports})
	check(t, err)
	id := made.JSON201.Data[1].ID
	used := time.Now().UTC().Format(time.DateOnly)
	_, err = b.db.Pool().Exec(t.Context(), `insert into usage_daily select account_id, $2::date, $2::date, id, 'm', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
		from api_keys where name = $1`, "two", used)
	check(t, err)
	names := func() []string { // made in one moment, they are in any order
		return slices.Sorted(slices.Values(walk(t, func(limit *int, cursor *string) ([]string, *string) {
			r, err := b.api.ListHashOnlyKeysWithResponse(t.Context(), &adminclient.ListHashOnlyKeysParams{Limit: limit, Cursor: cursor})
			check(t, err)
			return idsOf(r.JSON200.Data, func(k adminclient.HashOnlyKey) string {
				if k.LastUsedOn != nil {
					return k.Name + " used " + *k.LastUsedOn
				}
				return k.Name
			}), r.JSON200.NextCursor
		}, func() {})))
	}
	if got, want := names(), []string{"one", "three", "two used " + used}; !slices.Equal(got, want) {
		t.Errorf("got %q; want %q", got, want)
	}
	revoked, err := b.api.RevokeKeyWithResponse(t.Context(), id, nil)
	check(t, err)
	if revoked.JSON200 == nil && revoked.JSON202 == nil {
		t.Fatalf("revoke: %s", revoked.Body)
	}
	if got, want := names(), []string{"one", "three"}; !slices.Equal(got, want) {
		t.Errorf("after one was revoked: got %q; want %q", got, want)
	}
	state, err := b.api.GetPepperWithResponse(t.Context())
	check(t, err)
	if state.JSON200 == nil || state.JSON200.HashOnly != 2 {
		t.Errorf("pepper: %s; want 2 hash-only", state.Body)
	}
}
