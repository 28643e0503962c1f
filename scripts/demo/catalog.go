package demo

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"modelgateway/controlplane/adminclient"
)

// The providers and models that the demo adds to those of the stack. The simulator answers for all of them; the names of
// its models are matched by rules (load.go).
const (
	flakyProvider, refusedProvider      = "flaky", "legacy"
	largeModel, fastModel, previewModel = "demo-large", "demo-fast", "demo-preview"
	flakyUpstream, slowUpstream         = "flaky-large", "sim-large"
	refusedUpstream                     = "legacy-fast@status=401,code=invalid_api_key"
	maintenanceMessage                  = "The preview is updated. It will be back tomorrow."
	scheduledAfter                      = 7 * 24 * time.Hour
	maintenanceLength                   = 24 * time.Hour
)

func (d *Demo) fillCatalog(ctx context.Context) error {
	for id, name := range map[string]string{flakyProvider: "Flaky provider", refusedProvider: "Provider with a revoked credential"} {
		version := "2023-06-01"
		_, err := d.api.PutProvider(ctx, id, nil, adminclient.CatalogProvider{
			ID:               id,
			Name:             &name,
			BaseURL:          d.cfg.State.ProviderSimURL,
			AnthropicVersion: &version,
			Credentials:      []adminclient.CatalogCredential{{Name: "main", Secret: new("sk-demo-" + id)}},
		})
		if err != nil {
			return err
		}
	}

	for _, m := range models() {
		if _, err := d.api.GetModel(ctx, m.ID); err == nil {
			continue // its price may have been changed since
		} else if !isStatus(err, http.StatusNotFound) {
			return err
		}
		if _, err := d.api.PutModel(ctx, m.ID, &adminclient.PutModelParams{Wait: new(adminclient.WaitForApplied)}, m); err != nil {
			return err
		}
	}

	prices, err := d.api.ListPrices(ctx, largeModel, nil)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(prices.Value.Data, func(p adminclient.PriceVersion) bool { return p.Version == nil }) {
		return nil
	}

	_, err = d.api.CreatePrice(ctx, largeModel, nil, adminclient.PriceCreate{
		EffectiveFrom: new(time.Now().Add(scheduledAfter).UTC().Truncate(time.Hour)), Price: textPrice("2.50", "0.60", "10.00"),
	})
	return err
}

func textPrice(input, cached, output string) adminclient.CatalogPrice {
	return adminclient.CatalogPrice{Input: &input, CachedInput: &cached, Output: &output}
}

// models returns the models that the demo adds: one with a failing first route, one with a refused credential before
// another, and one that is granted and closed. What their providers charge counts from now on: the past usage has no provider cost.
func models() []adminclient.CatalogModel {
	all := []adminclient.CatalogRouteFormats{"chat", "responses", "messages"}
	chat := all[:1]

	text := func(id, name string, price adminclient.CatalogPrice, routes ...adminclient.CatalogRoute) adminclient.CatalogModel {
		return adminclient.CatalogModel{
			ID:                  id,
			Type:                "text",
			DisplayName:         &name,
			OwnedBy:             new("simulator"),
			ContextWindow:       new(int64(200_000)),
			MaxOutputTokens:     new(int64(16384)),
			ReserveOutputTokens: new(int64(4096)),
			Price:               price,
			Routes:              routes,
		}
	}

	route := func(
		provider, upstream string, priority int, formats []adminclient.CatalogRouteFormats, price adminclient.CatalogPrice,
	) adminclient.CatalogRoute {
		return adminclient.CatalogRoute{
			Provider:      provider,
			UpstreamModel: upstream,
			Priority:      &priority,
			Formats:       formats,
			ProviderPrice: &price,
		}
	}

	large := textPrice("3.00", "0.75", "12.00")
	large.CacheWrite5M, large.CacheWrite1H = new("3.75"), new("6.00")
	// The spare route of the large model costs more than the price of the model bears.
	cheap, dear := textPrice("1.80", "0.45", "7.20"), textPrice("3.60", "0.90", "14.40")
	cheap.CacheWrite5M, cheap.CacheWrite1H = new("2.25"), new("3.60")
	dear.CacheWrite5M, dear.CacheWrite1H = new("4.50"), new("7.20")
	fast := textPrice("0.12", "0.03", "0.48")
	simulated := route("sim", "sim-preview@out=200", 0, chat, textPrice("3.50", "0.90", "14.00"))
	preview := text(previewModel, "Demo Preview", textPrice("5.00", "1.25", "20.00"), simulated)
	preview.Public = new(false)

	return []adminclient.CatalogModel{
		text(largeModel, "Demo Large", large,
			route(flakyProvider, flakyUpstream+"@delay=180ms,chunk=12ms,out=120,reasoning=40", 0, all, cheap),
			route("sim", slowUpstream+"@delay=260ms,chunk=15ms,out=120,reasoning=40", 1, all, dear)),
		text(fastModel, "Demo Fast", textPrice("0.20", "0.05", "0.80"),
			route(refusedProvider, refusedUpstream, 0, chat, fast), route("sim", "sim-fast@delay=40ms,chunk=4ms,out=60", 1, chat, fast)),
		preview,
	}
}

// isStatus reports whether an error is an answer of the admin API with a status.
func isStatus(err error, status int) bool {
	e, ok := errors.AsType[*adminclient.Error](err)
	return ok && e.StatusCode == status
}
