// Package rollback finds out whether Postgres has lost commits: it was restored
// from an older copy, or failed over to a standby that lacked some.
package rollback

import (
	"maps"
	"slices"
	"time"
)

// Detector is one replica's part in finding out whether Postgres has lost
// commits. It is not safe for concurrent use.
//
// A replica serves in one server incarnation of Postgres, and is a member with
// it before its first commit there. It remembers the commits whose results it
// has given to anyone. In another incarnation it serves only after it has found
// the markers of all of them, and the common marker of the membership, and every
// other member has confirmed the same of its own. If a marker is missing, or a
// member stays silent, a loss is declared. So nothing is granted or confirmed on
// a Postgres that lacks such a commit, whichever replica connects to it first
// and however little it lacks.
//
// A member leaves only after a commit that comes after its last one: the marker
// of that commit replaces what it remembered. Silent members are fenced in
// Postgres first, by the same commit.
type Detector struct {
	id           string
	silenceLimit time.Duration

	// incarnation and epoch are those in which it serves; incarnation is empty while it does not.
	incarnation string
	epoch       int64
	// departures counts the incarnations that it has left: transactions from before must not be answered any more.
	departures int64
	// commits has the transactions under way (false) and those that were answered (true), unless a checkpoint was
	// committed after them.
	commits map[int64]bool
	last    int64
	// candidate is the incarnation in which it wants to serve, since is when it first connected to it.
	candidate string
	since     time.Duration
	sightings map[string]sighting
}

// sighting is when another member was first seen in its current state.
type sighting struct {
	Member
	since time.Duration
}

// NewDetector returns a Detector that does not serve yet. The id is random and
// new with each process. silenceLimit is how long it waits for other members.
func NewDetector(id string, silenceLimit time.Duration) *Detector {
	return &Detector{id: id, silenceLimit: silenceLimit, commits: map[int64]bool{}, sightings: map[string]sighting{}}
}

// ID returns the replica's name in the membership.
func (d *Detector) ID() string { return d.id }

// Incarnation returns the server incarnation in which the replica serves, or ""
// if it does not.
func (d *Detector) Incarnation() string { return d.incarnation }

// Transaction is a transaction under way.
type Transaction struct {
	CommitMarker
	departures int64
	// covers has the commits that need not be remembered once this one is committed.
	covers []int64
}

// Begin numbers a transaction; its commit marker must be written in it. It
// returns false if no transaction may begin now.
func (d *Detector) Begin() (Transaction, bool) {
	if d.incarnation == "" {
		return Transaction{}, false
	}
	d.last++
	d.commits[d.last] = false
	return Transaction{CommitMarker: CommitMarker{d.id, d.last}, departures: d.departures}, true
}

// BeginCheckpoint begins a transaction whose marker covers all commits that were
// answered before. oldest is the first number that is still needed: markers
// below it may be deleted.
func (d *Detector) BeginCheckpoint() (t Transaction, oldest int64, ok bool) {
	if t, ok = d.Begin(); !ok {
		return t, 0, false
	}
	oldest = t.N
	for n, answered := range d.commits {
		oldest = min(oldest, n)
		if answered {
			t.covers = append(t.covers, n)
		}
	}
	return t, oldest, true
}

// Committed reports whether the result of a committed transaction may be used.
// It may not if its incarnation was left meanwhile: its marker was not looked
// for.
func (d *Detector) Committed(t Transaction) bool {
	if t.departures != d.departures {
		delete(d.commits, t.N)
		return false
	}
	d.commits[t.N] = true
	for _, n := range t.covers {
		delete(d.commits, n)
	}
	return true
}

// Failed records that a transaction was not committed, or that its outcome is
// unknown; its result is not used.
func (d *Detector) Failed(t Transaction) { delete(d.commits, t.N) }

// StopServing ends serving, until StartServing.
func (d *Detector) StopServing() {
	if d.incarnation != "" {
		d.incarnation = ""
		d.departures++
	}
}

// MarkersToVerify returns the markers to look for before the replica serves in
// another incarnation.
func (d *Detector) MarkersToVerify(m Membership) []CommitMarker {
	var markers []CommitMarker
	for n, answered := range d.commits {
		if answered {
			markers = append(markers, CommitMarker{d.id, n})
		}
	}
	if m.LastMarker.N > 0 {
		markers = append(markers, m.LastMarker)
	}
	return markers
}

// Action is what follows from an observation.
type Action int

// Actions.
const (
	// Wait: other members have not confirmed their commits. The membership must be written.
	Wait Action = iota
	// Serve: nothing is lost. The membership must be written, then the replica added in Postgres; then it may serve.
	Serve
	// DeclareLoss: commits are lost, or may be: a loss must be declared.
	DeclareLoss
)

// Observe decides about an incarnation in which the replica does not serve, by
// the membership that was read before the observation.
func (d *Detector) Observe(m Membership, o Observation, now time.Duration) (Membership, Action) {
	if d.candidate != o.Incarnation {
		d.candidate, d.since = o.Incarnation, now
	}
	own := func(c CommitMarker) bool { return c.Replica == d.id }
	if m.Lost(o) || o.Mark.Epoch < d.epoch || (o.Mark.Epoch == d.epoch && slices.ContainsFunc(o.MissingMarkers, own)) {
		return m, DeclareLoss
	}
	next := m.with(o, d.id)
	switch {
	case len(next.UnverifiedReplicas(o.Incarnation, d.id)) == 0:
		return next, Serve
	case now-d.since >= d.silenceLimit:
		return m, DeclareLoss
	}
	return next, Wait
}

// StartServing starts serving in an incarnation that lacks nothing. Commits from
// before a declared loss are not looked for any more.
func (d *Detector) StartServing(o Observation) {
	if o.Mark.Epoch > d.epoch {
		maps.DeleteFunc(d.commits, func(_ int64, answered bool) bool { return answered })
	}
	d.incarnation, d.epoch, d.candidate = o.Incarnation, o.Mark.Epoch, ""
}

// SilentReplicas returns the members whose heartbeat has not changed for the
// silence limit. The next checkpoint must fence them in Postgres.
func (d *Detector) SilentReplicas(m Membership, now time.Duration) []string {
	var silent []string
	for id, member := range m.Members {
		if s := d.sightings[id]; s.Member != member {
			d.sightings[id] = sighting{member, now}
		} else if id != d.id && member.Incarnation == d.incarnation && now-s.since >= d.silenceLimit {
			silent = append(silent, id)
		}
	}
	for id := range d.sightings {
		if _, present := m.Members[id]; !present {
			delete(d.sightings, id)
		}
	}
	slices.Sort(silent)
	return silent
}

// AfterCheckpoint decides, after a committed checkpoint, whether the replica
// goes on serving, by the membership that was read before it. The returned
// membership, without the replicas that the checkpoint fenced, must be written;
// the replica fences itself when it stops in order. If it returns false, the
// replica has stopped serving.
func (d *Detector) AfterCheckpoint(m Membership, o Observation, checkpoint Transaction, fenced []string) (Membership, bool) {
	_, present := m.Members[d.id]
	if !present || o.Incarnation != d.incarnation || o.Mark.Epoch != d.epoch || m.Mark.Lost(o.Mark) || len(m.UnverifiedReplicas(d.incarnation, d.id)) > 0 {
		d.StopServing()
		return m, false
	}
	next := m.with(o, d.id)
	next.LastMarker = checkpoint.CommitMarker
	for _, id := range fenced {
		delete(next.Members, id)
	}
	return next, true
}
