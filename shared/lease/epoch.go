package lease

import "time"

// Mark is how far Postgres has come. The control planes keep the greatest one
// outside of it, and compare: a Postgres that stands behind it was restored
// from an older copy, or failed over to a standby that lacked commits.
type Mark struct {
	// Epoch counts the losses that were declared.
	Epoch int64 `json:"epoch"`
	// Timeline names the life of the server: another one may lack commits that no count shows. It is empty if it cannot be told.
	Timeline string `json:"timeline,omitempty"`
	// Beat counts marks taken, Rev is the last revision, Session and Pool are the greatest ids given.
	Beat    int64 `json:"beat"`
	Rev     int64 `json:"rev"`
	Session int64 `json:"session"`
	Pool    int64 `json:"pool"`
	// WAL is the position in Postgres's log: it shows a loss that is shorter than the time between two marks.
	WAL int64 `json:"wal,omitempty"`
}

// Lost tells whether Postgres, as it stands now, lacks commits that the mark
// has seen. One of a later epoch is sound: its loss was declared.
func (m Mark) Lost(now Mark) bool {
	switch {
	case now.Epoch != m.Epoch:
		return now.Epoch < m.Epoch
	case m.Timeline != "" && now.Timeline != "" && m.Timeline != now.Timeline:
		return true
	}
	return now.Beat < m.Beat || now.Rev < m.Rev || now.Session < m.Session || now.Pool < m.Pool || now.WAL < m.WAL
}

// Merge is the later of two marks.
func (m Mark) Merge(now Mark) Mark {
	switch {
	case now.Epoch > m.Epoch:
		return now
	case now.Epoch < m.Epoch:
		return m
	}
	if now.Timeline == "" {
		now.Timeline = m.Timeline
	}
	now.Beat, now.Rev = max(m.Beat, now.Beat), max(m.Rev, now.Rev)
	now.Session, now.Pool = max(m.Session, now.Session), max(m.Pool, now.Pool)
	now.WAL = max(m.WAL, now.WAL)
	return now
}

// unseen is more than what can have been given out since the last mark.
const unseen = 1 << 20

// Next is where Postgres has to stand after a loss: in the next epoch, with
// revisions and ids that nobody has seen yet.
func (m Mark) Next(now Mark) Mark {
	next := Mark{Epoch: max(m.Epoch, now.Epoch) + 1, Timeline: now.Timeline, Beat: max(m.Beat, now.Beat) + 1, WAL: now.WAL}
	next.Rev = max(m.Rev, now.Rev) + unseen
	next.Session, next.Pool = max(m.Session, now.Session)+unseen, max(m.Pool, now.Pool)+unseen
	return next
}

// Unknown stands for the sessions from before a loss of commits, which Postgres
// may not know of. It is pending for every change as long as one of them may
// take itself for valid.
func Unknown(sinceLoss, valid, margin time.Duration) []Pending {
	if !Recovering(sinceLoss, valid, margin) {
		return nil
	}
	return []Pending{{Session: 0, Left: valid - sinceLoss}}
}

// Recovering tells whether nothing may be granted yet, since it was declared
// that Postgres lost commits: until every session from before it, known or not,
// must take itself for over, and has had the time to tell what it holds.
func Recovering(sinceLoss, valid, margin time.Duration) bool { return sinceLoss < valid+margin }
