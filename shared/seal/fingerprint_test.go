package seal_test

import (
	"testing"

	"modelgateway/shared/seal"
)

// Both planes must make the same of a secret, whatever their age.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	if got, want := seal.Fingerprint([]byte("a pepper for the tests")), "8889ed2e"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	if seal.Fingerprint([]byte("one")) == seal.Fingerprint([]byte("two")) {
		t.Error("two secrets look alike")
	}
}
