package recovery

import (
	"errors"
	"sync"
	"time"

	"modelgateway/shared/lease/rollback"
)

// ErrElsewhere says that Postgres is in another life than the one that this
// replica serves in, or that it serves in none: nothing may be read or written
// until the Keeper has entered it.
var ErrNotServing = errors.New("epoch: this life of postgres has not been entered")

// ErrAway says that Postgres does not answer. What was asked of it may have
// been done.
var ErrNoAnswer = errors.New("epoch: postgres does not answer")

// ErrFenced says that this replica has been struck off: it was silent for too
// long, or a loss was declared. Nothing was committed.
var ErrFenced = errors.New("epoch: this replica was fenced")

// Watch is the Attendant of this process, safe for concurrent use: the Keeper
// moves it, and every transaction asks it.
type Guard struct {
	moved chan struct{}

	mu       sync.Mutex
	detector *rollback.Detector
	begun    time.Time
}

func newGuard(id string, silence time.Duration) *Guard {
	return &Guard{detector: rollback.NewDetector(id, silence), begun: time.Now(), moved: make(chan struct{}, 1)}
}

// Begin numbers a transaction, whose witness has to be written in it, and which
// has to be ended by Committed or Failed.
func (w *Guard) BeginCommit() (rollback.Transaction, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c, ok := w.detector.Begin(); ok {
		return c, nil
	}
	return rollback.Transaction{}, ErrNotServing
}

// Committed notes a transaction that is going to be answered. After an error it
// must not be: nobody would know if it were lost.
func (w *Guard) Committed(c rollback.Transaction) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.detector.Committed(c) {
		return nil
	}
	return ErrNotServing
}

// Failed notes a transaction that is not going to be answered.
func (w *Guard) Failed(c rollback.Transaction) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.detector.Failed(c)
}

// Serves tells whether a connection may be used that is to this life of
// Postgres. If not, the Keeper is woken.
func (w *Guard) OnConnect(life string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.detector.Incarnation() == life {
		return true
	}
	select {
	case w.moved <- struct{}{}:
	default:
	}
	return false
}

// with has the Keeper work on the Attendant; now is counted from its beginning.
func (w *Guard) with(do func(a *rollback.Detector, now time.Duration)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do(w.detector, time.Since(w.begun))
}
