// Package rollback detects that Postgres has lost commits, because it was
// restored from an older copy or failed over to a standby without them.
package rollback

import (
	"maps"
	"slices"
	"time"
)

// Detector is one replica's part in detecting that Postgres has lost commits. It
// is not safe for concurrent use.
//
// A replica serves in one server incarnation of Postgres. Before its first
// commit there, the membership lists it with that incarnation. It remembers each
// commit whose result it has reported to anyone. It serves in another
// incarnation only after three checks: it has found the markers of all these
// commits there, it has found the last marker of the membership, and every other
// member has done the same for its own commits. If a marker is missing, or a
// member stays silent, a loss is declared. So nothing is granted or confirmed on
// a Postgres server without such a commit, whichever replica connects to it
// first.
//
// A member is removed from the membership only together with a checkpoint, which
// is a commit after the member's last one: its marker becomes the last marker of
// the membership and stands for all that the member remembered. A checkpoint
// also fences the silent members in Postgres before they are removed.
type Detector struct {
	id           string
	silenceLimit time.Duration

	// incarnation and epoch are those in which the replica serves; incarnation is empty while it does not.
	incarnation string
	epoch       int64
	// departures counts the incarnations that the replica has left. The results of transactions from before must not be
	// used any more.
	departures int64
	// commits has the running transactions (false) and those whose result was used (true), unless a checkpoint was
	// committed after them.
	commits map[int64]bool
	last    int64
	// candidate is the incarnation in which the replica will serve after the checks, since is when it first connected to it.
	candidate string
	since     time.Duration
	sightings map[string]sighting
}

// sighting is when another member was first seen in its current state.
type sighting struct {
	Member
	since time.Duration
}

// NewDetector returns the Detector of a replica that does not serve yet. The id
// is random and new with each process. silenceLimit is how long the replica
// waits for other members.
func NewDetector(id string, silenceLimit time.Duration) *Detector {
	return &Detector{id: id, silenceLimit: silenceLimit, commits: map[int64]bool{}, sightings: map[string]sighting{}}
}

// ID returns the replica's name in the membership.
func (d *Detector) ID() string { return d.id }

// Incarnation returns the server incarnation in which the replica serves, or ""
// if it does not.
func (d *Detector) Incarnation() string { return d.incarnation }

// Transaction is a running transaction.
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

// BeginCheckpoint begins a transaction whose marker stands for all commits whose
// results were used before. oldest is the first number that is still needed:
// markers below it may be deleted.
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
// It may not if the replica has left the incarnation meanwhile, because
// MarkersToVerify did not include its marker.
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

// StopServing records that the replica stops serving, until StartServing.
func (d *Detector) StopServing() {
	if d.incarnation != "" {
		d.incarnation = ""
		d.departures++
	}
}

// MarkersToVerify returns the markers that must be present in another
// incarnation before the replica serves there.
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

// Action is the consequence of an observation.
type Action int

// The actions.
const (
	// Wait: other members have not confirmed their commits. The membership must be written.
	Wait Action = iota
	// Serve: nothing is lost. The membership must be written, then the replica added in Postgres; then the replica may
	// serve.
	Serve
	// DeclareLoss: commits are lost, or may be: a loss must be declared.
	DeclareLoss
)

// Observe decides whether the replica may serve in an incarnation. The
// membership must have been read before the observation.
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

// StartServing records that the replica serves in an incarnation for which
// Observe returned Serve. Commits from before a declared loss need not be
// verified any more.
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
// continues to serve. The membership must have been read before the checkpoint. The
// returned membership, without the replicas that the checkpoint fenced, must be
// written. A replica that stops gracefully is among the fenced ones itself. If
// AfterCheckpoint returns false, the replica has stopped serving.
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
