package rollback

import (
	"cmp"
	"maps"
	"slices"
)

// CommitMarker identifies a commit of a replica by its number. Its row is in
// Postgres exactly if everything is that had been committed when the commit
// began, because what Postgres loses is always the end of its log. No other
// replica writes a row of that name, however far Postgres goes on after a loss.
type CommitMarker struct {
	// Replica is the random name of one control plane process.
	Replica string `json:"replica"`
	N       int64  `json:"n"`
}

// Membership is what control planes keep outside of Postgres to find out whether
// it has lost commits. It is one entry of the recovery bucket; it is replaced
// only if nobody has replaced it since it was read.
type Membership struct {
	Mark HighWaterMark `json:"mark"`
	// LastMarker was committed after every commit that no member remembers.
	LastMarker CommitMarker `json:"last_marker"`
	// Members are the control planes that have made commits in an incarnation, or are about to.
	Members map[string]Member `json:"members"`
}

// Member is the entry of one control plane.
type Member struct {
	// Incarnation is the server incarnation in which all that it ever committed is present.
	Incarnation string `json:"incarnation"`
	// Heartbeat counts up as long as the control plane lives.
	Heartbeat int64 `json:"heartbeat"`
}

// Observation is the state of Postgres as a control plane reads it. Within one
// server incarnation nothing is lost: it lasts as long as the same server runs.
type Observation struct {
	Mark        HighWaterMark
	Incarnation string
	// MissingMarkers are those of the markers looked for that are not there.
	MissingMarkers []CommitMarker
}

// Lost reports whether Postgres lacks commits that the membership knows of.
func (m Membership) Lost(o Observation) bool {
	return m.Mark.Lost(o.Mark) || (o.Mark.Epoch == m.Mark.Epoch && slices.Contains(o.MissingMarkers, m.LastMarker))
}

// UnverifiedReplicas returns the members, except one, that have not confirmed
// yet that their commits are present in an incarnation; sorted.
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

// with returns the membership after an observation, with one replica in it.
// Entries from before a declared loss are dropped.
func (m Membership) with(o Observation, id string) Membership {
	next := Membership{Mark: m.Mark.Merge(o.Mark), Members: map[string]Member{}}
	if o.Mark.Epoch <= m.Mark.Epoch {
		next.LastMarker = m.LastMarker
		maps.Copy(next.Members, m.Members)
	}
	next.Members[id] = Member{Incarnation: o.Incarnation, Heartbeat: m.Members[id].Heartbeat + 1}
	return next
}
