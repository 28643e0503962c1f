package settle

import (
	"context"
	"fmt"
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

// ProviderCost is what a request cost the operator. It changes nothing that is charged.
type ProviderCost struct {
	// Known is false if the route had no price at the time of the request, or none for its usage.
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
		if item.QuarantineReason != "" || item.Event.Route == "" {
			continue
		}
		called[item.Event.Route] = true
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
			item.Provider = providerCost(item.Event, prices[item.Event.Route], item.RequestID.Time())
		}
	}

	return nil
}

// providerCost returns the provider cost of a request at a time, by the prices of its route, oldest first. What was not charged has one,
// too: the usage of a failed request is a loss of the operator.
func providerCost(e *event.Usage, prices []ProviderPrice, at time.Time) ProviderCost {
	if e.Route == "" {
		return ProviderCost{Known: e.Status != event.Aborted} // the record of an aborted request was written before its route was chosen
	}

	var inForce ProviderPrice
	for _, p := range prices {
		if !p.Since.After(at) {
			inForce = p
		}
	}
	if inForce.Sheet == nil {
		return ProviderCost{}
	}

	if e.Usage.ServerToolRequests > 0 && !inForce.Sheet.HasServerToolPrice() {
		return ProviderCost{} // a model without this price offers no such tools, so package price takes it for zero
	}
	cost, err := price.Cost(&e.Usage, inForce.Sheet)
	if err != nil { // the sheet has no price for a kind of usage: unknown is better than too little
		return ProviderCost{}
	}
	return ProviderCost{Known: true, Version: inForce.Version, Cost: cost}
}
