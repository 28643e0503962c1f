package httpapi

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"modelgateway/dataplane/internal/httpapi/readon"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
)

const (
	// usagePatience is how long a stream is read on without its client, for the usage, if its model has ended.
	usagePatience = 5 * time.Second
	// reasoningPatience is how long a stream is read on whose model reasons without showing it: what that has cost, only
	// the usage says.
	reasoningPatience = time.Minute
	// forever is for providers that charge for the whole stream anyway; their time limits end it.
	forever = time.Duration(math.MaxInt64)
)

// leaving decides what becomes of the call of a stream when its client leaves. It is used for one call after the other.
type leaving struct {
	g *generationRequest
	// gone reports whether the client has left.
	gone atomic.Bool

	mu sync.Mutex
	// cancel ends the call; stop, the wait for the end of the connection of the client.
	cancel context.CancelFunc
	stop   func() bool
	// patience is how long the call would be read on if the client left now; zero: not at all.
	patience time.Duration
	left     time.Time
	timer    *time.Timer
	call     *readon.Call
}

// begin begins with a call.
func (l *leaving) begin(g *generationRequest, cancel context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.g, l.cancel, l.patience = g, cancel, 0
	l.stop = context.AfterFunc(&g.x.client, l.onLeave)
}

// onLeave is called when the client has left. Its slot is free from then on.
func (l *leaving) onLeave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.gone.CompareAndSwap(false, true) || l.stop == nil {
		return
	}
	l.g.reservation.ReleaseSlot()
	l.left = time.Now()
	l.readOn()
}

// allow sets the patience.
func (l *leaving) allow(patience time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.patience == patience {
		return
	}
	l.patience = patience
	if l.gone.Load() {
		l.readOn()
	}
}

// readOn lets the call continue for the patience, all in all for no longer than a model that reasons has. The caller holds
// the lock.
func (l *leaving) readOn() {
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.patience == 0 {
		l.cancel()
		return
	}
	if l.call == nil {
		l.call = l.g.server.readOn.Begin(l.g.key.AccountID, l.g.key.MaxConcurrent, l.cancel)
	}
	if l.patience == forever {
		l.timer = nil
		return
	}
	l.timer = time.AfterFunc(min(l.patience, time.Until(l.left.Add(reasoningPatience))), l.cancel)
}

// read counts bytes of the stream that were read without the client.
func (l *leaving) read(n int) {
	l.mu.Lock()
	call := l.call
	l.mu.Unlock()
	if call != nil {
		call.Read(n)
	}
}

// end ends the call. It has no effect without one.
func (l *leaving) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop == nil {
		return
	}
	l.stop()
	l.cancel()
	l.stop = nil
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.call != nil {
		l.call.End()
		l.call = nil
	}
}

// mayHideReasoning reports whether the model of a stream may reason without showing it, apart from what the stream and
// earlier reports show: its reasoning has a price of its own, or the request asks for some.
func (g *generationRequest) mayHideReasoning() bool {
	if _, priced := g.sheet.Rates[price.Reasoning]; priced {
		return true
	}
	if g.dialect.Format() == catalogkv.Chat {
		effort := g.request.Text("reasoning_effort")
		return effort != "" && effort != "none"
	}
	return false
}

// noteReport remembers whether a report has more reasoning than the answer has shown.
func (r *relay) noteReport(u *price.Usage) {
	r.server.hiding.Note(r.model.ID, u.Reasoning > r.reader.DeliveredTokens())
}

// hidesReasoning reports whether the model of the stream reasons without showing it.
func (s *streamRelay) hidesReasoning() bool {
	now := s.reader.Progress()
	return !now.Shows && (s.hides || now.Hides)
}

// patience returns how long the stream is read on if its client leaves now. A model that has reasoned more than it showed may
// show a summary.
func (s *streamRelay) patience() time.Duration {
	switch {
	case s.call.Provider.KeepsBilling:
		return forever
	case s.hidesReasoning(), s.hasHidden:
		return reasoningPatience
	case s.reader.Progress().Ending:
		return usagePatience
	}
	return 0
}
