package readon

import "sync"

// Hiding has the models of the catalog, by id, of which a report of usage had more reasoning than its answer has shown.
// The zero value has none.
type Hiding struct {
	mu  sync.RWMutex
	ids map[string]bool
}

// Of reports whether a model has hidden reasoning.
func (h *Hiding) Of(id string) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.ids[id]
}

// Note adds a report of a model.
func (h *Hiding) Note(id string, hides bool) {
	if !hides || h.Of(id) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ids == nil {
		h.ids = map[string]bool{}
	}
	h.ids[id] = true
}
