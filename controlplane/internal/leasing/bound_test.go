package leasing

import (
	"testing"
	"time"
)

// The times are those of the protocol's table of revocations: ttl + margin + 1 s.
func TestRevocationBoundIsThatOfTheProtocol(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]time.Duration{0: 33 * time.Second, 10 * time.Second: 12 * time.Second, time.Minute: 64*time.Second + 500*time.Millisecond} {
		if got := (Config{SessionTTL: ttl}).RevocationBound(); got != want {
			t.Errorf("ttl %v: got %v; want %v", ttl, got, want)
		}
	}
}
