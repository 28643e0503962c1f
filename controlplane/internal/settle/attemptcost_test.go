package settle_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

// What a request cost the operator is the sum over its calls, each by the sheet of its own route: none is counted twice, and none whose
// price is unknown counts as free.
func TestProviderCostIsTheSumOverTheCalls(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	now := time.Now()
	facts := &pricedFacts{prices: map[string][]settle.ProviderPrice{}, sheets: map[int64]settle.PriceVersion{0: {Model: "m", Sheet: &price.Sheet{}}}}
	const routes, priced = 5, 3 // the others have no price
	for i := range priced {
		sheet := &price.Sheet{Rates: price.Rates{price.Input: 1 + random.Int64N(1e10), price.Output: 1 + random.Int64N(1e11)}}
		facts.prices["r"+strconv.Itoa(i)] = []settle.ProviderPrice{{Version: int64(i) + 1, Since: now.Add(-time.Hour), Sheet: sheet}}
	}

	got, want := map[string]money.Nano{}, map[string]money.Nano{}
	unknown, wantUnknown := map[string]int{}, map[string]int{}
	for range 2000 {
		call := func() (route string, u price.Usage) {
			if route = "r" + strconv.Itoa(random.IntN(routes)); random.IntN(3) > 0 {
				u = price.Usage{Input: 1 + random.Int64N(3000), Output: random.Int64N(2000)}
			}
			return route, u
		}
		count := func(route string, u price.Usage) {
			if prices := facts.prices[route]; prices == nil {
				wantUnknown[route]++
			} else if cost, err := price.Cost(&u, prices[0].Sheet); err != nil {
				t.Fatal(err)
			} else {
				want[route] += cost
			}
		}

		e := event.Usage{
			V: event.Version, RequestID: ident.Request.New(), Session: 1, Seq: 1, AccountID: ident.Account.New(), KeyID: ident.Key.New(),
			Model: "m", Status: event.Failed, Rule: event.RuleNone,
		}
		e.Route, e.Usage = call()
		count(e.Route, e.Usage)
		for range random.IntN(4) {
			a := event.Attempt{Class: "unavailable"}
			if a.Route, a.Usage = call(); a.Spent() {
				count(a.Route, a.Usage)
			}
			e.Attempts = append(e.Attempts, a)
		}

		item := settled(t, facts, e)
		if item.QuarantineReason != "" {
			t.Fatal(item.QuarantineReason)
		}
		add := func(route string, c settle.ProviderCost) {
			if c.Known {
				got[route] += c.Cost
			} else {
				unknown[route]++
			}
		}
		add(e.Route, item.Provider)
		var stored []struct {
			Cost    *money.Nano `json:"provider_cost"`
			Version int64       `json:"provider_price_version"`
		}
		if err := json.Unmarshal(item.AppendAttempts(nil), &stored); err != nil || len(stored) != len(e.Attempts) {
			t.Fatalf("stored are the attempts %s, %v", item.AppendAttempts(nil), err)
		}
		for i := range e.Attempts {
			if a := &e.Attempts[i]; a.Spent() {
				add(a.Route, item.Attempts[i])
				if c := item.Attempts[i]; c.Known != (stored[i].Cost != nil) || c.Known && (c.Cost != *stored[i].Cost || c.Version != stored[i].Version) {
					t.Fatalf("stored is %+v; computed was %+v", stored[i], c)
				}
			} else if stored[i].Cost != nil {
				t.Fatalf("a call that spent nothing has the cost %s", stored[i].Cost)
			}
		}
	}

	for i := range routes {
		route := "r" + strconv.Itoa(i)
		if got[route] != want[route] || unknown[route] != wantUnknown[route] {
			t.Errorf("%s: got %s and %d unknown; want %s and %d", route, got[route], unknown[route], want[route], wantUnknown[route])
		}
	}
	if wantUnknown["r4"] == 0 || want["r0"] == 0 {
		t.Fatal("the test has compared nothing")
	}
}

// A broken proxy reports attempts whose provider costs have no sum: the sum stops at the largest amount, since a counter must not fall.
func TestProviderCostsOfARouteHaveASum(t *testing.T) {
	t.Parallel()
	item := settle.Item{
		Event:    &event.Usage{Route: "r", Cost: event.MaxCost},
		Provider: settle.ProviderCost{Known: true, Cost: event.MaxCost},
	}
	for range 10 {
		item.Event.Attempts = append(item.Event.Attempts, event.Attempt{Route: "r", Usage: price.Usage{Input: 1}})
		item.Attempts = append(item.Attempts, item.Provider)
	}

	var r settle.Result
	for range 10_000 {
		r.Settle(&item)
	}

	got := r.Routes["r"]
	want := settle.RouteSums{Calls: 110_000, Charged: math.MaxInt64, ProviderCost: math.MaxInt64}
	if got != want {
		t.Errorf("the sums are %+v, want %+v", got, want)
	}
}
