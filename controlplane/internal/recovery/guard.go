package recovery

import (
	"errors"
	"sync"
	"time"

	"modelgateway/shared/lease/rollback"
)

// ErrNotServing means that this replica does not serve in the server incarnation
// that it is connected to: nothing may be read or written until the Monitor has
// verified the incarnation.
var ErrNotServing = errors.New("recovery: this incarnation of postgres is not verified")

// ErrNoAnswer means that Postgres does not answer. The operation may have been
// executed.
var ErrNoAnswer = errors.New("recovery: postgres does not answer")

// ErrFenced means that this replica was fenced: it was silent for too long, or a
// loss was declared. Nothing was committed.
var ErrFenced = errors.New("recovery: this replica was fenced")

// Guard decides whether this process may use Postgres. Package postgres calls it
// at two points: OnConnect with each new connection, and BeginCommit with
// Committed or Failed around each transaction. It is safe for concurrent use;
// the Monitor changes its state.
type Guard struct {
	wake chan struct{}

	mu       sync.Mutex
	detector *rollback.Detector
	started  time.Time
}

func newGuard(id string, cfg rollback.Config) *Guard {
	return &Guard{detector: rollback.NewDetector(id, cfg), started: time.Now(), wake: make(chan struct{}, 1)}
}

// OnConnect reports whether a connection to this incarnation may be used. If
// not, it wakes the Monitor.
func (g *Guard) OnConnect(incarnation string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.detector.Incarnation() == incarnation {
		return true
	}
	select {
	case g.wake <- struct{}{}:
	default:
	}
	return false
}

// BeginCommit numbers a transaction. Its commit marker must be written in it,
// and it must be ended by Committed or Failed. It returns ErrNotServing if no
// transaction may begin.
func (g *Guard) BeginCommit() (rollback.Transaction, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t, ok := g.detector.Begin(); ok {
		return t, nil
	}
	return rollback.Transaction{}, ErrNotServing
}

// Committed records a committed transaction. After an error its result must not
// be used, because a loss of the commit would not be detected.
func (g *Guard) Committed(t rollback.Transaction) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.detector.Committed(t) {
		return nil
	}
	return ErrNotServing
}

// Failed records a transaction whose result is not used.
func (g *Guard) Failed(t rollback.Transaction) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.detector.Failed(t)
}

// ServingFor returns how long this replica has served in the server incarnation,
// by its own monotonic clock; zero if it does not.
func (g *Guard) ServingFor() (d time.Duration) {
	g.with(func(detector *rollback.Detector, now time.Duration) { d = detector.ServingFor(now) })
	return d
}

// with calls do with the detector and the time since the start of the process,
// and holds the lock meanwhile.
func (g *Guard) with(do func(d *rollback.Detector, now time.Duration)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	do(g.detector, time.Since(g.started))
}
