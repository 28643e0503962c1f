package recovery

import "time"

// ErrWaiting is returned by Check while the replica waits for others.
var ErrWaiting = errWaiting

// WaitForNoReplica sets the silence limit of a Monitor below zero. It must be
// called before the first check.
func (m *Monitor) WaitForNoReplica() { m.guard = newGuard(m.guard.detector.ID(), -time.Second) }
