package recovery

import "time"

// ErrWaiting is returned by Check while other replicas are waited for.
var ErrWaiting = errWaiting

// Hasten makes a Monitor before its first check wait for no other replica.
func (m *Monitor) Hasten() { m.guard = newGuard(m.guard.detector.ID(), -time.Second) }
