package httpapi_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/optional"
	"modelgateway/controlplane/internal/change"
	"modelgateway/shared/apikey"
	"modelgateway/shared/lease"
)

func sorted(values []string) []string { return slices.Sorted(slices.Values(values)) }

func TestKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.account(1)
	k := b.key(a.ID, "5.00")
	if err := apikey.Check(k.Secret); err != nil || !strings.HasSuffix(k.Secret, k.Hint) {
		t.Errorf("secret %q with hint %q: %v", k.Secret, k.Hint, err)
	}
	want := adminclient.Key{
		ID: k.ID, AccountID: a.ID, Name: "a key", Status: adminclient.KeyStatusActive, Hint: k.Hint, SpendLimit: new("5.00"),
		Spent: "0.00", Reserved: "0.00", Revealable: true, CreatedAt: k.CreatedAt, UpdatedAt: k.UpdatedAt,
	}
	got, err := b.api.GetKeyWithResponse(t.Context(), k.ID)
	check(t, err)
	if diff := cmp.Diff(&want, got.JSON200); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	listed, err := b.api.ListKeysWithResponse(t.Context(), a.ID, nil)
	check(t, err)
	if diff := cmp.Diff([]adminclient.Key{want}, listed.JSON200.Data); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	revealed, err := b.api.RevealKeyWithResponse(t.Context(), k.ID, nil)
	check(t, err)
	if revealed.JSON200.Secret != k.Secret {
		t.Errorf("revealed %q; want %q", revealed.JSON200.Secret, k.Secret)
	}
	b.sound()
}

func TestKeyNotFound(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := "key_00000000000070008000000000000000"
	got, err := b.api.GetKeyWithResponse(t.Context(), id)
	check(t, err)
	problem(t, got.ApplicationProblemJSONDefault, http.StatusNotFound, "not_found")
	patched, err := b.api.UpdateKeyWithResponse(t.Context(), id, nil, adminclient.KeyPatch{Name: new("x")})
	check(t, err)
	problem(t, patched.ApplicationProblemJSONDefault, http.StatusNotFound, "not_found")
	revealed, err := b.api.RevealKeyWithResponse(t.Context(), id, nil)
	check(t, err)
	problem(t, revealed.ApplicationProblemJSONDefault, http.StatusNotFound, "not_found")
	revoked, err := b.api.RevokeKeyWithResponse(t.Context(), id, nil)
	check(t, err)
	problem(t, revoked.ApplicationProblemJSONDefault, http.StatusNotFound, "not_found")
	owner := "acc_00000000000070008000000000000000"
	made, err := b.api.CreateKeyWithResponse(t.Context(), owner, nil, adminclient.KeyCreate{Name: "x"})
	check(t, err)
	problem(t, made.ApplicationProblemJSONDefault, http.StatusNotFound, "not_found")
	listed, err := b.api.ListKeysWithResponse(t.Context(), owner, nil)
	check(t, err)
	problem(t, listed.ApplicationProblemJSONDefault, http.StatusNotFound, "not_found")
}

func TestKeyLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.key(b.account(1).ID, "")
	for _, step := range []struct {
		name      string
		patch     adminclient.KeyPatch
		limit     *string
		announced int
	}{
		{"set", adminclient.KeyPatch{SpendLimit: optional.Of("2.50")}, new("2.50"), 1},
		{"set to the same", adminclient.KeyPatch{SpendLimit: optional.Of("2.5")}, new("2.50"), 0},
		{"left alone", adminclient.KeyPatch{Name: new("renamed")}, new("2.50"), 0},
		{"lowered to nothing", adminclient.KeyPatch{SpendLimit: optional.Of("0.00")}, new("0.00"), 1},
		{"removed", adminclient.KeyPatch{SpendLimit: optional.Null[string]()}, nil, 1},
		{"removed again", adminclient.KeyPatch{SpendLimit: optional.Null[string]()}, nil, 0},
	} {
		before := len(b.announcer.told)
		r, err := b.api.UpdateKeyWithResponse(t.Context(), k.ID, nil, step.patch)
		check(t, err)
		if r.JSON200 == nil {
			t.Fatalf("%s: %v", step.name, r.ApplicationProblemJSONDefault)
		}
		if diff := cmp.Diff(step.limit, r.JSON200.SpendLimit); diff != "" {
			t.Errorf("%s: limit (-want +got):\n%s", step.name, diff)
		}
		told := b.announcer.told[before:]
		if len(told) != step.announced || (len(told) == 1 && (told[0].Kind != lease.KeyChanged || told[0].KeyHash != b.hasher.Hash(k.Secret))) {
			t.Errorf("%s: announced %+v; want %d changes of the key", step.name, told, step.announced)
		}
		b.sound()
	}
	for _, limit := range []string{"-1.00", "1.0000000001", "much", "2000000000.00"} {
		r, err := b.api.UpdateKeyWithResponse(t.Context(), k.ID, nil, adminclient.KeyPatch{SpendLimit: optional.Of(limit)})
		check(t, err)
		problem(t, r.ApplicationProblemJSONDefault, http.StatusBadRequest, "invalid_input")
	}
}

