package meter

import (
	"slices"
	"time"

	"modelgateway/shared/pulse"
)

// InFlightByEndpoint returns the requests that are being handled, by endpoint.
func (m *Metrics) InFlightByEndpoint() map[string]int64 {
	running := map[string]int64{}
	for endpoint, n := range m.inFlight.All() {
		if n := n.Load(); n != 0 {
			running[endpoint] = n
		}
	}
	return running
}

// Totals returns what was counted since the start of the process, in a fixed order.
func (m *Metrics) Totals() []pulse.Total {
	var all []pulse.Total
	for l, n := range m.requests.All() {
		all = append(all, pulse.Total{Series: pulse.Series{
			Measure:  pulse.Requests,
			Endpoint: l.endpoint,
			Status:   l.status,
			Code:     string(l.code),
			Outcome:  l.outcome,
		}, N: n.Load()})
	}

	for l, n := range m.byModel.All() {
		all = append(all, pulse.Total{Series: pulse.Series{Measure: pulse.ModelRequests, Model: l.model, Outcome: l.outcome}, N: n.Load()})
	}

	for l, n := range m.attempts.All() {
		all = append(all, pulse.Total{Series: pulse.Series{
			Measure:  pulse.Attempts,
			Provider: l.provider,
			Route:    l.route,
			Outcome:  l.outcome,
		}, N: n.Load()})
	}

	for l, n := range m.tokens.All() {
		all = append(all, pulse.Total{Series: pulse.Series{
			Measure:  pulse.Tokens,
			Model:    l.model,
			Provider: l.provider,
			Outcome:  l.kind,
		}, N: n.Load()})
	}

	for l, n := range m.charged.All() {
		all = append(all, pulse.Total{Series: pulse.Series{Measure: pulse.Charges, Model: l.model, Provider: l.provider}, N: n.Load()})
	}

	for l, n := range m.doubts.All() {
		all = append(
			all,
			pulse.Total{Series: pulse.Series{Measure: pulse.Doubts, Provider: l.provider, Outcome: string(l.reason)}, N: n.Load()},
		)
	}

	for l, n := range m.leftOut.All() {
		all = append(all, pulse.Total{Series: pulse.Series{
			Measure:  pulse.LeftOut,
			Provider: l.provider,
			Route:    l.route,
			Outcome:  l.member.String(),
		}, N: n.Load()})
	}

	for reason, n := range m.streamEnds.All() {
		all = append(all, pulse.Total{Series: pulse.Series{Measure: pulse.StreamEnds, Outcome: reason}, N: n.Load()})
	}

	for l, h := range m.firstToken.All() {
		all = append(all, distribution(pulse.Series{Measure: pulse.FirstToken, Provider: l.provider, Route: l.route}, h))
	}

	for l, h := range m.durations.All() {
		all = append(all, distribution(pulse.Series{
			Measure:  pulse.Duration,
			Endpoint: l.endpoint,
			Provider: l.provider,
			Route:    l.route,
		}, h))
	}

	all = slices.DeleteFunc(all, func(t pulse.Total) bool { return t.N == 0 })
	slices.SortFunc(all, func(a, b pulse.Total) int { return a.Compare(b.Series) })
	return all
}

// distribution returns the total of a histogram.
func distribution(s pulse.Series, h *Histogram) pulse.Total {
	buckets, sum := h.Read()
	t := pulse.Total{Series: s, SumMS: int64(sum / time.Millisecond), Buckets: buckets}
	for _, n := range buckets {
		t.N += n
	}
	return t
}
