// Package guard keeps the checkpoint of a session true: it is removed before the proxy
// acts on something that it does not say, and none is written meanwhile.
package guard

import (
	"log/slog"
	"sync"

	"modelgateway/shared/lease/checkpoint"
	"modelgateway/shared/platform/retry"
)

// Store keeps the checkpoint of the session on disk.
type Store interface {
	// Checkpoint returns that of the earlier process, with the idle units that are left; nil if there is none.
	Checkpoint() *checkpoint.Checkpoint
	// Mark returns the end of the usage log.
	Mark() checkpoint.Mark
	SaveCheckpoint(c *checkpoint.Checkpoint) error
	RemoveCheckpoint() error
}

// Guard removes the checkpoint before the proxy acts on something that it does not
// say, and keeps one from being written meanwhile.
type Guard struct {
	store Store
	log   *slog.Logger

	mu sync.Mutex
	// acting is how many actions are under way, actions how many have begun.
	acting, actions int
	// kept means that there is a checkpoint.
	kept bool
	// trouble suppresses the log lines of an error that was logged before.
	trouble retry.ErrorFilter
}

// New returns the Guard of a store, which may have a checkpoint that cannot be used.
func New(store Store, log *slog.Logger) *Guard { return &Guard{store: store, log: log, kept: true} }

// Act calls do without a checkpoint.
func (g *Guard) Act(do func()) {
	g.mu.Lock()
	g.acting++
	g.actions++
	if g.kept {
		err := g.store.RemoveCheckpoint() // tried again before the next action
		if g.kept = err != nil; g.trouble.IsNew(err) {
			g.log.Error(
				"checkpoint of the session cannot be removed: do not start this proxy again while no control plane responds",
				slog.Any("error", err),
			)
		}
	}
	g.mu.Unlock()
	do()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.acting--
}

// Save writes what collect returns, unless the proxy acts meanwhile. It reports
// whether there is a checkpoint now.
func (g *Guard) Save(collect func() *checkpoint.Checkpoint) (bool, error) {
	g.mu.Lock()
	before, idle := g.actions, g.acting == 0
	g.mu.Unlock()
	if !idle {
		return false, nil
	}

	c := collect()
	if c == nil {
		return false, nil
	}

	g.mu.Lock()
	defer g.mu.Unlock()
	if g.actions != before {
		return false, nil
	}

	g.kept = true // also if it is written in part
	return true, g.store.SaveCheckpoint(c)
}
