package operationsapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/apikey"
)

func TestRotateMasterKey(t *testing.T) {
	t.Parallel()
	b := start(t)
	issued := b.Key(b.Account(5).ID, "")
	state := func() *adminclient.MasterKeyState {
		t.Helper()
		r, err := servertest.Answered(b.API.GetMasterKey(t.Context()))
		servertest.Check(t, err)
		if r.StatusCode != http.StatusOK {
			t.Fatalf("master key: %s", r.Body)
		}
		return r.Value
	}
	want := []adminclient.MasterKey{{ID: "m1", Configured: true, Current: true, Secrets: 1}}
	if before := state(); cmp.Diff(want, before.Keys) != "" || before.Rotation != nil {
		t.Errorf("before: %+v", before)
	}
	started, err := servertest.Answered(b.API.RotateMasterKey(t.Context(), nil))
	servertest.Check(t, err)
	again, err := servertest.Answered(b.API.RotateMasterKey(t.Context(), nil))
	servertest.Check(t, err)
	if started.StatusCode != http.StatusAccepted || started.Value.State != adminclient.RotationStateRunning || started.Value.ID != again.Value.ID {
		t.Fatalf("rotate: %s, then %s", started.Body, again.Body)
	}
	servertest.Check(t, b.Rotations.Work(t.Context()))
	after := state()
	want = []adminclient.MasterKey{{ID: "m1", Configured: true, Current: true, DataKeys: 1}}
	if diff := cmp.Diff(want, after.Keys); diff != "" || after.Rotation == nil || after.Rotation.State != adminclient.RotationStateDone || after.Rotation.Changed != 1 {
		t.Errorf("after: %+v (-want +got):\n%s", after.Rotation, diff)
	}
	shown, err := servertest.Answered(b.API.RevealKey(t.Context(), issued.ID))
	servertest.Check(t, err)
	if shown.StatusCode != http.StatusOK || shown.Value.Secret != issued.Secret {
		t.Errorf("show: %s", shown.Body)
	}
}

// A master key in use is shown, whether configured or not, and is not removable.
func TestMasterKeyInUseIsNotRemovable(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Key(b.Account(5).ID, "")
	b.Exec("update api_keys set cipher_key_id = 'm0'")
	r, err := servertest.Answered(b.API.GetMasterKey(t.Context()))
	servertest.Check(t, err)
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
	b := start(t)
	b.Key(b.Account(5).ID, "")
	started, err := servertest.Answered(b.API.RotatePepper(t.Context(), nil))
	servertest.Check(t, err)
	if started.StatusCode != http.StatusAccepted || started.Value.Target != b.Hasher.ID() {
		t.Fatalf("rotate: %s", started.Body)
	}
	servertest.Check(t, b.Rotations.Work(t.Context()))
	state, err := servertest.Answered(b.API.GetPepper(t.Context()))
	servertest.Check(t, err)
	if p := state.Value; p == nil || p.Current != b.Hasher.ID() || len(p.Configured) != 1 || p.Ready != 1 || p.Waiting != 0 || p.HashOnly != 0 ||
		p.Rotation == nil || p.Rotation.State != adminclient.RotationStateDone {
		t.Errorf("pepper: %s", state.Body)
	}
}

