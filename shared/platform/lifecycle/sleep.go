// Package sleep pauses until a time has passed or a context has ended.
package sleep

import (
	"context"
	"time"
)

// For waits until d has passed or ctx has ended. It reports whether d has
// passed, so that a loop can be written as `for sleep.For(ctx, pause) {…}`.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
