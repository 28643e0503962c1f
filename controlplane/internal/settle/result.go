package settle

import (
	"math"

	"modelgateway/shared/event"
	"modelgateway/shared/money"
)

// Result is the outcome of a settlement.
type Result struct {
	// Settled counts new events, Duplicates those that were settled before.
	Settled, Duplicates, Quarantined int
	// OldestFinishedMS is when the oldest newly settled request finished, in Unix milliseconds; zero if there was none.
	OldestFinishedMS int64
	// Watermarks has the new state of every session in the batch.
	Watermarks []event.Settled
	// Routes are the sums of the calls of new events whose cost is known, by route; UnknownCosts counts the calls whose cost is not.
	Routes       map[string]RouteSums
	UnknownCosts int
}

// RouteSums compares what the calls of a route cost the operator with what was charged for them.
type RouteSums struct {
	Calls                 int
	Charged, ProviderCost money.Nano
}

// Settle counts a new event. Each call counts for its own route: what the customer pays belongs to the last one.
func (r *Result) Settle(item *Item) {
	e := item.Event
	r.Settled++
	if ms := e.FinishedMS; r.OldestFinishedMS == 0 || ms < r.OldestFinishedMS {
		r.OldestFinishedMS = ms
	}

	if e.Route != "" {
		r.call(e.Route, &item.Provider, e.Cost)
	}
	for i := range e.Attempts {
		if a := &e.Attempts[i]; a.Spent() {
			var cost ProviderCost
			if item.Attempts != nil {
				cost = item.Attempts[i]
			}
			r.call(a.Route, &cost, 0)
		}
	}
}

// call counts a call. Only a route that has had a price in the catalog has sums: their number is bounded, whatever a proxy reports.
func (r *Result) call(route string, cost *ProviderCost, charged money.Nano) {
	if !cost.Known {
		r.UnknownCosts++
		return
	}
	r.addRoute(route, RouteSums{1, charged, cost.Cost})
}

func (r *Result) addRoute(route string, s RouteSums) {
	if r.Routes == nil {
		r.Routes = map[string]RouteSums{}
	}
	sums := r.Routes[route]
	r.Routes[route] = RouteSums{
		sums.Calls + s.Calls,
		saturate(sums.Charged, s.Charged),
		saturate(sums.ProviderCost, s.ProviderCost),
	}
}

// saturate returns a + b, and the largest amount in place of one that is larger still. Both are costs, so neither is negative. A
// proxy that is broken may report attempts whose provider costs have no sum; a negative one would stop the counters of metrics.
func saturate(a, b money.Nano) money.Nano {
	if sum, err := money.Add(a, b); err == nil {
		return sum
	}
	return math.MaxInt64
}

// add adds a later result.
func (r *Result) add(o *Result) {
	r.Settled += o.Settled
	r.Duplicates += o.Duplicates
	r.Quarantined += o.Quarantined
	if r.OldestFinishedMS == 0 || (o.OldestFinishedMS != 0 && o.OldestFinishedMS < r.OldestFinishedMS) {
		r.OldestFinishedMS = o.OldestFinishedMS
	}
	r.Watermarks = append(r.Watermarks, o.Watermarks...) // the newest state of a session is the last one
	r.UnknownCosts += o.UnknownCosts
	for route, sums := range o.Routes {
		r.addRoute(route, sums)
	}
}
