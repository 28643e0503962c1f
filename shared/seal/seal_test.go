package seal

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestOpenNeedsKeyAndContextOfSeal(t *testing.T) {
	t.Parallel()
	secret := NewSecret()
	k, err := NewKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	sealed := k.Seal([]byte("sk-secret"), "credential:1")
	if bytes.Contains(sealed, []byte("secret")) {
		t.Error("the sealed secret contains the plaintext")
	}
	if got, err := k.Open(sealed, "credential:1"); err != nil || string(got) != "sk-secret" {
		t.Errorf("Open = %q, %v", got, err)
	}
	if _, err := k.Open(sealed, "credential:2"); !errors.Is(err, ErrOpen) {
		t.Errorf("another context: %v; want ErrOpen", err)
	}
	sealed[len(sealed)-1] ^= 1
	if _, err := k.Open(sealed, "credential:1"); !errors.Is(err, ErrOpen) {
		t.Errorf("a modified secret: %v; want ErrOpen", err)
	}
	if _, err := k.Open(nil, ""); !errors.Is(err, ErrOpen) {
		t.Errorf("an empty secret: %v; want ErrOpen", err)
	}
	if text := fmt.Sprintf("%v %s", k, k); strings.Contains(text, fmt.Sprint(secret[0], " ", secret[1])) {
		t.Error("the key is printed")
	}
}

func TestDeriveDependsOnMasterAndPurpose(t *testing.T) {
	t.Parallel()
	master := NewSecret()
	a, err := Derive(master, "a")
	if err != nil {
		t.Fatal(err)
	}
	again, _ := Derive(master, "a")
	b, _ := Derive(master, "b")
	if !bytes.Equal(a, again) || bytes.Equal(a, b) || len(a) != KeySize {
		t.Error("Derive is not a function of master and purpose")
	}
	if _, err := Derive(master[:31], "a"); err == nil {
		t.Error("a short master was accepted")
	}
	if _, err := NewKey(master[:31]); err == nil {
		t.Error("a short key was accepted")
	}
}
