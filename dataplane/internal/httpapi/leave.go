package httpapi

import (
	"time"

	"modelgateway/dataplane/internal/httpapi/readon"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
)

// usagePatience is how long a stream is read on without its client, for the usage, if its model has ended.
const usagePatience = 5 * time.Second

// ReleaseSlot implements readon.Owner.
func (g *generationRequest) ReleaseSlot() { g.reservation.ReleaseSlot() }

// ReadOn implements readon.Owner.
func (g *generationRequest) ReadOn(cancel func()) *readon.Call {
	return g.server.readOn.Begin(g.key.AccountID, g.key.MaxConcurrent, cancel)
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
		return readon.Forever
	case s.hidesReasoning(), s.hasHidden:
		return readon.ReasoningPatience
	case s.reader.Progress().Ending:
		return usagePatience
	}
	return 0
}
