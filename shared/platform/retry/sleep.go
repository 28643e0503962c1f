// Package retry has what a loop needs that repeats its attempts: the pause between them, and a filter for the log.
package retry

import (
	"context"
	"time"
)

// Sleep waits until d has passed or ctx has ended. It reports whether d has
// passed, so that a loop can be written as `for retry.Sleep(ctx, pause) {…}`.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
