package settle

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"modelgateway/shared/event"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

// ProviderPrice is one version of what a provider charges on a route.
type ProviderPrice struct {
	Version int64
	Since   time.Time
	// Sheet is nil if the price is unknown from then on.
	Sheet *price.Sheet
}

// ProviderCost is what a call cost the operator. It changes nothing that is charged.
type ProviderCost struct {
	// Known is false if the route had no price at the time of the request, or none for the usage of the call.
	Known bool
	// Version is that of the provider's price; zero if no route was called.
	Version int64
	Cost    money.Nano
}

// addProviderCosts computes what the requests cost the operator, from the prices at the time of each: an event that comes again or
// late, or that is released from quarantine, has the same provider cost.
func (s *Settler) addProviderCosts(ctx context.Context, items []Item) error {
	if s.known.facts == nil {
		return nil
	}

	called := map[string]bool{}
	var first, last time.Time
	for i := range items {
		item := &items[i]
		if item.QuarantineReason != "" || !noteCalled(called, item.Event) {
			continue
		}
		at := item.RequestID.Time()
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}

	var prices map[string][]ProviderPrice
	if len(called) > 0 {
		routes := make([]string, 0, len(called))
		for route := range called {
			routes = append(routes, route)
		}
		var err error
		if prices, err = s.known.facts.ProviderPrices(ctx, routes, first, last); err != nil {
			return fmt.Errorf("settle: read provider prices: %w", err)
		}
	}

	for i := range items {
		if item := &items[i]; item.QuarantineReason == "" {
			item.addProviderCosts(prices)
		}
	}

	return nil
}

// noteCalled notes the routes that may have cost something, and reports whether there are any.
func noteCalled(called map[string]bool, e *event.Usage) (some bool) {
	if e.Route != "" {
		called[e.Route], some = true, true
	}
	for i := range e.Attempts {
		if a := &e.Attempts[i]; a.Spent() {
			called[a.Route], some = true, true
		}
	}
	return some
}

// addProviderCosts sets what the calls of the request cost, from the prices of their routes.
func (i *Item) addProviderCosts(prices map[string][]ProviderPrice) {
	e, at := i.Event, i.RequestID.Time()
	if i.Provider = providerCost(&e.Usage, prices[e.Route], at); e.Route == "" {
		i.Provider.Known = e.Status != event.Aborted // the record of an aborted request was written before its route was chosen
	}

	for n := range e.Attempts {
		if a := &e.Attempts[n]; a.Spent() {
			if i.Attempts == nil {
				i.Attempts = make([]ProviderCost, len(e.Attempts))
			}
			i.Attempts[n] = providerCost(&a.Usage, prices[a.Route], at)
		}
	}
}

// AppendAttempts appends the attempts of the event in JSON, with the provider costs of those that have spent something.
func (i *Item) AppendAttempts(b []byte) []byte {
	return i.Event.AppendAttempts(b, func(b []byte, n int) []byte {
		if i.Attempts == nil || !i.Attempts[n].Known {
			return b
		}
		b = strconv.AppendInt(append(b, `,"provider_cost":`...), int64(i.Attempts[n].Cost), 10)
		return strconv.AppendInt(append(b, `,"provider_price_version":`...), i.Attempts[n].Version, 10)
	})
}

// providerCost returns the provider cost of a usage at a time, by the prices of its route, oldest first. What was not charged has one,
// too: the usage of a failed request is a loss of the operator.
func providerCost(u *price.Usage, prices []ProviderPrice, at time.Time) ProviderCost {
	var inForce ProviderPrice
	for _, p := range prices {
		if !p.Since.After(at) {
			inForce = p
		}
	}
	if inForce.Sheet == nil {
		return ProviderCost{}
	}

	if u.ServerToolRequests > 0 && !inForce.Sheet.HasServerToolPrice() {
		return ProviderCost{} // a model without this price offers no such tools, so package price takes it for zero
	}
	cost, err := price.Cost(u, inForce.Sheet)
	if err != nil || cost > event.MaxCost { // the sheet has no price for a kind of usage: unknown is better than too little
		return ProviderCost{}
	}
	return ProviderCost{Known: true, Version: inForce.Version, Cost: cost}
}
