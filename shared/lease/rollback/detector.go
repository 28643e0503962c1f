package rollback

import (
	"maps"
	"slices"
	"time"
)

// Attendant is the part of one control plane in finding out whether Postgres
// has lost commits. It is not safe for concurrent use.
//
// A control plane serves in one life of Postgres, and is in the roll with it
// before its first commit there. It remembers the commits that it has answered.
// In another life it serves only after it has found them all, and the witness
// of the roll, and everyone in the roll has said the same of theirs. Where
// something is missing, or somebody remains silent, a loss is declared. So
// nothing is granted or confirmed on a Postgres that lacks an answered commit,
// whoever meets it first and however little it lacks.
//
// Nobody leaves the roll with what he alone knows: the witness that is put in
// his place is committed after his last commit. Those who fall silent are
// fenced in Postgres first, by the same commit.
type Detector struct {
	id      string
	silence time.Duration

	// life and epoch are where it serves; life is empty while it does not.
	incarnation string
	epoch       int64
	// left counts the lives that it has left: what was begun before is not answered any more.
	departures int64
	// commits are those under way, false, and those that were answered, true, unless a beat was committed after them.
	commits map[int64]bool
	last    int64
	// met is the life that it wants to serve in, since is when it met it first.
	candidate string
	since     time.Duration
	sightings map[string]sighting
}

// sight is when another control plane was first seen as it is.
type sighting struct {
	Member
	since time.Duration
}

// NewAttendant returns one that serves nowhere yet. The id is random and new
// with each process. Silence is how long the others are waited for.
func NewDetector(id string, silence time.Duration) *Detector {
	return &Detector{id: id, silence: silence, commits: map[int64]bool{}, sightings: map[string]sighting{}}
}

// ID is its name in the roll.
func (a *Detector) ID() string { return a.id }

// Life is the life of Postgres in which it serves, empty if none.
func (a *Detector) Incarnation() string { return a.incarnation }

// Commit is a transaction under way.
type Transaction struct {
	CommitMarker
	departures int64
	// covers are the commits that need not be remembered once this one is there.
	covers []int64
}

// Begin numbers a transaction; its witness has to be written in it. It is false
// if no transaction may be begun now.
func (a *Detector) Begin() (Transaction, bool) {
	if a.incarnation == "" {
		return Transaction{}, false
	}
	a.last++
	a.commits[a.last] = false
	return Transaction{CommitMarker: CommitMarker{a.id, a.last}, departures: a.departures}, true
}

// Beat begins a transaction that is a witness of all that were answered before.
// Oldest is the first number that is needed still: witnesses below may go.
func (a *Detector) BeginCheckpoint() (c Transaction, oldest int64, ok bool) {
	if c, ok = a.Begin(); !ok {
		return c, 0, false
	}
	oldest = c.N
	for n, answered := range a.commits {
		oldest = min(oldest, n)
		if answered {
			c.covers = append(c.covers, n)
		}
	}
	return c, oldest, true
}

// Committed tells whether a transaction that was committed may be answered. It
// may not if its life of Postgres was left meanwhile: it was not looked for.
func (a *Detector) Committed(c Transaction) bool {
	if c.departures != a.departures {
		delete(a.commits, c.N)
		return false
	}
	a.commits[c.N] = true
	for _, n := range c.covers {
		delete(a.commits, n)
	}
	return true
}

// Failed notes that a transaction was not committed, or that nobody knows; it
// is not answered.
func (a *Detector) Failed(c Transaction) { delete(a.commits, c.N) }

// Leave ends serving, until a life is entered.
func (a *Detector) StopServing() {
	if a.incarnation != "" {
		a.incarnation = ""
		a.departures++
	}
}

// Asks lists the witnesses to look for before a life is entered.
func (a *Detector) MarkersToVerify(r Membership) []CommitMarker {
	var asks []CommitMarker
	for n, answered := range a.commits {
		if answered {
			asks = append(asks, CommitMarker{a.id, n})
		}
	}
	if r.LastMarker.N > 0 {
		asks = append(asks, r.LastMarker)
	}
	return asks
}

// Advice says what follows from a look.
type Action int

// Advices.
const (
	// Await: the others have to be waited for. The roll is to be put.
	Wait Action = iota
	// Enter: Postgres is sound. The roll is to be put, then the replica made known to Postgres, then it may serve.
	Serve
	// Declare: commits are lost, or may be: a loss is to be declared.
	DeclareLoss
)

// Look decides on a life of Postgres that is not served in, by the roll as it
// was read before and what was found of the witnesses asked for.
func (a *Detector) Observe(r Membership, f Observation, now time.Duration) (Membership, Action) {
	if a.candidate != f.Incarnation {
		a.candidate, a.since = f.Incarnation, now
	}
	mine := func(w CommitMarker) bool { return w.Replica == a.id }
	if r.Lost(f) || f.Mark.Epoch < a.epoch || (f.Mark.Epoch == a.epoch && slices.ContainsFunc(f.MissingMarkers, mine)) {
		return r, DeclareLoss
	}
	next := r.with(f, a.id)
	switch {
	case len(next.UnverifiedReplicas(f.Incarnation, a.id)) == 0:
		return next, Serve
	case now-a.since >= a.silence:
		return r, DeclareLoss
	}
	return next, Wait
}

// Entered begins serving in the life that was found sound. What was committed
// before a declared loss is not looked for any more.
func (a *Detector) StartServing(f Observation) {
	if f.Mark.Epoch > a.epoch {
		maps.DeleteFunc(a.commits, func(_ int64, answered bool) bool { return answered })
	}
	a.incarnation, a.epoch, a.candidate = f.Incarnation, f.Mark.Epoch, ""
}

// Silent lists those in the roll that have stood still for long. They are to be
// fenced in Postgres by the next beat.
func (a *Detector) SilentReplicas(r Membership, now time.Duration) []string {
	var silent []string
	for id, p := range r.Members {
		if s := a.sightings[id]; s.Member != p {
			a.sightings[id] = sighting{p, now}
		} else if id != a.id && p.Incarnation == a.incarnation && now-s.since >= a.silence {
			silent = append(silent, id)
		}
	}
	for id := range a.sightings {
		if _, present := r.Members[id]; !present {
			delete(a.sightings, id)
		}
	}
	slices.Sort(silent)
	return silent
}

// Stay decides, after a beat, on the life that is served in, by the roll as it
// was read before the beat. Without those who were fenced by the beat the roll
// is to be put; this may be the control plane itself, when it ends in order. If
// it is false, the life was left and is to be entered again.
func (a *Detector) AfterCheckpoint(r Membership, f Observation, beat Transaction, fenced []string) (Membership, bool) {
	_, present := r.Members[a.id]
	if !present || f.Incarnation != a.incarnation || f.Mark.Epoch != a.epoch || r.Mark.Lost(f.Mark) || len(r.UnverifiedReplicas(a.incarnation, a.id)) > 0 {
		a.StopServing()
		return r, false
	}
	next := r.with(f, a.id)
	next.LastMarker = beat.CommitMarker
	for _, id := range fenced {
		delete(next.Members, id)
	}
	return next, true
}
