package settle_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
)

// pricedFacts are facts with prices of providers, and nothing to object to.
type pricedFacts struct {
	prices map[string][]settle.ProviderPrice
	sheets map[int64]settle.PriceVersion
}

func (f *pricedFacts) PriceVersions(context.Context, []int64) (map[int64]settle.PriceVersion, error) {
	return f.sheets, nil
}

func (*pricedFacts) WithoutLease(context.Context, []settle.Holder) ([]settle.Holder, error) {
	return nil, nil
}

func (*pricedFacts) Owners(context.Context, []settle.Publisher) (map[settle.Publisher]bool, error) {
	return nil, nil
}

func (f *pricedFacts) ProviderPrices(context.Context, []string, time.Time, time.Time) (map[string][]settle.ProviderPrice, error) {
	return f.prices, nil
}

// keeping is a store that keeps the items.
type keeping struct {
	store
	items []settle.Item
}

func (k *keeping) Settle(_ context.Context, items []settle.Item) (settle.Result, error) {
	k.items = append(k.items, items...)
	return settle.Result{}, nil
}

// settled returns the item of an event after its settlement.
func settled(t *testing.T, facts settle.Facts, e event.Usage) settle.Item {
	t.Helper()
	raw, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(event.Batch{V: event.Version, Session: e.Session, Events: []json.RawMessage{raw}})
	if err != nil {
		t.Fatal(err)
	}
	k := keeping{}
	if _, err := settle.New(&k, facts).Settle(t.Context(), settle.DecodeBatch(payload)); err != nil {
		t.Fatal(err)
	}
	return k.items[0]
}

// The provider cost of a request is the price of its usage by the sheet of its route at its time, whatever was charged for it.
func TestProviderCostIsThePriceOfTheUsage(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	now := time.Now()
	sheet := func(version int64) *price.Sheet {
		return &price.Sheet{Version: version, Rates: price.Rates{
			price.Input: random.Int64N(1e10), price.Output: random.Int64N(1e11), price.CachedInput: random.Int64N(1e9),
		}, Tiers: []price.Tier{{AboveInput: 1000, Rates: price.Rates{price.Input: random.Int64N(1e10)}}}}
	}
	ofModel := sheet(9)
	facts := &pricedFacts{sheets: map[int64]settle.PriceVersion{9: {Model: "m", Sheet: ofModel}}}
	statuses := []event.Status{event.Completed, event.Failed, event.ClientGone, event.Revoked, event.Aborted}
	for range 2000 {
		versions := []settle.ProviderPrice{
			{Version: 3, Since: now.Add(-30 * time.Minute), Sheet: sheet(3)},
			{Version: 5, Since: now.Add(-20 * time.Minute)},
			{Version: 6, Since: now.Add(-10 * time.Minute), Sheet: sheet(6)},
		}
		facts.prices = map[string][]settle.ProviderPrice{"r": versions}
		age := time.Duration(random.IntN(40)) * time.Minute
		e := event.Usage{
			V: event.Version, RequestID: ident.Request.Format(ident.NewAt(now.Add(-age).Add(time.Second))), Session: 1, Seq: 1,
			AccountID: ident.Account.New(), KeyID: ident.Key.New(), Model: "m", Route: "r", Status: statuses[random.IntN(len(statuses))],
			Usage: price.Usage{Input: random.Int64N(3000), Output: random.Int64N(2000), CachedInput: random.Int64N(2000)},
			Rule:  event.RuleNone, PriceVersion: 9,
		}
		if e.Status == event.Completed {
			var err error
			if e.Cost, err = price.Cost(&e.Usage, ofModel); err != nil {
				t.Fatal(err)
			}
			e.Rule = event.RuleReported
		}

		var want settle.ProviderCost
		switch {
		case age <= 10*time.Minute:
			want = settle.ProviderCost{Known: true, Version: 6}
		case age > 20*time.Minute && age <= 30*time.Minute:
			want = settle.ProviderCost{Known: true, Version: 3}
		}
		for _, v := range versions {
			if want.Known && v.Version == want.Version {
				var err error
				if want.Cost, err = price.Cost(&e.Usage, v.Sheet); err != nil {
					t.Fatal(err)
				}
			}
		}

		item := settled(t, facts, e)
		if item.QuarantineReason != "" || item.Provider != want {
			t.Fatalf("%s after %s: %+v, quarantined because of %q; want %+v", e.Status, age, item.Provider, item.QuarantineReason, want)
		}
		if again := settled(t, facts, e); again.Provider != item.Provider {
			t.Fatalf("settled again: %+v; want %+v", again.Provider, item.Provider)
		}
	}
}

// A cost that is not known is not zero.
func TestProviderCostMayBeUnknown(t *testing.T) {
	t.Parallel()
	facts := &pricedFacts{prices: map[string][]settle.ProviderPrice{
		"priced": {{Version: 1, Sheet: &price.Sheet{Rates: price.Rates{price.Input: 1e9}}}},
		"tools":  {{Version: 2, Sheet: &price.Sheet{Rates: price.Rates{price.Input: 1e9}, FreeServerTool: true}}},
		"dear":   {{Version: 3, Sheet: &price.Sheet{Rates: price.Rates{price.Input: 1e15}}}},
	}, sheets: map[int64]settle.PriceVersion{0: {Model: "m", Sheet: &price.Sheet{ServiceTiers: []price.ServiceTier{{Name: "flex"}}}}}}
	for name, tt := range map[string]struct {
		route  string
		status event.Status
		usage  price.Usage
		want   settle.ProviderCost
	}{
		"priced":              {"priced", event.Failed, price.Usage{Input: 2}, settle.ProviderCost{Known: true, Version: 1, Cost: 2000}},
		"no usage":            {"priced", event.Failed, price.Usage{}, settle.ProviderCost{Known: true, Version: 1}},
		"no price":            {"other", event.Failed, price.Usage{Input: 2}, settle.ProviderCost{}},
		"usage without price": {"priced", event.Failed, price.Usage{Output: 1}, settle.ProviderCost{}},
		"tool without price":  {"priced", event.Failed, price.Usage{Input: 2, ServerToolRequests: 1}, settle.ProviderCost{}},
		"tool that is free":   {"tools", event.Failed, price.Usage{Input: 2, ServerToolRequests: 1}, settle.ProviderCost{Known: true, Version: 2, Cost: 2000}},
		"no service tier":     {"priced", event.Failed, price.Usage{Input: 2, ServiceTier: "flex"}, settle.ProviderCost{}},
		"too much":            {"dear", event.Failed, price.Usage{Input: 1 << 32}, settle.ProviderCost{}},
		"no route was called": {"", event.Failed, price.Usage{}, settle.ProviderCost{Known: true}},
		"aborted":             {"", event.Aborted, price.Usage{}, settle.ProviderCost{}},
	} {
		item := settled(t, facts, event.Usage{
			V: event.Version, RequestID: ident.Request.New(), Session: 1, Seq: 1, AccountID: ident.Account.New(), KeyID: ident.Key.New(),
			Model: "m", Route: tt.route, Status: tt.status, Usage: tt.usage, Rule: event.RuleNone,
		})
		if item.QuarantineReason != "" || item.Provider != tt.want {
			t.Errorf("%s: %+v, quarantined because of %q; want %+v", name, item.Provider, item.QuarantineReason, tt.want)
		}
	}
}
