package wire

import (
	"math"
	"testing"
	"time"
)

func TestWindowOfAHeartbeatIsBounded(t *testing.T) {
	t.Parallel()
	for ms, want := range map[int64]time.Duration{
		20_000: 20 * time.Second, 1: time.Millisecond, MaxWindow.Milliseconds(): MaxWindow, MaxWindow.Milliseconds() + 1: MaxWindow,
		0: MaxWindow, -1: MaxWindow, math.MaxInt64: MaxWindow, math.MinInt64: MaxWindow, math.MaxInt64/1_000_000 + 2: MaxWindow,
	} {
		if got := (&Beat{WindowMS: ms}).Window(); got != want {
			t.Errorf("%d ms: got %v; want %v", ms, got, want)
		}
	}
}
