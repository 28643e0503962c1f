package leasing

import (
	"testing"
	"time"
)

// The times are those of the protocol: the window, its margin, and the question to the stream.
func TestRevocationBoundIsThatOfTheProtocol(t *testing.T) {
	t.Parallel()
	for window, want := range map[time.Duration]time.Duration{0: 23 * time.Second, 10 * time.Second: 12500 * time.Millisecond, time.Minute: 65 * time.Second} {
		if got := (Config{Window: window}).RevocationBound(); got != want {
			t.Errorf("window %v: got %v; want %v", window, got, want)
		}
	}
}
