package rollback

import "modelgateway/shared/lease/session"

// HighWaterMark has the greatest numbers that Postgres has given out. The
// control planes store it outside of Postgres, so that no number is given out
// twice after a loss of commits.
type HighWaterMark struct {
	// Epoch is the cluster epoch: it counts the declared losses.
	Epoch int64 `json:"epoch"`
	// Revision is the newest revision, Session and Pool are the greatest ids.
	Revision int64 `json:"revision"`
	Session  int64 `json:"session"`
	Pool     int64 `json:"pool"`
}

// Lost reports whether Postgres, whose state is now, has lost numbers up to the
// mark. In a later epoch nothing counts as lost, because the loss was declared.
func (m HighWaterMark) Lost(now HighWaterMark) bool {
	if now.Epoch != m.Epoch {
		return now.Epoch < m.Epoch
	}
	return now.Revision < m.Revision || now.Session < m.Session || now.Pool < m.Pool
}

// Merge returns the mark of the later epoch, or the greater numbers of both
// marks if they are of the same epoch.
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

// markGap is greater than the number of revisions or ids that can have been given
// out since the last mark was written.
const markGap = 1 << 20

// Next returns the mark after a declared loss: the next epoch, and revisions and
// ids above all that were given out.
func (m HighWaterMark) Next(now HighWaterMark) HighWaterMark {
	return HighWaterMark{
		Epoch:    max(m.Epoch, now.Epoch) + 1,
		Revision: max(m.Revision, now.Revision) + markGap,
		Session:  max(m.Session, now.Session) + markGap,
		Pool:     max(m.Pool, now.Pool) + markGap,
	}
}

// UnknownSessions returns an entry, with session 0, for the sessions from before
// a declared loss of commits that Postgres may not know of. A barrier waits for
// it during the recovery wait.
func UnknownSessions(recovering bool) []session.ActiveSession {
	if !recovering {
		return nil
	}
	return []session.ActiveSession{{Session: 0}}
}
