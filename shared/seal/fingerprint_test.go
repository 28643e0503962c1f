package seal_test

import (
	"testing"

	"modelgateway/shared/seal"
)

// Fingerprints of different releases are compared with each other.
func TestFingerprintNeverChanges(t *testing.T) {
	t.Parallel()
	if got, want := seal.Fingerprint([]byte("a pepper for the tests")), "8889ed2e"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	if seal.Fingerprint([]byte("one")) == seal.Fingerprint([]byte("two")) {
		t.Error("two secrets have the same fingerprint")
	}
}
