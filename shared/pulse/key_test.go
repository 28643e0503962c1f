package pulse_test

import (
	"testing"
	"time"

	"modelgateway/shared/pulse"
	"modelgateway/shared/wire"
)

func TestKeyIsUsableUntilItEnds(t *testing.T) {
	t.Parallel()
	const now = 1_800_000_000_000
	tests := []struct {
		name string
		key  wire.KeyRecord
		want string
	}{
		{"active", wire.KeyRecord{Active: true}, ""},
		{"revoked", wire.KeyRecord{}, pulse.ReasonKeyInactive},
		{"paused", wire.KeyRecord{Active: true, Rules: wire.KeyRules{Paused: true}}, pulse.ReasonKeyPaused},
		{"before its expiry", wire.KeyRecord{Active: true, Rules: wire.KeyRules{ExpiresMS: now + 1}}, ""},
		{"at its expiry", wire.KeyRecord{Active: true, Rules: wire.KeyRules{ExpiresMS: now}}, pulse.ReasonKeyExpired},
		{"in the overlap", wire.KeyRecord{Active: true, SecretUntilMS: now + 1}, ""},
		{"at the end of the overlap", wire.KeyRecord{Active: true, SecretUntilMS: now}, pulse.ReasonKeyRotated},
		{"replaced", wire.KeyRecord{Active: true, SecretUntilMS: 1}, pulse.ReasonKeyRotated},
	}
	for _, tt := range tests {
		if got := pulse.KeyReason(&tt.key, func() time.Time { return time.UnixMilli(now) }); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
