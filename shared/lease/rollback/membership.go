package rollback

import (
	"cmp"
	"maps"
	"slices"
)

// Witness names a commit: the one that a control plane has given this number.
// Its row is in Postgres exactly if everything is that had been committed when
// the commit began, for what Postgres loses is always its end. Nobody else
// writes a row of that name, however far Postgres goes on after a loss.
type CommitMarker struct {
	// Replica is the random name of one life of a control plane.
	Replica string `json:"replica"`
	N       int64  `json:"n"`
}

// Roll is what the control planes keep outside of Postgres, to find out whether
// it has lost commits. It is one entry, replaced only by who has read it as it
// is.
type Membership struct {
	Mark HighWaterMark `json:"mark"`
	// Witness was committed after everything of which nobody present would know.
	LastMarker CommitMarker `json:"witness"`
	// Present are the control planes that have made commits in a life of Postgres, or are about to.
	Members map[string]Member `json:"present"`
}

// Presence is what one control plane says of itself.
type Member struct {
	// Life is the life of Postgres in which all that it has ever committed is there.
	Incarnation string `json:"life"`
	// Beat counts up as long as it lives.
	Heartbeat int64 `json:"beat"`
}

// Finding is Postgres as a control plane finds it. A life lasts while the same
// server goes on running: within it nothing is lost.
type Observation struct {
	Mark        HighWaterMark
	Incarnation string
	// Missing are those witnesses that were looked for and are not there.
	MissingMarkers []CommitMarker
}

// Lost tells whether Postgres lacks what the roll knows of.
func (r Membership) Lost(f Observation) bool {
	return r.Mark.Lost(f.Mark) || (f.Mark.Epoch == r.Mark.Epoch && slices.Contains(f.MissingMarkers, r.LastMarker))
}

// Elsewhere lists the others that have not said yet whether what they have
// committed is there in this life.
func (r Membership) UnverifiedReplicas(life, except string) []string {
	var found []string
	for id, p := range r.Members {
		if id != except && p.Incarnation != life {
			found = append(found, id)
		}
	}
	slices.SortFunc(found, cmp.Compare)
	return found
}

// with is the roll after a finding, and with one control plane in it. What is
// from before a declared loss is void.
func (r Membership) with(f Observation, id string) Membership {
	next := Membership{Mark: r.Mark.Merge(f.Mark), Members: map[string]Member{}}
	if f.Mark.Epoch <= r.Mark.Epoch {
		next.LastMarker = r.LastMarker
		maps.Copy(next.Members, r.Members)
	}
	next.Members[id] = Member{Incarnation: f.Incarnation, Heartbeat: r.Members[id].Heartbeat + 1}
	return next
}
