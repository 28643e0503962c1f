package rollback

import (
	"time"

	"modelgateway/shared/lease/session"
)

// HighWaterMark has the greatest numbers that Postgres has given out. The control
// planes keep it outside of Postgres, so that no number is given out twice after
// a loss of commits.
type HighWaterMark struct {
	// Epoch is the cluster epoch: it counts the declared losses.
	Epoch int64 `json:"epoch"`
	// Revision is the newest revision, Session and Pool are the greatest ids.
	Revision int64 `json:"revision"`
	Session  int64 `json:"session"`
	Pool     int64 `json:"pool"`
}

// Lost reports whether Postgres, in its state now, lacks numbers below the mark.
// In a later epoch nothing is missing: the loss was declared.
func (m HighWaterMark) Lost(now HighWaterMark) bool {
	if now.Epoch != m.Epoch {
		return now.Epoch < m.Epoch
	}
	return now.Revision < m.Revision || now.Session < m.Session || now.Pool < m.Pool
}

// Merge returns the later of two marks.
func (m HighWaterMark) Merge(now HighWaterMark) HighWaterMark {
	switch {
	case now.Epoch > m.Epoch:
		return now
	case now.Epoch < m.Epoch:
		return m
	}
	now.Revision, now.Session, now.Pool = max(m.Revision, now.Revision), max(m.Session, now.Session), max(m.Pool, now.Pool)
	return now
}

// unseen is more than the numbers that can have been given out since the last
// mark was written.
const unseen = 1 << 20

// Next returns the mark after a declared loss: the next epoch, and revisions and
// ids above all that were given out.
func (m HighWaterMark) Next(now HighWaterMark) HighWaterMark {
	return HighWaterMark{
		Epoch: max(m.Epoch, now.Epoch) + 1, Revision: max(m.Revision, now.Revision) + unseen,
		Session: max(m.Session, now.Session) + unseen, Pool: max(m.Pool, now.Pool) + unseen,
	}
}

// UnknownSessions stands for the sessions from before a loss of commits that
// Postgres may not know of. Every change waits for it as long as one of them may
// take itself for valid.
func UnknownSessions(sinceLoss, valid, margin time.Duration) []session.PendingSession {
	if !InRecoveryWait(sinceLoss, valid, margin) {
		return nil
	}
	return []session.PendingSession{{Session: 0, Remaining: valid - sinceLoss}}
}

// InRecoveryWait reports whether the recovery wait after a declared loss is not
// over: nothing is granted until every session from before the loss, known or
// not, must have expired and had the time to report its totals.
func InRecoveryWait(sinceLoss, valid, margin time.Duration) bool { return sinceLoss < valid+margin }
