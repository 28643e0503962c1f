package lease

import (
	"cmp"
	"maps"
	"slices"
)

// Witness names a commit: the one that a control plane has given this number.
// Its row is in Postgres exactly if everything is that had been committed when
// the commit began, for what Postgres loses is always its end. Nobody else
// writes a row of that name, however far Postgres goes on after a loss.
type Witness struct {
	// Replica is the random name of one life of a control plane.
	Replica string `json:"replica"`
	N       int64  `json:"n"`
}

// Roll is what the control planes keep outside of Postgres, to find out whether
// it has lost commits. It is one entry, replaced only by who has read it as it
// is.
type Roll struct {
	Mark Mark `json:"mark"`
	// Witness was committed after everything of which nobody present would know.
	Witness Witness `json:"witness"`
	// Present are the control planes that have made commits in a life of Postgres, or are about to.
	Present map[string]Presence `json:"present"`
}

// Presence is what one control plane says of itself.
type Presence struct {
	// Life is the life of Postgres in which all that it has ever committed is there.
	Life string `json:"life"`
	// Beat counts up as long as it lives.
	Beat int64 `json:"beat"`
}

// Finding is Postgres as a control plane finds it. A life lasts while the same
// server goes on running: within it nothing is lost.
type Finding struct {
	Mark Mark
	Life string
	// Missing are those witnesses that were looked for and are not there.
	Missing []Witness
}

// Lost tells whether Postgres lacks what the roll knows of.
func (r Roll) Lost(f Finding) bool {
	return r.Mark.Lost(f.Mark) || (f.Mark.Epoch == r.Mark.Epoch && slices.Contains(f.Missing, r.Witness))
}

// Elsewhere lists the others that have not said yet whether what they have
// committed is there in this life.
func (r Roll) Elsewhere(life, except string) []string {
	var found []string
	for id, p := range r.Present {
		if id != except && p.Life != life {
			found = append(found, id)
		}
	}
	slices.SortFunc(found, cmp.Compare)
	return found
}

// with is the roll after a finding, and with one control plane in it. What is
// from before a declared loss is void.
func (r Roll) with(f Finding, id string) Roll {
	next := Roll{Mark: r.Mark.Merge(f.Mark), Present: map[string]Presence{}}
	if f.Mark.Epoch <= r.Mark.Epoch {
		next.Witness = r.Witness
		maps.Copy(next.Present, r.Present)
	}
	next.Present[id] = Presence{Life: f.Life, Beat: r.Present[id].Beat + 1}
	return next
}