// The keys that need an old pepper are listed, until they are revoked.
func TestHashOnlyKeys(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(5)
	b.Key(a.ID, "") // its text is known
	var imports []adminclient.ImportedKey
	for _, name := range []string{"one", "two", "three"} {
		imports = append(imports, adminclient.ImportedKey{AccountID: a.ID, Name: name, Hash: b.Hasher.Hash(apikey.Generate()).String()})
	}
	made, err := servertest.Answered(b.API.ImportKeys(t.Context(), nil, adminclient.KeyImport{Keys: imports}))
	servertest.Check(t, err)
	id := made.Value.Data[1].ID
	used := time.Now().UTC().Format(time.DateOnly)
	_, err = b.DB.Pool().Exec(t.Context(), `insert into usage_daily select account_id, $2::date, $2::date, id, '00000000-0000-0000-0000-000000000000', 'm', '', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
		from api_keys where name = $1`, "two", used)
	servertest.Check(t, err)
	names := func() []string { // made in one moment, they are in any order
		return slices.Sorted(slices.Values(servertest.Walk(t, func(limit *int, cursor *string) ([]string, *string) {
			r, err := servertest.Answered(b.API.ListHashOnlyKeys(t.Context(), &adminclient.ListHashOnlyKeysParams{Limit: limit, Cursor: cursor}))
			servertest.Check(t, err)
			return servertest.IDsOf(r.Value.Data, func(k adminclient.HashOnlyKey) string {
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
	revoked, err := servertest.Answered(b.API.RevokeKey(t.Context(), id, nil))
	servertest.Check(t, err)
	if revoked.StatusCode != http.StatusOK && revoked.StatusCode != http.StatusAccepted {
		t.Fatalf("revoke: %s", revoked.Body)
	}
	if got, want := names(), []string{"one", "three"}; !slices.Equal(got, want) {
		t.Errorf("after one was revoked: got %q; want %q", got, want)
	}
	state, err := servertest.Answered(b.API.GetPepper(t.Context()))
	servertest.Check(t, err)
	if state.StatusCode != http.StatusOK || state.Value.HashOnly != 2 {
		t.Errorf("pepper: %s; want 2 hash-only", state.Body)
	}
}

// An import can name the pepper of a hash: keys under the current pepper need no old one.
func TestImportUnderAPepper(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(5)
	hash := func() string { return b.Hasher.Hash(apikey.Generate()).String() }
	current := b.Hasher.ID()
	imports := []adminclient.ImportedKey{
		{AccountID: a.ID, Name: "current", Hash: hash(), Pepper: &current},
		{AccountID: a.ID, Name: "old", Hash: hash(), Pepper: new(servertest.OldPepper)},
		{AccountID: a.ID, Name: "unknown", Hash: hash()},
	}
	take := func() *servertest.Answer[adminclient.KeyList] {
		made, err := servertest.Answered(b.API.ImportKeys(t.Context(), nil, adminclient.KeyImport{Keys: imports}))
		servertest.Check(t, err)
		return made
	}
	listed := func() []string {
		r, err := servertest.Answered(b.API.ListHashOnlyKeys(t.Context(), nil))
		servertest.Check(t, err)
		return slices.Sorted(slices.Values(servertest.IDsOf(r.Value.Data, func(k adminclient.HashOnlyKey) string {
			if k.Pepper == nil {
				return k.Name
			}
			return k.Name + " " + *k.Pepper
		})))
	}
	if made := take(); made.StatusCode != http.StatusCreated {
		t.Fatalf("import: %s", made.Body)
	}
	if got, want := listed(), []string{"old " + servertest.OldPepper, "unknown"}; !slices.Equal(got, want) {
		t.Errorf("got %q; want %q", got, want)
	}

	// A pepper that becomes known later is stored; a stored pepper stays.
	imports[1].Pepper, imports[2].Pepper = &current, &current
	if made := take(); made.StatusCode != http.StatusCreated {
		t.Fatalf("import again: %s", made.Body)
	}
	if got, want := listed(), []string{"old " + servertest.OldPepper}; !slices.Equal(got, want) {
		t.Errorf("after it was recorded: got %q; want %q", got, want)
	}
	audit, err := servertest.Answered(b.API.ListAudit(t.Context(), &adminclient.ListAuditParams{Limit: new(1)}))
	servertest.Check(t, err)
	if e := audit.Value.Data[0]; e.Action != "key.pepper" || !strings.Contains(fmt.Sprint(e.After), current) {
		t.Errorf("audit: %+v; want the pepper that was recorded", e)
	}

	imports = []adminclient.ImportedKey{{AccountID: a.ID, Name: "x", Hash: hash(), Pepper: new("f000000000000000")}}
	refused := take()
	if refused.StatusCode != http.StatusBadRequest || !strings.Contains(string(refused.Body), `"keys[0].pepper"`) || !strings.Contains(string(refused.Body), servertest.OldPepper) {
		t.Errorf("a pepper that is not configured: %d %s", refused.StatusCode, refused.Body)
	}
}
