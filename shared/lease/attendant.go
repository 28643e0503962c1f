package lease

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
type Attendant struct {
	id      string
	silence time.Duration

	// life and epoch are where it serves; life is empty while it does not.
	life  string
	epoch int64
	// left counts the lives that it has left: what was begun before is not answered any more.
	left int64
	// commits are those under way, false, and those that were answered, true, unless a beat was committed after them.
	commits map[int64]bool
	last    int64
	// met is the life that it wants to serve in, since is when it met it first.
	met    string
	since  time.Duration
	sights map[string]sight
}

// sight is when another control plane was first seen as it is.
type sight struct {
	Presence
	since time.Duration
}

// NewAttendant returns one that serves nowhere yet. The id is random and new
// with each process. Silence is how long the others are waited for.
func NewAttendant(id string, silence time.Duration) *Attendant {
	return &Attendant{id: id, silence: silence, commits: map[int64]bool{}, sights: map[string]sight{}}
}

// ID is its name in the roll.
func (a *Attendant) ID() string { return a.id }

// Life is the life of Postgres in which it serves, empty if none.
func (a *Attendant) Life() string { return a.life }

// Commit is a transaction under way.
type Commit struct {
	Witness
	left int64
	// covers are the commits that need not be remembered once this one is there.
	covers []int64
}

// Begin numbers a transaction; its witness has to be written in it. It is false
// if no transaction may be begun now.
func (a *Attendant) Begin() (Commit, bool) {
	if a.life == "" {
		return Commit{}, false
	}
	a.last++
	a.commits[a.last] = false
	return Commit{Witness: Witness{a.id, a.last}, left: a.left}, true
}

// Beat begins a transaction that is a witness of all that were answered before.
// Oldest is the first number that is needed still: witnesses below may go.
func (a *Attendant) Beat() (c Commit, oldest int64, ok bool) {
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
func (a *Attendant) Committed(c Commit) bool {
	if c.left != a.left {
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
func (a *Attendant) Failed(c Commit) { delete(a.commits, c.N) }

// Leave ends serving, until a life is entered.
func (a *Attendant) Leave() {
	if a.life != "" {
		a.life = ""
		a.left++
	}
}

// Asks lists the witnesses to look for before a life is entered.
func (a *Attendant) Asks(r Roll) []Witness {
	var asks []Witness
	for n, answered := range a.commits {
		if answered {
			asks = append(asks, Witness{a.id, n})
		}
	}
	if r.Witness.N > 0 {
		asks = append(asks, r.Witness)
	}
	return asks
}

// Advice says what follows from a look.
type Advice int

// Advices.
const (
	// Await: the others have to be waited for. The roll is to be put.
	Await Advice = iota
	// Enter: Postgres is sound. The roll is to be put, then the replica made known to Postgres, then it may serve.
	Enter
	// Declare: commits are lost, or may be: a loss is to be declared.
	Declare
)

// Look decides on a life of Postgres that is not served in, by the roll as it
// was read before and what was found of the witnesses asked for.
func (a *Attendant) Look(r Roll, f Finding, now time.Duration) (Roll, Advice) {
	if a.met != f.Life {
		a.met, a.since = f.Life, now
	}
	mine := func(w Witness) bool { return w.Replica == a.id }
	if r.Lost(f) || f.Mark.Epoch < a.epoch || (f.Mark.Epoch == a.epoch && slices.ContainsFunc(f.Missing, mine)) {
		return r, Declare
	}
	next := r.with(f, a.id)
	switch {
	case len(next.Elsewhere(f.Life, a.id)) == 0:
		return next, Enter
	case now-a.since >= a.silence:
		return r, Declare
	}
	return next, Await
}

// Entered begins serving in the life that was found sound. What was committed
// before a declared loss is not looked for any more.
func (a *Attendant) Entered(f Finding) {
	if f.Mark.Epoch > a.epoch {
		maps.DeleteFunc(a.commits, func(_ int64, answered bool) bool { return answered })
	}
	a.life, a.epoch, a.met = f.Life, f.Mark.Epoch, ""
}

// Silent lists those in the roll that have stood still for long. They are to be
// fenced in Postgres by the next beat.
func (a *Attendant) Silent(r Roll, now time.Duration) []string {
	var silent []string
	for id, p := range r.Present {
		if s := a.sights[id]; s.Presence != p {
			a.sights[id] = sight{p, now}
		} else if id != a.id && p.Life == a.life && now-s.since >= a.silence {
			silent = append(silent, id)
		}
	}
	for id := range a.sights {
		if _, present := r.Present[id]; !present {
			delete(a.sights, id)
		}
	}
	slices.Sort(silent)
	return silent
}

// Stay decides, after a beat, on the life that is served in, by the roll as it
// was read before the beat. Without those who were fenced by the beat the roll
// is to be put; this may be the control plane itself, when it ends in order. If
// it is false, the life was left and is to be entered again.
func (a *Attendant) Stay(r Roll, f Finding, beat Commit, fenced []string) (Roll, bool) {
	_, present := r.Present[a.id]
	if !present || f.Life != a.life || f.Mark.Epoch != a.epoch || r.Mark.Lost(f.Mark) || len(r.Elsewhere(a.life, a.id)) > 0 {
		a.Leave()
		return r, false
	}
	next := r.with(f, a.id)
	next.Witness = beat.Witness
	for _, id := range fenced {
		delete(next.Present, id)
	}
	return next, true
}
