package holder

import (
	"sync/atomic"
	"time"
)

// ResponseTime is the smoothed time that the control plane takes to respond.
// Messages are not repeated before a multiple of it has passed: otherwise a slow
// control plane would receive everything several times and become slower. It is
// safe for concurrent use; the zero value has no measurements.
type ResponseTime struct {
	smoothed atomic.Int64
	// failingSince is the time of the first attempt to get a decision that failed since the last one succeeded, plus one;
	// zero if none failed.
	failingSince atomic.Int64
}

// Failed records that an attempt to get a decision has failed, and returns since
// when no attempt of the proxy has succeeded.
func (t *ResponseTime) Failed(now time.Duration) time.Duration {
	t.failingSince.CompareAndSwap(0, int64(now)+1)
	return time.Duration(t.failingSince.Load() - 1)
}

// FailingFor returns for how long every attempt of the proxy has failed, zero if the
// last one succeeded.
func (t *ResponseTime) FailingFor(now time.Duration) time.Duration {
	if since := t.failingSince.Load(); since != 0 {
		return now - time.Duration(since-1)
	}
	return 0
}

// Succeeded records that an attempt to get a decision has succeeded.
func (t *ResponseTime) Succeeded() { t.failingSince.Store(0) }

// Observe adds a measurement. Of two concurrent measurements, one may be lost.
func (t *ResponseTime) Observe(took time.Duration) {
	const weight = 8
	old := t.smoothed.Load()
	t.smoothed.Store(old + (int64(took)-old)/weight)
}

// RetryAfter returns how long to wait for a response before the first
// repetition.
func (t *ResponseTime) RetryAfter(least, most time.Duration) time.Duration {
	const spread = 3 // few responses take three times as long as the average
	return min(max(spread*time.Duration(t.smoothed.Load()), least), most)
}
