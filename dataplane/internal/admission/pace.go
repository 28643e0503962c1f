package admission

import (
	"sync/atomic"
	"time"
)

// pace is how long the control plane takes for its answers of late. What it has
// not answered yet is not repeated before that: a control plane that is slow
// would be told everything several times, and become slower.
type pace struct{ smoothed atomic.Int64 }

// answered notes an answer. Of two at the same time one may be forgotten.
func (p *pace) answered(took time.Duration) {
	const weight = 8
	old := p.smoothed.Load()
	p.smoothed.Store(old + (int64(took)-old)/weight)
}

// pause is how long an answer is waited for before it is asked for again.
func (p *pace) pause(least time.Duration) time.Duration {
	const spread = 3 // answers that take so much longer than usual are rare
	return min(max(spread*time.Duration(p.smoothed.Load()), least), maxRetry)
}
