package accountapi_test

import (
	"net/http"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/shared/apikey"
	"modelgateway/shared/wire"
)

const day = 86400

// rotate rotates a key and returns the answer.
func (b *server) rotate(id string, seconds int64, params *adminclient.RotateKeyParams) *servertest.Answer[adminclient.IssuedKey] {
	b.T.Helper()
	got, err := servertest.Answered(b.API.RotateKey(b.T.Context(), id, params, adminclient.KeyRotation{OverlapSeconds: seconds}))
	servertest.Check(b.T, err)
	return got
}

// rotated is rotate of a key that can be rotated.
func (b *server) rotated(id string, seconds int64) *adminclient.IssuedKey {
	b.T.Helper()
	got := b.rotate(id, seconds, nil)
	if got.Value == nil {
		b.T.Fatalf("rotate: %+v", got.Problem)
	}
	return got.Value
}

// loaded returns the record that a proxy loads for a secret.
func (b *server) loaded(secret string) *wire.KeyRecord {
	b.T.Helper()
	hash := b.Hasher.Hash(secret)
	found, err := leasestore.NewLeases(b.DB).LoadKeys(b.T.Context(), []apikey.Hash{hash})
	servertest.Check(b.T, err)
	return found[hash].Record
}

// told returns the hashes of the changes of a kind behind a revision, in their order.
func (b *server) told(kind wire.KeyChangeKind, after int64) (hashes []apikey.Hash, last int64) {
	b.T.Helper()
	changes, err := b.DB.Queries().ChangesAfter(b.T.Context(), sqlcgen.ChangesAfterParams{Revision: after, MaxRows: 100})
	servertest.Check(b.T, err)
	for _, c := range changes {
		last = c.Revision
		if c.Kind == string(kind) {
			hashes = append(hashes, apikey.Hash(c.LookupHash))
		}
	}
	return hashes, last
}

func TestRotation(t *testing.T) {
	t.Parallel()
	b := start(t)
	k := b.Key(b.Account(1).ID, "5.00")
	_, from := b.told(wire.KeyUpdated, 0)
	second := b.rotated(k.ID, day)
	if second.ID != k.ID || *second.SpendLimit != "5.00" || second.Secret == k.Secret || !b.Hasher.HasMAC(second.Secret) || second.RotatedAt == nil {
		t.Errorf("rotated %+v", second)
	}
	if p := second.PreviousSecret; p == nil || p.Hint != k.Hint || time.Until(p.ValidUntil).Round(time.Minute) != 24*time.Hour {
		t.Fatalf("previous secret %+v; want that with the hint %s for a day", p, k.Hint)
	}
	old, current := b.loaded(k.Secret), b.loaded(second.Secret)
	if old.KeyID != k.ID || old.SecretUntilMS != second.PreviousSecret.ValidUntil.UnixMilli() || current.SecretUntilMS != 0 || current.LimitPool != old.LimitPool {
		t.Errorf("records %+v and %+v", old, current)
	}
	hashes, from := b.told(wire.KeyUpdated, from)
	b.same("rotation", hashes, k.Secret, second.Secret)

	// Of two rotations in an overlap, the first secret ends at once.
	third := b.rotated(k.ID, 30*day)
	if got := b.loaded(k.Secret).SecretUntilMS; got != 1 {
		t.Errorf("the first secret ends at %d; want it ended", got)
	}
	if got := b.loaded(second.Secret).SecretUntilMS; got != third.PreviousSecret.ValidUntil.UnixMilli() {
		t.Errorf("the second secret ends at %d; want %v", got, third.PreviousSecret.ValidUntil)
	}
	hashes, from = b.told(wire.KeyUpdated, from)
	b.same("second rotation", hashes, k.Secret, second.Secret, third.Secret)

	fourth := b.rotated(k.ID, 0)
	if fourth.PreviousSecret != nil || b.loaded(third.Secret).SecretUntilMS != 1 || b.loaded(second.Secret).SecretUntilMS != 1 {
		t.Errorf("without an overlap: %+v", fourth.PreviousSecret)
	}
	hashes, from = b.told(wire.KeyUpdated, from)
	b.same("rotation without an overlap", hashes, second.Secret, third.Secret, fourth.Secret)

	revealed, err := servertest.Answered(b.API.RevealKey(t.Context(), k.ID))
	servertest.Check(t, err)
	if revealed.Value.Secret != fourth.Secret {
		t.Errorf("revealed %q; want the secret of the last rotation", revealed.Value.Secret)
	}

	// A revocation holds for every secret that the key had: also one whose end is lost with a commit.
	revoked, err := servertest.Answered(b.API.RevokeKey(t.Context(), k.ID, nil))
	servertest.Check(t, err)
	if revoked.Value == nil {
		t.Fatalf("revoke: %+v", revoked.Problem)
	}
	hashes, _ = b.told(wire.KeyRevoked, from)
	b.same("revocation", hashes, k.Secret, second.Secret, third.Secret, fourth.Secret)
	for _, secret := range []string{k.Secret, fourth.Secret} {
		if b.loaded(secret).Active {
			t.Error("a secret of a revoked key is active")
		}
	}
	servertest.Problem(t, b.rotate(k.ID, 0, nil).Problem, http.StatusConflict, "key_revoked")
	b.CheckLedger()
}

