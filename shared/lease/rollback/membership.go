package rollback

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// CommitMarker identifies a commit of a replica by its number. Postgres loses
// only the end of its log, so if the row of the marker is present, then so is
// everything that was committed before. After a loss, no other transaction writes
// a row with the same replica and number.
type CommitMarker struct {
	// Replica is the random name of one control plane process.
	Replica string `json:"replica"`
	N       int64  `json:"n"`
}

// Membership is the state that control planes store outside of Postgres to
// detect that it has lost commits. It is one entry of the recovery bucket, and
// is updated by compare-and-swap.
type Membership struct {
	Mark HighWaterMark `json:"mark"`
	// LastMarker is the marker of a checkpoint after every commit that no member remembers.
	LastMarker CommitMarker `json:"last_marker"`
	// Members are the control planes that have committed in an incarnation, or will.
	Members map[string]Member `json:"members"`
}

// Member is the entry of one control plane.
type Member struct {
	// Incarnation is the server incarnation in which the control plane has found all its commits.
	Incarnation string `json:"incarnation"`
	// Heartbeat grows as long as the control plane runs.
	Heartbeat int64 `json:"heartbeat"`
}

// Observation is the state of Postgres as a control plane has read it. Within
// one server incarnation nothing is lost, because the same server runs all the
// time. Its name is "start/history"; the history changes when a standby is
// promoted, when the log is replayed up to a point in time, and when the database
// is created again from a dump.
type Observation struct {
	Mark        HighWaterMark
	Incarnation string
	// Recovering means that the recovery wait of the last declared loss is not over.
	Recovering bool
	// MissingMarkers are the markers to verify that are not in Postgres.
	MissingMarkers []CommitMarker
}

// Lost reports whether Postgres has lost commits that the membership shows.
func (m Membership) Lost(o Observation) bool {
	return m.Mark.Lost(o.Mark) || (o.Mark.Epoch == m.Mark.Epoch && slices.Contains(o.MissingMarkers, m.LastMarker))
}

// Outdated reports whether a later reading of the membership shows that its last
// marker may have been deleted. A replica reads the membership before it looks
// for the markers; if it was stopped in between, the marker may be missing
// because a later one has taken its place. So a loss is declared only if the
// membership, read again, is not outdated.
func (m Membership) Outdated(later Membership) bool {
	return later.LastMarker != m.LastMarker || later.Mark.Epoch != m.Mark.Epoch
}

// UnverifiedReplicas returns the members, except one, that have not found their
// commits in an incarnation yet; sorted.
func (m Membership) UnverifiedReplicas(incarnation, except string) []string {
	var found []string
	for id, member := range m.Members {
		if id != except && member.Incarnation != incarnation {
			found = append(found, id)
		}
	}
	slices.SortFunc(found, cmp.Compare)
	return found
}

// with returns the membership after an observation of the replica id, which it
// includes. Entries from before a declared loss are dropped.
func (m Membership) with(o Observation, id string) Membership {
	next := Membership{Mark: m.Mark.Merge(o.Mark), Members: map[string]Member{}}
	if o.Mark.Epoch <= m.Mark.Epoch {
		next.LastMarker = m.LastMarker
		maps.Copy(next.Members, m.Members)
	}
	next.Members[id] = Member{Incarnation: o.Incarnation, Heartbeat: m.Members[id].Heartbeat + 1}
	return next
}

// sameServer reports whether two incarnations are runs of the same server on the
// same history of commits. An incarnation is "start/history".
func sameServer(a, b string) bool {
	_, a, split := strings.Cut(a, "/")
	_, b, alsoSplit := strings.Cut(b, "/")
	return split && alsoSplit && a == b
}
