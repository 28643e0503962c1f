package traffic

import "sync"

// Readers bounds how many of something are open: in all, and for each reader, so that one cannot take them all. It is safe
// for concurrent use.
type Readers struct {
	most, each int

	mu   sync.Mutex
	open int
	of   map[string]int
}

// NewReaders returns Readers that allow most in all, and each for a reader.
func NewReaders(most, each int) *Readers {
	return &Readers{most: most, each: each, of: map[string]int{}}
}

// Enter counts one more of a reader, or returns ErrTooManyTails. Leave takes it away.
func (r *Readers) Enter(reader string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open >= r.most || r.of[reader] >= r.each {
		return ErrTooManyTails
	}
	r.open++
	r.of[reader]++
	return nil
}

// Leave undoes one Enter.
func (r *Readers) Leave(reader string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open--
	if r.of[reader]--; r.of[reader] == 0 {
		delete(r.of, reader)
	}
}
