package checkpoint

import (
	"slices"

	"modelgateway/shared/wire"
)

// maxHistory bounds the changes that a ChangeHistory keeps between two responses of
// the control plane.
const maxHistory = 10_000

// KnownChanges says which changes of keys and accounts a proxy knows, for a later
// process of the proxy that cannot ask a control plane. A process knows as much if
// it uses no key record that was read at a revision below Floor, applies Changes,
// and reads the revocations by operators in the stream of changes again.
type KnownChanges struct {
	Floor   int64            `json:"floor"`
	Changes []wire.KeyChange `json:"changes,omitempty"`
	// Applied is the revision up to which the proxy has applied every change.
	Applied int64 `json:"applied"`
}

// ChangeHistory records the KnownChanges of a session. Their floor is that of the
// last response but one of the control plane, because what key records are read
// from without a control plane may be some seconds old.
//
// It is not safe for concurrent use. The zero value knows nothing.
type ChangeHistory struct{ older, newer *KnownChanges }

// NewHistory returns the ChangeHistory of a session that begins: the proxy uses no
// key record that was read at a revision below floor.
func NewHistory(floor int64) ChangeHistory { return ResumeHistory(KnownChanges{Floor: floor}) }

// ResumeHistory returns the ChangeHistory of a process that knows what an earlier
// one knew.
func ResumeHistory(known KnownChanges) ChangeHistory {
	older, newer := known, known
	older.Changes, newer.Changes = slices.Clone(known.Changes), slices.Clone(known.Changes)
	return ChangeHistory{older: &older, newer: &newer}
}

// Synced records that a control plane has responded, and that the proxy has applied
// every change up to a revision. Some later ones may be applied as well.
func (h *ChangeHistory) Synced(revision int64) {
	if h.newer == nil {
		return
	}
	later := slices.DeleteFunc(slices.Clone(h.newer.Changes), func(c wire.KeyChange) bool { return c.Revision <= revision })
	h.older, h.newer = h.newer, &KnownChanges{Floor: revision, Changes: later}
}

// Applied records that the proxy has applied a change.
func (h *ChangeHistory) Applied(c wire.KeyChange) {
	for _, known := range []*KnownChanges{h.older, h.newer} {
		if known != nil && len(known.Changes) <= maxHistory {
			known.Changes = append(known.Changes, c)
		}
	}
}

// Known returns what the proxy knows; applied is the revision up to which it has
// applied every change. It returns false if there is no session, or if the changes
// are too many.
func (h *ChangeHistory) Known(applied int64) (KnownChanges, bool) {
	if h.older == nil || len(h.older.Changes) > maxHistory {
		return KnownChanges{}, false
	}
	known := *h.older
	known.Changes, known.Applied = slices.Clone(known.Changes), max(applied, known.Applied)
	return known, true
}
