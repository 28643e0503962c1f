// Package addedmember remembers which of the members that the gateway adds to requests the providers of routes refuse, so that
// later calls are sent without them.
package addedmember

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/provider/classify"
	"modelgateway/shared/catalogkv"
)

const (
	// forgottenAfter is for how long a refusal is remembered: a provider may have learned the member.
	forgottenAfter = 24 * time.Hour
	// maxNotes bounds the refusals that are remembered.
	maxNotes = 4096
)

// Place is where calls go. If the catalog changes any of it, or an operator resets the route, nothing is known of it.
type Place struct {
	Route, UpstreamModel, BaseURL, Path string
	Format                              catalogkv.Format
	Resets                              int64
}

// PlaceOf returns the place of the calls of a route in a format.
func PlaceOf(r *catalog.Route, f catalogkv.Format, stream bool) Place {
	return Place{
		Route:         r.ID,
		UpstreamModel: r.UpstreamModel,
		BaseURL:       r.Provider.BaseURL,
		Path:          r.Target(f, stream).Path,
		Format:        f,
		Resets:        r.Resets,
	}
}

// Refused reports whether a provider refuses what the gateway has added to a request: one of the added members, or a parameter that
// the policy forces. leaveOut are the members that the call can be repeated without.
//
// A provider that does not know store is called without it. One that knows it and refuses to store nothing is not: whether it may
// store is for the operator to say.
func Refused(f *provider.Failure, added format.Added, policy *format.Policy) (refused bool, leaveOut format.Added) {
	for _, name := range f.Members {
		member := format.AddedOf(name) & added
		refused = refused || member != 0 || format.AddedOf(name) == 0 && policy.Row(name).Action == format.Force
		if member != format.AddedStore || f.Class == classify.UnsupportedParameter.String() {
			leaveOut |= member
		}
	}
	if added&format.AddedInclude != 0 && refusesInclude(f) {
		refused, leaveOut = true, leaveOut|format.AddedInclude
	}
	return refused, leaveOut
}

// refusesInclude reports whether a provider refuses encrypted reasoning in the words of an error.
func refusesInclude(f *provider.Failure) bool {
	if f.Client.Status != http.StatusBadRequest && f.Client.Status != http.StatusUnprocessableEntity {
		return false
	}
	text := strings.ToLower(f.Client.Message)
	return strings.Contains(text, "reasoning.encrypted_content") || strings.Contains(text, "encrypted content is not supported")
}

type noteKey struct {
	Place
	member format.Added
	// account is empty but for store: whether a provider keeps what one account sends must not depend on the calls of others.
	account string
}

func keyOf(place Place, member format.Added, account string) noteKey {
	if member != format.AddedStore {
		account = ""
	}
	return noteKey{place, member, account}
}

// note is a refusal. It holds for the account whose call was refused and, when the call of another was, too, for all: an account
// alone must not change the requests of others. For store it holds for that account only.
type note struct {
	account string
	shared  bool
	until   time.Time
}

// Memory has the refusals of one process. It is safe for concurrent use; the zero value is empty.
type Memory struct {
	any atomic.Bool

	mu    sync.Mutex
	notes map[noteKey]note
}

// Of returns the members that calls of an account to a place leave out. While nothing is remembered, it costs nothing.
func (m *Memory) Of(place Place, account string, now time.Time) (without format.Added) {
	if !m.any.Load() {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for member := range format.AllAdded.Each {
		if n, known := m.notes[keyOf(place, member, account)]; known && now.Before(n.until) && (n.shared || n.account == account) {
			without |= member
		}
	}
	return without
}

// Note remembers that a call of an account to a place was refused because of members. It returns those of which that was not
// known.
func (m *Memory) Note(place Place, account string, members format.Added, now time.Time) (news format.Added) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.notes == nil {
		m.notes = map[noteKey]note{}
	}
	for member := range members.Each {
		key := keyOf(place, member, account)
		n, known := m.notes[key]
		switch {
		case !known || !now.Before(n.until):
			news |= member
			m.makeRoom(now)
			n = note{account: account}
		case n.account != account:
			n.shared = true
		}
		n.until = now.Add(forgottenAfter)
		m.notes[key] = n
	}
	m.any.Store(true)
	return news
}

// makeRoom forgets what has ended if there is no room for another note, and otherwise what ends first. The caller holds the lock.
func (m *Memory) makeRoom(now time.Time) {
	if len(m.notes) < maxNotes {
		return
	}
	var first noteKey
	var ends time.Time
	for key, n := range m.notes {
		if !now.Before(n.until) {
			delete(m.notes, key)
		} else if ends.IsZero() || n.until.Before(ends) {
			first, ends = key, n.until
		}
	}
	if len(m.notes) >= maxNotes {
		delete(m.notes, first)
	}
}
