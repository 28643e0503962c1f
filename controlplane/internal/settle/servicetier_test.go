package settle_test

import (
	"testing"

	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
)

// A request that costs nothing names a service tier of its price version, too: each is a row of the roll-ups.
func TestFreeRequestsNameAServiceTierOfTheirPrice(t *testing.T) {
	t.Parallel()
	sheet := &price.Sheet{
		Rates:        price.Rates{price.Input: 1, price.Output: 2},
		ServiceTiers: []price.ServiceTier{{Name: "flex", Rates: price.Rates{price.Input: 1, price.Output: 1}}},
	}
	facts := &pricedFacts{sheets: map[int64]settle.PriceVersion{3: {Model: "m", Sheet: sheet}}}
	for _, tt := range []struct {
		version int64
		tier    string
		refused bool
	}{
		{3, "", false},
		{3, price.DefaultTier, false},
		{3, "flex", false},
		{3, "tier_1", true},
		{4, "flex", true},
		{4, "", true},
	} {
		item := settled(t, facts, event.Usage{
			V: event.Version, RequestID: ident.Request.New(), Session: 1, Seq: 1, AccountID: ident.Account.New(), KeyID: ident.Key.New(),
			Model: "m", Status: event.Failed, Rule: event.RuleNone, PriceVersion: tt.version, Usage: price.Usage{ServiceTier: tt.tier},
		})
		if refused := item.QuarantineReason != ""; refused != tt.refused {
			t.Errorf("price version %d, service tier %q: got %q", tt.version, tt.tier, item.QuarantineReason)
		}
	}
}

// A request that costs nothing is of the model of its price version, too: otherwise a faulty proxy could make a row of the roll-ups for each
// name that it invents.
func TestFreeRequestsNameTheModelOfTheirPrice(t *testing.T) {
	t.Parallel()
	facts := &pricedFacts{sheets: map[int64]settle.PriceVersion{3: {Model: "m", Sheet: &price.Sheet{}}}}
	for _, tt := range []struct {
		model   string
		version int64
		want    string
	}{
		{"m", 3, ""},
		{"invented", 3, "price version 3 is of another model"},
		{"m", 4, "there is no price version 4"},
		{"m", 0, "there is no price version 0"},
	} {
		item := settled(t, facts, event.Usage{
			V: event.Version, RequestID: ident.Request.New(), Session: 1, Seq: 1, AccountID: ident.Account.New(), KeyID: ident.Key.New(),
			Model: tt.model, Status: event.Failed, Rule: event.RuleNone, PriceVersion: tt.version,
		})
		if item.QuarantineReason != tt.want {
			t.Errorf("model %s of price version %d: got %q; want %q", tt.model, tt.version, item.QuarantineReason, tt.want)
		}
	}
}
