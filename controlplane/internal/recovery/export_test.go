package recovery

import (
	"time"

	"modelgateway/shared/lease/rollback"
)

// ErrWaiting is returned by Check while the replica waits for others.
var ErrWaiting = errWaiting

// WaitForNoReplica sets the silence limit of a Monitor below zero. It must be
// called before the first check.
func (m *Monitor) WaitForNoReplica() {
	m.guard = newGuard(m.guard.detector.ID(), rollback.Config{SilenceLimit: -time.Second, RestartLimit: -time.Second, Keeps: m.cfg.Keeps})
}

// SetEpochConfirmed sets Config.EpochConfirmed.
func (m *Monitor) SetEpochConfirmed(confirmed func(int64) bool) { m.cfg.EpochConfirmed = confirmed }
