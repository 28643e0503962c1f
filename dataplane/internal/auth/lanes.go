package auth

import (
	"context"
	"errors"
	"slices"
	"sync"
)

const (
	// maxLoads bounds the loads from the control plane: many forged keys must not block it.
	maxLoads = 64
	// maxUnprovenLoads bounds those of them that may be for forged keys.
	maxUnprovenLoads = maxLoads / 2
	// maxWaitingLoads bounds the loads of either kind that wait for a lane.
	maxWaitingLoads = 1024
)

// errTooManyLoads means that a load waited for too long, or that too many newer ones wait.
var errTooManyLoads = errors.New("auth: too many concurrent loads")

// lanes bounds the loads that run at once. A part of the lanes is reserved for
// proven keys: those with a valid MAC, and those that were good before, such as all
// keys in use when a new session begins. Forged keys cannot take these lanes. Of the
// loads that wait, the newest runs first: during a flood the oldest are about to
// time out, and would use their lanes in vain.
type lanes struct {
	mu sync.Mutex
	// running counts all loads, unproven those of them that are not for a proven key.
	running, unproven int
	// waiting has the waiting loads of unproven and proven keys, the newest last.
	waiting [2][]*waitingLoad
}

type waitingLoad struct {
	// decided is closed when the load may run, or is refused.
	decided          chan struct{}
	granted, refused bool
}

// index returns the index of a kind of key in waiting.
func index(proven bool) int {
	if proven {
		return 1
	}
	return 0
}

// enter waits for a lane. If it returns nil, the caller calls leave.
func (l *lanes) enter(ctx context.Context, proven bool) error {
	l.mu.Lock()
	if l.take(proven) {
		l.mu.Unlock()
		return nil
	}

	w := &waitingLoad{decided: make(chan struct{})}
	waiting := &l.waiting[index(proven)]
	if len(*waiting) == maxWaitingLoads {
		oldest := (*waiting)[0]
		oldest.refused = true
		close(oldest.decided)
		*waiting = slices.Delete(*waiting, 0, 1)
	}

	*waiting = append(*waiting, w)
	l.mu.Unlock()

	select {
	case <-w.decided:
	case <-ctx.Done():
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if w.granted {
		return nil
	}
	if !w.refused {
		*waiting = slices.DeleteFunc(*waiting, func(other *waitingLoad) bool { return other == w })
	}

	return errTooManyLoads
}

// take takes a lane if there is one for the kind of key. The caller holds the lock.
func (l *lanes) take(proven bool) bool {
	if l.running == maxLoads || !proven && l.unproven == maxUnprovenLoads {
		return false
	}
	l.running++
	if !proven {
		l.unproven++
	}
	return true
}

// leave frees a lane, and gives it to the newest load that may take it.
func (l *lanes) leave(proven bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	if !proven {
		l.unproven--
	}

	for _, kind := range []bool{true, false} {
		waiting := &l.waiting[index(kind)]
		if last := len(*waiting) - 1; last >= 0 && l.take(kind) {
			w := (*waiting)[last]
			*waiting = slices.Delete(*waiting, last, last+1)
			w.granted = true
			close(w.decided)
			return
		}
	}
}
