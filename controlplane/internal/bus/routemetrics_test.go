package bus_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
)

// pricedFacts knows the prices of the model "model" and of the route "dear". Requests need no lease.
type pricedFacts struct{ *moneystore.Settlement }

func (pricedFacts) WithoutLease(context.Context, []settle.Holder) ([]settle.Holder, error) {
	return nil, nil
}

func (pricedFacts) PriceVersions(context.Context, []int64) (map[int64]settle.PriceVersion, error) {
	return map[int64]settle.PriceVersion{1: {Model: "model", Sheet: &price.Sheet{Rates: price.Rates{price.Input: 1000}}}}, nil
}

func (pricedFacts) ProviderPrices(context.Context, []string, time.Time, time.Time) (map[string][]settle.ProviderPrice, error) {
	return map[string][]settle.ProviderPrice{"dear": {{Version: 1, Sheet: &price.Sheet{Rates: price.Rates{price.Input: 2000}}}}}, nil
}

// A message that comes again counts once, and a route without a price gets no series, so that no proxy can make many.
func TestMetricsCompareChargesWithProviderCosts(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	marks := p.subscribeWatermarks()
	registry := prometheus.NewRegistry()
	store := moneystore.NewSettlement(p.db)
	p.connectReplica(new(streamCounter)).ConsumeUsage(settle.New(store, pricedFacts{store}), registry, nil)

	now := time.Now().UnixMilli()
	const tokens = 250_000 // they cost the customer 250 nano units
	raw, err := json.Marshal(event.Usage{
		V: event.Version, RequestID: ident.Request.New(), Session: int64(p.session), Seq: 1, AccountID: ident.Account.Format(p.account),
		KeyID: ident.Key.Format(p.key), Model: "model", Format: "chat", Route: "dear", Status: event.Completed, StartedMS: now, FinishedMS: now,
		Usage: price.Usage{Input: tokens}, Rule: event.RuleReported, PriceVersion: 1, Cost: 250,
		Attempts: []event.Attempt{
			{Route: "dear", Class: "no_stream", Usage: price.Usage{Input: tokens}},
			{Route: "unknown", Class: "no_stream", Usage: price.Usage{Input: tokens}},
			{Route: "dear"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		payload, err := json.Marshal(event.Batch{V: event.Version, BatchID: rand.Text(), Session: int64(p.session), Events: []json.RawMessage{raw}})
		if err != nil {
			t.Fatal(err)
		}
		p.publish(payload)
		p.awaitWatermark(marks, 1)
	}

	want := `
		# HELP mgw_route_calls_total Settled calls by route whose provider cost is known, with those that did not serve their request.
		# TYPE mgw_route_calls_total counter
		mgw_route_calls_total{route="dear"} 2
		# HELP mgw_route_charged_total What was charged for the calls of mgw_route_calls_total in currency units, rounded.
		# TYPE mgw_route_charged_total counter
		mgw_route_charged_total{route="dear"} 2.5e-07
		# HELP mgw_route_provider_cost_total What the calls of mgw_route_calls_total cost the operator in currency units, rounded.
		# TYPE mgw_route_provider_cost_total counter
		mgw_route_provider_cost_total{route="dear"} 1e-06
		# HELP mgw_provider_cost_unknown_total Settled calls whose provider cost is unknown: the route had no provider_price for them.
		# TYPE mgw_provider_cost_unknown_total counter
		mgw_provider_cost_unknown_total 1
	`
	err = testutil.GatherAndCompare(registry, strings.NewReader(want), "mgw_route_calls_total", "mgw_route_charged_total",
		"mgw_route_provider_cost_total", "mgw_provider_cost_unknown_total")
	if err != nil {
		t.Error(err)
	}
}
