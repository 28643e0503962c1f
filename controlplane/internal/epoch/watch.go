package epoch

import (
	"errors"
	"sync"
	"time"

	"modelgateway/shared/lease/rollback"
)

// ErrElsewhere says that Postgres is in another life than the one that this
// replica serves in, or that it serves in none: nothing may be read or written
// until the Keeper has entered it.
var ErrElsewhere = errors.New("epoch: this life of postgres has not been entered")

// ErrAway says that Postgres does not answer. What was asked of it may have
// been done.
var ErrAway = errors.New("epoch: postgres does not answer")

// ErrFenced says that this replica has been struck off: it was silent for too
// long, or a loss was declared. Nothing was committed.
var ErrFenced = errors.New("epoch: this replica was fenced")

// Watch is the Attendant of this process, safe for concurrent use: the Keeper
// moves it, and every transaction asks it.
type Watch struct {
	moved chan struct{}

	mu        sync.Mutex
	attendant *rollback.Detector
	begun     time.Time
}

func newWatch(id string, silence time.Duration) *Watch {
	return &Watch{attendant: rollback.NewDetector(id, silence), begun: time.Now(), moved: make(chan struct{}, 1)}
}

// Begin numbers a transaction, whose witness has to be written in it, and which
// has to be ended by Committed or Failed.
func (w *Watch) Begin() (rollback.Transaction, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c, ok := w.attendant.Begin(); ok {
		return c, nil
	}
	return rollback.Transaction{}, ErrElsewhere
}

// Committed notes a transaction that is going to be answered. After an error it
// must not be: nobody would know if it were lost.
func (w *Watch) Committed(c rollback.Transaction) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.attendant.Committed(c) {
		return nil
	}
	return ErrElsewhere
}

// Failed notes a transaction that is not going to be answered.
func (w *Watch) Failed(c rollback.Transaction) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attendant.Failed(c)
}

// Serves tells whether a connection may be used that is to this life of
// Postgres. If not, the Keeper is woken.
func (w *Watch) Serves(life string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.attendant.Incarnation() == life {
		return true
	}
	select {
	case w.moved <- struct{}{}:
	default:
	}
	return false
}

// with has the Keeper work on the Attendant; now is counted from its beginning.
func (w *Watch) with(do func(a *rollback.Detector, now time.Duration)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do(w.attendant, time.Since(w.begun))
}
