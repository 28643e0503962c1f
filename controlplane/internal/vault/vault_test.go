package vault_test

import (
	"errors"
	"fmt"
	"testing"

	"modelgateway/controlplane/internal/vault"
	"modelgateway/shared/seal"
)

func TestVault(t *testing.T) {
	t.Parallel()
	oldKey, newKey := seal.NewSecret(), seal.NewSecret()
	before, err := vault.New("m1", map[string][]byte{"m1": oldKey}, nil)
	if err != nil {
		t.Fatal(err)
	}
	sealed := before.Seal([]byte("secret"), "apikey:1")
	if sealed.KeyID != "m1" || sealed.IsZero() {
		t.Errorf("sealed under %q", sealed.KeyID)
	}

	// After the master key was replaced, the old one still decrypts and the new one encrypts.
	after, err := vault.New("m2", map[string][]byte{"m1": oldKey, "m2": newKey}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := after.Open(sealed, "apikey:1"); err != nil || string(text) != "secret" {
		t.Errorf("opened %q, %v", text, err)
	}
	again := after.Seal([]byte("secret"), "apikey:1")
	if again.KeyID != "m2" {
		t.Errorf("sealed under %q; want m2", again.KeyID)
	}
	if _, err := before.Open(again, "apikey:1"); !errors.Is(err, vault.ErrUnknownKey) {
		t.Errorf("got %v; want %v", err, vault.ErrUnknownKey)
	}
	if _, err := after.Open(sealed, "apikey:2"); !errors.Is(err, seal.ErrOpen) {
		t.Errorf("for another context: got %v; want %v", err, seal.ErrOpen)
	}
	if text := fmt.Sprint(after); text != "vault.Vault" {
		t.Errorf("prints as %q", text)
	}
}

func TestVaultReportsAnUnknownKey(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string]map[string][]byte{
		"none":    {},
		"another": {"m2": seal.NewSecret()},
		"short":   {"m1": []byte("short")},
	} {
		if _, err := vault.New("m1", keys, nil); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

// A data key survives the replacement of its master key, and nothing that it encrypts changes.
func TestDataKeySurvivesMasterKeyReplacement(t *testing.T) {
	t.Parallel()
	oldKey, newKey := seal.NewSecret(), seal.NewSecret()
	first, err := vault.New("m1", map[string][]byte{"m1": oldKey}, nil)
	if err != nil {
		t.Fatal(err)
	}
	direct := first.Seal([]byte("direct"), "x")
	stored := map[string]vault.DataKey{}
	made := first.MakeDataKey()
	if err := first.Load(made); err != nil {
		t.Fatal(err)
	}
	stored[made.ID] = made
	sealed := first.Seal([]byte("secret"), "x")
	if direct.KeyID != "m1" || sealed.KeyID != made.ID {
		t.Errorf("sealed under %q, then %q; want the master key, then the data key", direct.KeyID, sealed.KeyID)
	}

	// Another replica looks up a data key that it does not know, while the master key is replaced.
	second, err := vault.New("m2", map[string][]byte{"m1": oldKey, "m2": newKey}, func(id string) (vault.DataKey, error) { return stored[id], nil })
	if err != nil {
		t.Fatal(err)
	}
	for want, s := range map[string]vault.Sealed{"direct": direct, "secret": sealed} {
		if text, err := second.Open(s, "x"); err != nil || string(text) != want {
			t.Errorf("opened %q, %v; want %q", text, err, want)
		}
	}
	again, err := second.Rewrap(stored[made.ID])
	if err != nil || again.ID != made.ID || again.Sealed.KeyID != "m2" {
		t.Fatalf("sealed anew as %s under %q, %v", again.ID, again.Sealed.KeyID, err)
	}
	third, err := vault.New("m2", map[string][]byte{"m2": newKey}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := third.Load(stored[made.ID]); !errors.Is(err, vault.ErrUnknownKey) {
		t.Errorf("loaded a data key without its master key: %v", err)
	}
	if err := third.Load(again); err != nil {
		t.Fatal(err)
	}
	if text, err := third.Open(sealed, "x"); err != nil || string(text) != "secret" {
		t.Errorf("without the old master key: opened %q, %v", text, err)
	}
	if _, err := third.Open(direct, "x"); !errors.Is(err, vault.ErrUnknownKey) {
		t.Errorf("got %v; want %v", err, vault.ErrUnknownKey)
	}
	if _, err := second.Open(vault.Sealed{Text: sealed.Text, KeyID: "dk_none"}, "x"); !errors.Is(err, vault.ErrUnknownKey) {
		t.Errorf("got %v; want %v", err, vault.ErrUnknownKey)
	}
	moved := again
	moved.ID = "dk_ffff"
	if err := third.Load(moved); !errors.Is(err, seal.ErrOpen) {
		t.Errorf("a data key under another id: got %v; want %v", err, seal.ErrOpen)
	}
}