func TestRevoke(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.key(b.account(1).ID, "")
	b.announcer.answer = change.Confirmation{ConfirmedBy: 1, Bound: 20 * time.Second}
	began := time.Now()
	waiting, err := b.api.RevokeKeyWithResponse(t.Context(), k.ID, nil)
	check(t, err)
	first := waiting.JSON202
	if first == nil || first.Effective || first.ConfirmedBy != 1 || first.Bound == nil || first.Bound.Before(began.Add(20*time.Second)) {
		t.Fatalf("revoke with a proxy missing: %s", waiting.Body)
	}
	b.announcer.answer = change.Confirmation{Effective: true, ConfirmedBy: 2}
	done, err := b.api.RevokeKeyWithResponse(t.Context(), k.ID, nil)
	check(t, err)
	if done.JSON200 == nil || !done.JSON200.Effective || done.JSON200.ConfirmedBy != 2 || done.JSON200.Revision != first.Revision || done.JSON200.Bound != nil {
		t.Errorf("revoke again: %s", done.Body)
	}
	if len(b.announcer.told) != 2 || b.announcer.told[0] != b.announcer.told[1] || b.announcer.told[0].Kind != lease.KeyRevoked {
		t.Errorf("announced %+v; want the same revocation twice", b.announcer.told)
	}
	patched, err := b.api.UpdateKeyWithResponse(t.Context(), k.ID, nil, adminclient.KeyPatch{Name: new("x")})
	check(t, err)
	problem(t, patched.ApplicationProblemJSONDefault, http.StatusConflict, "key_revoked")
	got, err := b.api.GetKeyWithResponse(t.Context(), k.ID)
	check(t, err)
	if got.JSON200.Status != adminclient.KeyStatusRevoked || got.JSON200.RevokedAt == nil {
		t.Errorf("read back: %s", got.Body)
	}
}

func TestRevokeWithoutFleet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.key(b.account(1).ID, "")
	b.announcer.err = errors.New("the bus is away")
	r, err := b.api.RevokeKeyWithResponse(t.Context(), k.ID, nil)
	check(t, err)
	if r.JSON202 == nil || r.JSON202.Effective || r.JSON202.Bound == nil {
		t.Errorf("revoke without bus: %s", r.Body)
	}
}

func TestImport(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a, other := b.account(1), b.account(1)
	text := apikey.Generate()
	hash := b.hasher.Hash(text).String()
	r, err := b.api.ImportKeysWithResponse(t.Context(), nil, adminclient.KeyImport{Keys: []adminclient.ImportedKey{
		{AccountID: a.ID, Name: "oldest", Hash: hash, Hint: new(text[len(text)-4:]), SpendLimit: new("1.00")},
	}})
	check(t, err)
	if r.JSON201 == nil || len(r.JSON201.Data) != 1 || r.JSON201.Data[0].Revealable {
		t.Fatalf("import: %s", r.Body)
	}
	id := r.JSON201.Data[0].ID
	revealed, err := b.api.RevealKeyWithResponse(t.Context(), id, nil)
	check(t, err)
	problem(t, revealed.ApplicationProblemJSONDefault, http.StatusConflict, "not_revealable")

	again, err := b.api.ImportKeysWithResponse(t.Context(), nil, adminclient.KeyImport{Keys: []adminclient.ImportedKey{
		{AccountID: a.ID, Name: "oldest", Hash: hash},
	}})
	check(t, err)
	if again.JSON201 == nil || again.JSON201.Data[0].ID != id {
		t.Errorf("import again: %s; want key %s", again.Body, id)
	}
	stolen, err := b.api.ImportKeysWithResponse(t.Context(), nil, adminclient.KeyImport{Keys: []adminclient.ImportedKey{
		{AccountID: other.ID, Name: "stolen", Hash: hash},
	}})
	check(t, err)
	problem(t, stolen.ApplicationProblemJSONDefault, http.StatusConflict, "hash_taken")
	faulty, err := b.api.ImportKeysWithResponse(t.Context(), nil, adminclient.KeyImport{Keys: []adminclient.ImportedKey{
		{AccountID: "nobody", Name: "x", Hash: "zz", SpendLimit: new("?")},
	}})
	check(t, err)
	problem(t, faulty.ApplicationProblemJSONDefault, http.StatusBadRequest, "invalid_input")
	if n := len(faulty.ApplicationProblemJSONDefault.Errors); n != 3 {
		t.Errorf("got %d faults; want 3: %v", n, faulty.ApplicationProblemJSONDefault)
	}
	b.sound()
}
