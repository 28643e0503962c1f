package signin

import (
	"maps"
	"sync"
	"time"

	"modelgateway/controlplane/internal/admin"
)

const (
	// RememberedFor bounds how long a session is remembered after its last check.
	RememberedFor = 15 * time.Minute
	// maxRemembered bounds the number of remembered sessions.
	maxRemembered = 1000
)

// memory has the sessions that were checked lately, by the hashes of their secrets. It is safe for concurrent use.
type memory struct {
	mu       sync.Mutex
	sessions map[Hash]remembered
}

type remembered struct {
	session Session
	// at is when the session was checked.
	at time.Time
}

// keep remembers a session that was checked now.
func (m *memory) keep(secret Hash, session *Session, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sessions == nil {
		m.sessions = map[Hash]remembered{}
	}
	if _, known := m.sessions[secret]; !known && len(m.sessions) >= maxRemembered {
		maps.DeleteFunc(m.sessions, func(_ Hash, r remembered) bool { return now.Sub(r.at) >= RememberedFor })
		if len(m.sessions) >= maxRemembered {
			return
		}
	}
	m.sessions[secret] = remembered{*session, now}
}

func (m *memory) find(secret Hash) (remembered, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, known := m.sessions[secret]
	return r, known
}

func (m *memory) forget(which func(Hash, *Session) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.sessions, func(secret Hash, r remembered) bool { return which(secret, &r.session) })
}

// Remembered returns the session with a secret as Resume has last returned it, while the store cannot be asked. It is for
// live data only: the session may observe or read, as far as it could, and nothing else. The error is ErrNoSession unless
// the session was checked in the last RememberedFor and has not ended by its times since.
//
// A session that somebody else has ended is not known as ended here. It ends with what is remembered, at the latest
// RememberedFor after the last check, and its streams with it.
func (s *Service) Remembered(secret string) (*Session, error) {
	r, known := s.memory.find(hashOf(secret))
	until := r.at.Add(min(RememberedFor, s.cfg.Idle))
	session := r.session
	for _, end := range []*time.Time{&session.ExpiresAt, session.Principal.ExpiresAt} {
		if end != nil && end.Before(until) {
			until = *end
		}
	}

	if !known || !s.cfg.Now().Before(until) {
		return nil, ErrNoSession
	}

	var scopes []admin.Scope
	for _, scope := range []admin.Scope{admin.Observe, admin.Read} {
		if admin.Allows(session.Principal.Scopes, scope) {
			scopes = append(scopes, scope)
		}
	}

	session.Remembered, session.Principal.Scopes, session.Principal.ExpiresAt = true, scopes, &until
	return &session, nil
}

// Forget makes Remembered forget the session with a secret.
func (s *Service) Forget(secret string) {
	hash := hashOf(secret)
	s.memory.forget(func(other Hash, _ *Session) bool { return other == hash })
}
