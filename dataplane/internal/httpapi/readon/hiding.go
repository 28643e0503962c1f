package readon

import "sync"

// Hiding has the models of the catalog, by id, of which a report of usage was seen, and whether one had more reasoning than
// its answer has shown. The zero value has none.
type Hiding struct {
	mu  sync.RWMutex
	ids map[string]bool
}

// Of reports whether a model has hidden reasoning, and whether a report of it is known.
func (h *Hiding) Of(id string) (hides, known bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	hides, known = h.ids[id]
	return hides, known
}

// Note adds a report of a model.
func (h *Hiding) Note(id string, hides bool) {
	if before, known := h.Of(id); known && (before || !hides) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ids == nil {
		h.ids = map[string]bool{}
	}
	h.ids[id] = h.ids[id] || hides
}
