package rollback

import (
	"modelgateway/shared/lease/session"
	"time"
)

// Mark is how far Postgres has come: the greatest numbers that it has given.
// The control planes keep it outside of Postgres, so that after a loss of
// commits nothing is given twice.
type HighWaterMark struct {
	// Epoch counts the losses that were declared.
	Epoch int64 `json:"epoch"`
	// Rev is the last revision, Session and Pool are the greatest ids given.
	Revision int64 `json:"rev"`
	Session  int64 `json:"session"`
	Pool     int64 `json:"pool"`
}

// Lost tells whether Postgres, as it stands now, lacks numbers that the mark
// has seen. One of a later epoch is sound: its loss was declared.
func (m HighWaterMark) Lost(now HighWaterMark) bool {
	if now.Epoch != m.Epoch {
		return now.Epoch < m.Epoch
	}
	return now.Revision < m.Revision || now.Session < m.Session || now.Pool < m.Pool
}

// Merge is the later of two marks.
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

// unseen is more than what can have been given out since the last mark.
const unseen = 1 << 20

// Next is where Postgres has to stand after a loss: in the next epoch, with
// revisions and ids that nobody has seen yet.
func (m HighWaterMark) Next(now HighWaterMark) HighWaterMark {
	return HighWaterMark{
		Epoch: max(m.Epoch, now.Epoch) + 1, Revision: max(m.Revision, now.Revision) + unseen,
		Session: max(m.Session, now.Session) + unseen, Pool: max(m.Pool, now.Pool) + unseen,
	}
}

// Unknown stands for the sessions from before a loss of commits, which Postgres
// may not know of. It is pending for every change as long as one of them may
// take itself for valid.
func UnknownSessions(sinceLoss, valid, margin time.Duration) []session.PendingSession {
	if !InRecoveryWait(sinceLoss, valid, margin) {
		return nil
	}
	return []session.PendingSession{{Session: 0, Remaining: valid - sinceLoss}}
}

// Recovering tells whether nothing may be granted yet, since it was declared
// that Postgres lost commits: until every session from before it, known or not,
// must take itself for over, and has had the time to tell what it holds.
func InRecoveryWait(sinceLoss, valid, margin time.Duration) bool { return sinceLoss < valid+margin }
