package usage_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/event"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

// pastStore has the records of a preview.
type pastStore struct {
	usage.Store
	records []usage.Record
}

func (s pastStore) Exceeds(context.Context, usage.PreviewQuery, int) (bool, error) { return false, nil }

func (s pastStore) Export(context.Context, usage.Query) ([]usage.Record, error) {
	return s.records, nil
}

// An unknown cost is no cost of zero: what was charged for the call is in no margin.
func TestPreviewComparesWithWhatTheCallsCost(t *testing.T) {
	t.Parallel()
	spent := func(cost *money.Nano) usage.Attempt {
		return usage.Attempt{Attempt: event.Attempt{Route: "r", Usage: price.Usage{Input: 1}}, ProviderCost: cost}
	}
	nano := func(n money.Nano) *money.Nano { return &n }
	one, two := account.ID{1}, account.ID{2}
	records := []usage.Record{
		{AccountID: one, Usage: price.Usage{Input: 10}, Cost: 100, ProviderCost: nano(70)},
		{AccountID: one, Usage: price.Usage{Input: 10}, Cost: 100, ProviderCost: nano(70), Attempts: []usage.Attempt{spent(nano(50)), {}, spent(nil)}},
		{AccountID: one, Cost: 0, ProviderCost: nano(0), Attempts: []usage.Attempt{spent(nano(5))}}, // served nobody
		{AccountID: two, Usage: price.Usage{Input: 3}, Cost: 30},
		{AccountID: two, Usage: price.Usage{Output: 3}, Cost: 9, ProviderCost: nano(1000)}, // the sheet has no price for it
	}
	sheet := &price.Sheet{Rates: price.Rates{price.Input: 20_000_000}} // 20 nano units for a token
	got, err := usage.NewService(pastStore{records: records}).Preview(t.Context(), usage.PreviewQuery{Model: "m"}, sheet)
	if err != nil {
		t.Fatal(err)
	}

	first := usage.PreviewSum{Requests: 3, Charged: 200, Previewed: 400, ProviderCost: 195, UnknownCalls: 1}
	second := usage.PreviewSum{Requests: 1, Charged: 30, Previewed: 60, UnknownCalls: 1, UnknownCharged: 30, UnknownPreviewed: 60}
	all := usage.PreviewSum{
		Requests:         4,
		Charged:          230,
		Previewed:        460,
		ProviderCost:     195,
		UnknownCalls:     2,
		UnknownCharged:   30,
		UnknownPreviewed: 60,
	}
	want := &usage.Preview{
		PreviewSum:      all,
		Unpriced:        1,
		UnpricedCharged: 9,
		Accounts:        []usage.AccountPreview{{AccountID: one, PreviewSum: first}, {AccountID: two, PreviewSum: second}},
		AccountCount:    2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("preview (-want +got):\n%s", diff)
	}
	for name, v := range map[string]struct{ got, want money.Nano }{
		"margin":                       {got.Margin(), 5},
		"margin by the sheet":          {got.PreviewedMargin(), 205},
		"margin of unknown":            {second.Margin(), 0},
		"margin of unknown, the sheet": {second.PreviewedMargin(), 0},
	} {
		if v.got != v.want {
			t.Errorf("%s: got %d; want %d", name, v.got, v.want)
		}
	}
}
