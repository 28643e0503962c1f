package httpapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
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
		r, err := answered(b.api.GetMasterKey(t.Context()))
		check(t, err)
		if r.StatusCode != http.StatusOK {
			t.Fatalf("master key: %s", r.Body)
		}
		return r.Value
	}
	want := []adminclient.MasterKey{{ID: "m1", Configured: true, Current: true, Secrets: 1}}
	if before := state(); cmp.Diff(want, before.Keys) != "" || before.Rotation != nil {
		t.Errorf("before: %+v", before)
	}
	started, err := answered(b.api.RotateMasterKey(t.Context(), nil))
	check(t, err)
	again, err := answered(b.api.RotateMasterKey(t.Context(), nil))
	check(t, err)
	if started.StatusCode != http.StatusAccepted || started.Value.State != adminclient.RotationStateRunning || started.Value.ID != again.Value.ID {
		t.Fatalf("rotate: %s, then %s", started.Body, again.Body)
	}
	check(t, b.rotations.Work(t.Context()))
	after := state()
	want = []adminclient.MasterKey{{ID: "m1", Configured: true, Current: true, DataKeys: 1}}
	if diff := cmp.Diff(want, after.Keys); diff != "" || after.Rotation == nil || after.Rotation.State != adminclient.RotationStateDone || after.Rotation.Changed != 1 {
		t.Errorf("after: %+v (-want +got):\n%s", after.Rotation, diff)
	}
	shown, err := answered(b.api.RevealKey(t.Context(), issued.ID))
	check(t, err)
	if shown.StatusCode != http.StatusOK || shown.Value.Secret != issued.Secret {
		t.Errorf("show: %s", shown.Body)
	}
}

// A master key in use is shown, whether configured or not, and is not removable.
func TestMasterKeyInUseIsNotRemovable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.key(b.account(5).ID, "")
	b.exec("update api_keys set cipher_key_id = 'm0'")
	r, err := answered(b.api.GetMasterKey(t.Context()))
	check(t, err)
	if r.StatusCode != http.StatusOK {
		t.Fatalf("master key: %s", r.Body)
	}
	want := []adminclient.MasterKey{{ID: "m0", Secrets: 1}, {ID: "m1", Configured: true, Current: true}}
	if diff := cmp.Diff(want, r.Value.Keys); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

func TestRotatePepper(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.key(b.account(5).ID, "")
	started, err := answered(b.api.RotatePepper(t.Context(), nil))
	check(t, err)
	if started.StatusCode != http.StatusAccepted || started.Value.Target != b.hasher.ID() {
		t.Fatalf("rotate: %s", started.Body)
	}
	check(t, b.rotations.Work(t.Context()))
	state, err := answered(b.api.GetPepper(t.Context()))
	check(t, err)
	if p := state.Value; p == nil || p.Current != b.hasher.ID() || len(p.Configured) != 1 || p.Ready != 1 || p.Waiting != 0 || p.HashOnly != 0 ||
		p.Rotation == nil || p.Rotation.State != adminclient.RotationStateDone {
		t.Errorf("pepper: %s", state.Body)
	}
}

