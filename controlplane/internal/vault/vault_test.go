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
	oldKey, newKey := seal.Make(), seal.Make()
	before, err := vault.New("m1", map[string][]byte{"m1": oldKey})
	if err != nil {
		t.Fatal(err)
	}
	sealed := before.Seal([]byte("secret"), "apikey:1")
	if sealed.KeyID != "m1" || sealed.IsZero() {
		t.Errorf("sealed under %q", sealed.KeyID)
	}

	// After the key is exchanged, the old one still opens and the new one seals.
	after, err := vault.New("m2", map[string][]byte{"m1": oldKey, "m2": newKey})
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

func TestVaultWithoutKey(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string]map[string][]byte{
		"none":    {},
		"another": {"m2": seal.Make()},
		"short":   {"m1": []byte("short")},
	} {
		if _, err := vault.New("m1", keys); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}