// same compares the hashes of changes with those of secrets: the last is that of the current one, the others have any order.
func (b *server) same(what string, hashes []apikey.Hash, secrets ...string) {
	b.T.Helper()
	left := map[apikey.Hash]bool{}
	for _, s := range secrets {
		left[b.Hasher.Hash(s)] = true
	}
	for _, h := range hashes {
		delete(left, h)
	}
	if len(left) != 0 || len(hashes) != len(secrets) || hashes[len(hashes)-1] != b.Hasher.Hash(secrets[len(secrets)-1]) {
		b.T.Errorf("%s: %d changes for %d secrets, %d without one", what, len(hashes), len(secrets), len(left))
	}
}

func TestRotationIsRefused(t *testing.T) {
	t.Parallel()
	b := start(t)
	k := b.Key(b.Account(1).ID, "")
	for _, seconds := range []int64{-1, 30*day + 1, 1 << 62} {
		servertest.Problem(t, b.rotate(k.ID, seconds, nil).Problem, http.StatusBadRequest, "invalid_input")
	}
	servertest.Problem(t, b.rotate(k.ID, 0, &adminclient.RotateKeyParams{IfMatch: new(`"1"`)}).Problem, http.StatusPreconditionFailed, "precondition_failed")
	servertest.Problem(t, b.rotate("key_00000000000070008000000000000000", 0, nil).Problem, http.StatusNotFound, "not_found")
	if got := b.loaded(k.Secret); got.SecretUntilMS != 0 {
		t.Errorf("refused rotations have ended the secret: %+v", got)
	}
}

// A repeated request shows the same secret, also if the process ended before it stored the response.
func TestRepeatedRotationShowsTheSameSecret(t *testing.T) {
	t.Parallel()
	b := start(t)
	k := b.Key(b.Account(1).ID, "")
	params := &adminclient.RotateKeyParams{IdempotencyKey: new("r")}
	first := b.rotate(k.ID, day, params)
	replayed := b.rotate(k.ID, day, params)
	b.Exec("update idempotency_keys set status = null, content_type = null, body = null, cipher_key_id = null")
	again := b.rotate(k.ID, day, params)
	for what, got := range map[string]*servertest.Answer[adminclient.IssuedKey]{"replayed": replayed, "executed again": again} {
		if got.Value == nil || got.Value.Secret != first.Value.Secret {
			t.Errorf("%s: %+v; want the same secret", what, got.Problem)
		}
	}
	if b.loaded(k.Secret).SecretUntilMS != first.Value.PreviousSecret.ValidUntil.UnixMilli() {
		t.Error("the previous secret was replaced twice")
	}
}

// An imported key gets a secret with a MAC. Until the overlap of the imported one ends, proxies look up keys without a MAC.
func TestRotationOfAnImportedKey(t *testing.T) {
	t.Parallel()
	b := start(t)
	owner := b.Account(1)
	text := apikey.Generate()
	imported := adminclient.KeyImport{Keys: []adminclient.ImportedKey{{AccountID: owner.ID, Name: "imported", Hash: b.Hasher.Hash(text).String()}}}
	importKey := func() adminclient.Key {
		t.Helper()
		made, err := servertest.Answered(b.API.ImportKeys(t.Context(), nil, imported))
		servertest.Check(t, err)
		if made.Value == nil {
			t.Fatalf("import: %+v", made.Problem)
		}
		return made.Value.Data[0]
	}
	k := importKey()
	allHaveMAC := func() bool {
		t.Helper()
		q := wire.RegisterRequest{Name: "proxy", BootID: "boot", Peppers: []string{b.Hasher.ID()}}
		registered, err := leasestore.NewLeases(b.DB).Register(t.Context(), &q, storetest.Window)
		servertest.Check(t, err)
		return registered.AllHaveMAC
	}
	second := b.rotated(k.ID, day)
	if !second.Revealable || allHaveMAC() {
		t.Error("a proxy would refuse the imported secret in its overlap")
	}
	if again := importKey(); again.ID != k.ID || b.loaded(text).SecretUntilMS == 0 {
		t.Errorf("the import of a replaced secret made %+v", again)
	}
	if b.rotated(k.ID, 0); !allHaveMAC() {
		t.Error("no imported secret is valid any more, and proxies look up keys without a MAC")
	}
}