// The keys that need an old pepper are listed, until they are revoked.
func TestHashOnlyKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.account(5)
	b.key(a.ID, "") // its text is known
	var imports []adminclient.ImportedKey
	for _, name := range []string{"one", "two", "three"} {
		imports = append(imports, adminclient.ImportedKey{AccountID: a.ID, Name: name, Hash: b.hasher.Hash(apikey.Generate()).String()})
	}
	made, err := answered(b.api.ImportKeys(t.Context(), nil, adminclient.KeyImport{Keys: imports}))
	check(t, err)
	id := made.Value.Data[1].ID
	used := time.Now().UTC().Format(time.DateOnly)
	_, err = b.db.Pool().Exec(t.Context(), `insert into usage_daily select account_id, $2::date, $2::date, id, 'm', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
		from api_keys where name = $1`, "two", used)
	check(t, err)
	names := func() []string { // made in one moment, they are in any order
		return slices.Sorted(slices.Values(walk(t, func(limit *int, cursor *string) ([]string, *string) {
			r, err := answered(b.api.ListHashOnlyKeys(t.Context(), &adminclient.ListHashOnlyKeysParams{Limit: limit, Cursor: cursor}))
			check(t, err)
			return idsOf(r.Value.Data, func(k adminclient.HashOnlyKey) string {
				if k.LastUsedOn != nil {
					return k.Name + " used " + *k.LastUsedOn
				}
				return k.Name
			}), r.Value.NextCursor
		}, func() {})))
	}
	if got, want := names(), []string{"one", "three", "two used " + used}; !slices.Equal(got, want) {
		t.Errorf("got %q; want %q", got, want)
	}
	revoked, err := answered(b.api.RevokeKey(t.Context(), id, nil))
	check(t, err)
	if revoked.StatusCode != http.StatusOK && revoked.StatusCode != http.StatusAccepted {
		t.Fatalf("revoke: %s", revoked.Body)
	}
	if got, want := names(), []string{"one", "three"}; !slices.Equal(got, want) {
		t.Errorf("after one was revoked: got %q; want %q", got, want)
	}
	state, err := answered(b.api.GetPepper(t.Context()))
	check(t, err)
	if state.StatusCode != http.StatusOK || state.Value.HashOnly != 2 {
		t.Errorf("pepper: %s; want 2 hash-only", state.Body)
	}
}

// An import can name the pepper of a hash: keys under the current pepper need no old one.
func TestImportUnderAPepper(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.account(5)
	hash := func() string { return b.hasher.Hash(apikey.Generate()).String() }
	current := b.hasher.ID()
	imports := []adminclient.ImportedKey{
		{AccountID: a.ID, Name: "current", Hash: hash(), Pepper: &current},
		{AccountID: a.ID, Name: "old", Hash: hash(), Pepper: new(oldPepper)},
		{AccountID: a.ID, Name: "unknown", Hash: hash()},
	}
	take := func() *answer[adminclient.KeyList] {
		made, err := answered(b.api.ImportKeys(t.Context(), nil, adminclient.KeyImport{Keys: imports}))
		check(t, err)
		return made
	}
	listed := func() []string {
		r, err := answered(b.api.ListHashOnlyKeys(t.Context(), nil))
		check(t, err)
		return slices.Sorted(slices.Values(idsOf(r.Value.Data, func(k adminclient.HashOnlyKey) string {
			if k.Pepper == nil {
				return k.Name
			}
			return k.Name + " " + *k.Pepper
		})))
	}
	if made := take(); made.StatusCode != http.StatusCreated {
		t.Fatalf("import: %s", made.Body)
	}
	if got, want := listed(), []string{"old " + oldPepper, "unknown"}; !slices.Equal(got, want) {
		t.Errorf("got %q; want %q", got, want)
	}

	// A pepper that becomes known later is stored; a stored pepper stays.
	imports[1].Pepper, imports[2].Pepper = &current, &current
	if made := take(); made.StatusCode != http.StatusCreated {
		t.Fatalf("import again: %s", made.Body)
	}
	if got, want := listed(), []string{"old " + oldPepper}; !slices.Equal(got, want) {
		t.Errorf("after it was recorded: got %q; want %q", got, want)
	}
	audit, err := answered(b.api.ListAudit(t.Context(), &adminclient.ListAuditParams{Limit: new(1)}))
	check(t, err)
	if e := audit.Value.Data[0]; e.Action != "key.pepper" || !strings.Contains(fmt.Sprint(e.After), current) {
		t.Errorf("audit: %+v; want the pepper that was recorded", e)
	}

	imports = []adminclient.ImportedKey{{AccountID: a.ID, Name: "x", Hash: hash(), Pepper: new("f000000000000000")}}
	refused := take()
	if refused.StatusCode != http.StatusBadRequest || !strings.Contains(string(refused.Body), `"keys[0].pepper"`) || !strings.Contains(string(refused.Body), oldPepper) {
		t.Errorf("a pepper that is not configured: %d %s", refused.StatusCode, refused.Body)
	}
}
