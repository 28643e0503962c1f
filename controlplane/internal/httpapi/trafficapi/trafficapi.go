// Package trafficapi has the handlers of the admin API that show the traffic: now, as streams, and over time.
package trafficapi

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/explain"
	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/traffic"
	"modelgateway/shared/money"
	"modelgateway/shared/pulse"
)

// Handlers serves the traffic.
type Handlers struct {
	Live  *traffic.Live
	Tails *traffic.Tails
	Past  *traffic.Service
	// Catalog has the routes, Fleet the credentials that are refused.
	Catalog *catalog.Service
	Fleet   fleet.Store
	// Explainer explains requests.
	Explainer *explain.Service
	// Stopping is closed when the server stops: streams end at once.
	Stopping <-chan struct{}

	// routes are those that were read last, for as long as the database does not answer.
	routes atomic.Pointer[storedRoutes]
}

func (h *Handlers) GetTraffic(context.Context, *gen.Call, gen.GetTrafficRequestObject) (gen.GetTrafficResponseObject, error) {
	return gen.GetTraffic200JSONResponse(trafficView(h.Live.Now())), nil
}

func trafficView(n *traffic.Now) gen.Traffic {
	view := gen.Traffic{
		At:            n.At.UTC(),
		WindowSeconds: int(n.Window.Seconds()),
		Heard:         n.Heard,
		Silent:        n.Silent,
		Proxies:       convert.All(n.Proxies, proxyView),
		History:       convert.All(n.History, func(p **traffic.Period) gen.TrafficPoint { return pointView(*p) }),
	}
	if n.Heard > 0 {
		view.Current = figuresView(n)
	}
	return view
}

func proxyView(p *traffic.Proxy) gen.TrafficProxy {
	view := gen.TrafficProxy{Name: p.Name, Silent: p.Silent, Draining: p.Draining}
	if p.Session != 0 {
		view.Session = &p.Session
	}
	if !p.HeardAt.IsZero() {
		at := p.HeardAt.UTC()
		view.HeardAt = &at
	}
	if !p.Silent {
		view.InFlight = &p.InFlight
		view.UnsettledMS = &p.Spool.UnsettledMS
		view.SpoolUsed = &p.Spool.Used
		view.SpoolCapacity = &p.Spool.Capacity
		view.SpoolBytes = &p.Spool.Bytes
		view.SpoolMaxBytes = &p.Spool.MaxBytes
	}
	return view
}

func figuresView(n *traffic.Now) *gen.TrafficFigures {
	f := &gen.TrafficFigures{
		InFlight:   n.InFlight,
		TtftMS:     quantiles(n.Recent, pulse.FirstToken),
		DurationMS: quantiles(n.Recent, pulse.Duration),
		Refusals:   n.Recent.Rate(pulse.Requests, n.Window, refusedCode),
		Attempts:   n.Recent.Rate(pulse.Attempts, n.Window, func(s pulse.Series) string { return s.Outcome }),
		Tokens:     n.Recent.Rate(pulse.Tokens, n.Window, func(s pulse.Series) string { return s.Outcome }),
	}

	var charged int64
	n.Minute.Each(pulse.Charges, func(_ pulse.Series, sum *traffic.Sum) { charged += sum.N })
	f.ChargedPerMinute = money.Nano(charged).String()

	type answer struct {
		endpoint string
		class    int
	}

	rates := map[answer]float64{}
	n.Recent.Each(pulse.Requests, func(s pulse.Series, sum *traffic.Sum) {
		rates[answer{s.Endpoint, s.Status / 100}] += float64(sum.N) / n.Window.Seconds()
	})

	f.Requests = []gen.TrafficRate{}
	for _, a := range slices.SortedFunc(maps.Keys(rates), func(a, b answer) int {
		if c := strings.Compare(a.endpoint, b.endpoint); c != 0 {
			return c
		}
		return a.class - b.class
	}) {
		f.Requests = append(f.Requests, gen.TrafficRate{Endpoint: a.endpoint, StatusClass: a.class, PerSecond: rates[a]})
	}

	return f
}

// outcomeRefused and outcomeFailed are outcomes of requests, as the proxies count them.
const (
	outcomeRefused = "refused"
	outcomeFailed  = "failed"
)

// refusedCode returns the code of refused requests, and nothing for others.
func refusedCode(s pulse.Series) string {
	if s.Outcome != outcomeRefused {
		return ""
	}
	return s.Code
}

// quantiles returns nil if nothing was observed.
func quantiles(p *traffic.Period, m pulse.Measure) *gen.Quantiles {
	times := p.Times(m)
	median, high := times.Quantile(m, 0.5), times.Quantile(m, 0.95)
	if median == nil {
		return nil
	}
	return &gen.Quantiles{P50: milliseconds(*median), P95: milliseconds(*high)}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func pointView(p *traffic.Period) gen.TrafficPoint {
	view := gen.TrafficPoint{At: p.From.UTC(), Heard: len(p.Heard)}
	if len(p.Heard) == 0 {
		return view
	}

	const seconds = traffic.HistoryStep
	rate := func(of string) *float64 {
		n := 0.0
		for outcome, per := range p.Rate(pulse.Requests, seconds, func(s pulse.Series) string { return s.Outcome }) {
			if of == "" || of == outcome {
				n += per
			}
		}
		return &n
	}

	var running int64
	for _, n := range p.Heard {
		running += n
	}

	view.Requests, view.Refused, view.Failed, view.InFlight = rate(""), rate(outcomeRefused), rate(outcomeFailed), &running
	if high := p.Times(pulse.FirstToken).Quantile(pulse.FirstToken, 0.95); high != nil {
		ms := milliseconds(*high)
		view.TtftP95Ms = &ms
	}

	return view
}
