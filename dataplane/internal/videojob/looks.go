package videojob

import (
	"sync"
	"time"
)

const (
	// lookInterval is the least time between two polls of a job on behalf of clients.
	lookInterval = time.Second
	// maxLooks bounds the jobs whose last poll is known.
	maxLooks = 1 << 14
)

// looks knows when clients last made this proxy poll a job.
type looks struct {
	mu sync.Mutex
	at map[string]time.Time
}

// begin reports whether a client may make the proxy poll a job now, and records it.
func (l *looks) begin(id string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.at[id]; ok && now.Sub(last) < lookInterval {
		return false
	}

	if len(l.at) >= maxLooks {
		for other, last := range l.at {
			if now.Sub(last) >= lookInterval {
				delete(l.at, other)
			}
		}
		if len(l.at) >= maxLooks {
			clear(l.at)
		}
	}

	l.at[id] = now
	return true
}
