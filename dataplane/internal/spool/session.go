package spool

import (
	"slices"

	"modelgateway/shared/event"
	"modelgateway/shared/wire"
)

// OpenSession implements session.Usage. Requests can start in the session when
// it has returned nil.
func (s *Spool) OpenSession(id wire.SessionID, bootID string) error {
	record, err := encodeRecord(kindSession, sessionRecord{Session: id, BootID: bootID})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usage.Session(id) != nil {
		return nil
	}
	if _, err := s.write(record); err != nil {
		return err
	}
	s.usage.Open(id, bootID)
	return nil
}

// StartedRequests implements session.Usage. It counts the session's events and
// running requests.
func (s *Spool) StartedRequests(id wire.SessionID) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.usage.Session(id)
	if sess == nil {
		return 0
	}
	return sess.Last + int64(sess.Running)
}

// FinishedSessions implements session.Usage: it lists the sessions other than
// the open ones. No request can start in them from then on, so the event counts of
// those in which none runs are final.
func (s *Spool) FinishedSessions(open ...wire.SessionID) []wire.CloseRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usage.FinishedSessions(open...)
}

// Sessions lists the known sessions.
func (s *Spool) Sessions() []wire.SessionID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usage.Sessions()
}

// maxEarlierSessions bounds the sessions that a RegisterRequest names.
const maxEarlierSessions = 64

func (s *Spool) EarlierSessions() []wire.EarlierSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	var earlier []wire.EarlierSession
	for _, id := range slices.Backward(s.usage.Sessions()) {
		if len(earlier) < maxEarlierSessions {
			earlier = append(earlier, wire.EarlierSession{Session: id, BootID: s.usage.Session(id).BootID})
		}
	}
	return earlier
}

// MarkClosed implements session.Usage: it records that the control plane has
// closed a finished session.
func (s *Spool) MarkClosed(id wire.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usage.MarkClosed(id) {
		s.appendClosed(id)
	}
	s.trim()
}

// appendClosed records that a session was dropped. It is best effort: without
// the record, the session is closed once more after a restart.
func (s *Spool) appendClosed(id wire.SessionID) {
	if record, err := encodeRecord(kindClosed, sessionRecord{Session: id}); err == nil {
		_, _ = s.write(record) // sets writeErr
	}
}

// Acknowledge marks the events as settled that the control plane reports as
// settled, and trims the spool.
func (s *Spool) Acknowledge(m event.Settled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := wire.SessionID(m.Session)
	sess := s.usage.Session(id)
	moved, dropped := s.usage.MarkSettled(m, s.releaseEntry)
	if moved {
		s.appendSettled(id, sess.Watermark())
	}
	if dropped {
		s.appendClosed(id)
	}
	s.trim()
}

// appendSettled records a watermark. It is best effort: without the record, the
// events below it are published once more after a restart.
func (s *Spool) appendSettled(id wire.SessionID, watermark int64) {
	if record, err := encodeRecord(kindSettled, event.Settled{V: event.Version, Session: int64(id), Watermark: watermark}); err == nil {
		_, _ = s.write(record) // sets writeErr
	}
}
