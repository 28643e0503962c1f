// Package rollback detects that Postgres has lost commits, because it was
// restored from an older copy or failed over to a standby without them.
//
// A failover to a standby that lacks the last commit of replica A, as the Detectors of A and B see it:
//
//	Begin, Committed   A commits with marker A-17, and reports the result to a proxy
//	Observe            A connects to the standby: another incarnation. A-17 is not there: the action is to declare a loss
//	Observe            B connects first: its own markers are there, but A has not verified its own, so B waits for A, and
//	                   after its time limit declares the loss as well, or releases A if the server keeps its commits
//	StartServing       in the new cluster epoch, in which nothing is granted until the recovery wait is over
//
// So nothing is granted or confirmed on a server that lacks a commit whose result anybody knows. Package recovery of
// the control plane runs a Detector with Postgres and NATS.
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
//
// The commits of a silent member may be lost, but are not always. By Config.Keeps
// the operator says which servers keep every acknowledged commit; if this
// incarnation is one of them, the silent member is released instead: nobody waits
// for it any more, and the first checkpoint in the incarnation, which is a commit
// after all of its commits, removes it. The markers of the replica itself and of
// the membership are verified in any case.
type Detector struct {
	id  string
	cfg Config

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
	// entered is the incarnation in which the replica last served, enteredAt is since when.
	entered   string
	enteredAt time.Duration
	// candidate is the incarnation in which the replica will serve after the checks, since is when it first connected to it.
	candidate string
	since     time.Duration
	sightings map[string]sighting
	// released has the members, by their last entry, for which the replica did not wait when it entered the incarnation.
	released map[string]Member
}

// Config has the times and assumptions of a Detector.
type Config struct {
	// SilenceLimit is how long the replica waits for other members. RestartLimit is that time if the server has only been
	// restarted and Keeps covers that.
	SilenceLimit, RestartLimit time.Duration
	// Keeps is when Postgres certainly keeps every commit that it has acknowledged.
	Keeps Keeps
}

// Keeps is when Postgres certainly keeps every commit that it has acknowledged,
// although its processes, its machine, or the server that it replicates to fail.
type Keeps string

// The cases; each includes those before it.
const (
	// KeepsNever: no new incarnation is trusted.
	KeepsNever Keeps = "never"
	// KeepsOnRestart: a server that restarts on the same history has its own disk. A copy of the disk that is started on the
	// same history is older than the last marker of the membership. While there is no such marker, no restart is trusted.
	KeepsOnRestart Keeps = "restart"
	// KeepsOnFailover: replication is synchronous, so a promoted standby has every acknowledged commit as well.
	KeepsOnFailover Keeps = "failover"
)

// sighting is when another member was first seen in its current state.
type sighting struct {
	Member
	since time.Duration
}

// NewDetector returns the Detector of a replica that does not serve yet. The id
// is random and new with each process.
func NewDetector(id string, cfg Config) *Detector {
	return &Detector{
		id:        id,
		cfg:       cfg,
		commits:   map[int64]bool{},
		sightings: map[string]sighting{},
	}
}

// ID returns the replica's name in the membership.
func (d *Detector) ID() string { return d.id }

// Incarnation returns the server incarnation in which the replica serves, or ""
// if it does not.
func (d *Detector) Incarnation() string { return d.incarnation }

// ServingFor returns how long the replica has known the server incarnation in
// which it serves as the only one with commits; zero if it does not serve.
func (d *Detector) ServingFor(now time.Duration) time.Duration {
	if d.incarnation == "" {
		return 0
	}
	return now - d.enteredAt
}

// Epoch returns the cluster epoch in which the replica serves; zero if it does not
// serve. When the stream of changes has confirmed it, no proxy admits in a session from
// before it, and the recovery wait is over.
func (d *Detector) Epoch() int64 {
	if d.incarnation == "" {
		return 0
	}
	return d.epoch
}

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
	// DeclareLoss: commits are lost, or may be: a loss must be declared, unless the membership is outdated.
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
	d.released = nil
	unverified := next.UnverifiedReplicas(o.Incarnation, d.id)
	for _, id := range unverified {
		limit, kept := d.limit(next, id, o)
		switch {
		case now-d.since < limit:
			return next, Wait
		case !kept:
			return m, DeclareLoss
		}
	}

	d.released = map[string]Member{}
	for _, id := range unverified {
		d.released[id] = next.Members[id]
	}

	return next, Serve
}

// limit returns how long to wait until the member id has verified its commits in an
// incarnation, and whether they are certainly there if it stays silent.
func (d *Detector) limit(m Membership, id string, o Observation) (limit time.Duration, kept bool) {
	// Without a last marker, as before the first checkpoint of an epoch, nothing tells a restart from a copy.
	restarted := m.LastMarker.N > 0 && sameServer(m.Members[id].Incarnation, o.Incarnation)
	switch d.cfg.Keeps {
	case KeepsNever:
	case KeepsOnRestart:
		kept = restarted
	case KeepsOnFailover:
		kept = true
	}
	if kept && restarted {
		return d.cfg.RestartLimit, true
	}
	return d.cfg.SilenceLimit, kept
}

// StartServing records that the replica serves in an incarnation for which
// Observe returned Serve. Commits from before a declared loss need not be
// verified any more.
func (d *Detector) StartServing(o Observation, now time.Duration) {
	if o.Mark.Epoch > d.epoch {
		maps.DeleteFunc(d.commits, func(_ int64, answered bool) bool { return answered })
	}
	if d.entered != o.Incarnation {
		d.entered, d.enteredAt = o.Incarnation, now
	}
	d.incarnation, d.epoch, d.candidate = o.Incarnation, o.Mark.Epoch, ""
}

// SilentReplicas returns the members whose heartbeat has not changed for the
// silence limit, and those that were released. The next checkpoint must fence
// them in Postgres.
func (d *Detector) SilentReplicas(m Membership, now time.Duration) []string {
	var silent []string
	for id, member := range m.Members {
		released, waited := d.released[id]
		switch s := d.sightings[id]; {
		case waited && released == member:
			silent = append(silent, id)
		case s.Member != member:
			d.sightings[id] = sighting{member, now}
		case id != d.id && member.Incarnation == d.incarnation && now-s.since >= d.cfg.SilenceLimit:
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
	unverified := slices.ContainsFunc(
		m.UnverifiedReplicas(d.incarnation, d.id),
		func(id string) bool { return !slices.Contains(fenced, id) },
	)
	if !present || o.Incarnation != d.incarnation || o.Mark.Epoch != d.epoch || m.Mark.Lost(o.Mark) || unverified {
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
