package trafficapi

import (
	"context"
	"errors"
	"time"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/propagation"
	"modelgateway/controlplane/internal/recovery"
	"modelgateway/controlplane/internal/traffic"
	"modelgateway/shared/pulse"
)

// databaseWait bounds how long a page of the routes waits for the database.
const databaseWait = 2 * time.Second

// storedRoutes is what the database says of routes.
type storedRoutes struct {
	at      time.Time
	routes  []catalog.ModelRoute
	refused []fleet.RefusedCredential
}

// readRoutes reads the routes. While the database does not answer it returns those that were read last, and reports it.
func (h *Handlers) readRoutes(ctx context.Context) (stored *storedRoutes, kept bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, databaseWait, recovery.ErrNoAnswer)
	defer cancel()
	stored, err = h.storedRoutes(ctx)
	last := h.routes.Load()
	switch {
	case err == nil:
		h.routes.Store(stored)
		return stored, false, nil
	case last != nil && (errors.Is(err, recovery.ErrNoAnswer) || errors.Is(context.Cause(ctx), recovery.ErrNoAnswer)):
		return last, true, nil
	default:
		return nil, false, err
	}
}

func (h *Handlers) storedRoutes(ctx context.Context) (*storedRoutes, error) {
	at := time.Now().UTC()
	routes, err := h.Catalog.Routes(ctx)
	if err != nil {
		return nil, err
	}
	f, err := h.Fleet.Fleet(ctx)
	if err != nil {
		return nil, err
	}
	return &storedRoutes{at: at, routes: routes, refused: f.RefusedCredentials}, nil
}

func (h *Handlers) GetRoutesHealth(
	ctx context.Context,
	_ *gen.Call,
	_ gen.GetRoutesHealthRequestObject,
) (gen.GetRoutesHealthResponseObject, error) {
	stored, kept, err := h.readRoutes(ctx)
	if err != nil {
		return nil, err
	}

	health, now := h.Live.Health(), time.Now().UTC()
	since := now.Add(-time.Hour)
	if health.Since.After(since) {
		since = health.Since.UTC()
	}

	view := gen.GetRoutesHealth200JSONResponse{
		At:                 now,
		CountedSince:       since,
		Heard:              health.Heard,
		Silent:             health.Silent,
		RefusedCredentials: convert.All(stored.refused, RefusedCredential),
		UsageDoubts: convert.All(health.Doubts, func(d *traffic.UsageDoubt) gen.UsageDoubt {
			return gen.UsageDoubt{
				ProviderID: d.Provider,
				Reason:     d.Reason,
				Answers:    int(d.Answers),
				Of:         int(d.Of),
			}
		}),
		LeftOut: convert.All(health.LeftOut, func(m *traffic.LeftOut) gen.LeftOut {
			return gen.LeftOut{
				ProviderID: m.Provider,
				RouteID:    m.Route,
				Member:     m.Member,
				Calls:      m.Calls,
			}
		}),
		Data: convert.All(stored.routes, func(r *catalog.ModelRoute) gen.RouteHealth { return routeView(r, &health) }),
	}
	if kept {
		view.RoutesReadAt = &stored.at
	}

	return view, nil
}

// RefusedCredential returns the view of a credential that its provider refuses.
func RefusedCredential(r *fleet.RefusedCredential) gen.RefusedCredential {
	return gen.RefusedCredential{
		ProviderID:   r.Provider,
		Credential:   r.Credential,
		CredentialID: r.CredentialID,
		Reason:       gen.RefusedCredentialReason(r.Reason),
		Since:        r.Since,
		Proxies:      r.Proxies,
	}
}

func routeView(r *catalog.ModelRoute, health *traffic.Health) gen.RouteHealth {
	view := gen.RouteHealth{
		RouteID:       r.Route.ID,
		Model:         r.Model,
		ProviderID:    r.Route.Provider,
		UpstreamModel: r.Route.UpstreamModel,
		Enabled:       r.Route.Enabled,
		Breakers:      []gen.Breaker{},
	}

	known := health.Routes[r.Route.ID]
	if known == nil {
		known = &traffic.RouteHealth{}
	}

	view.Breakers = convert.All(known.Breakers, breakerView)
	if health.Heard > 0 {
		calls := func(c traffic.Calls) gen.Calls { return gen.Calls{Attempts: c.Attempts, Failures: c.Failures} }
		view.Calls = &gen.RouteCalls{
			LastMinute:   calls(known.Calls[0]),
			Last5Minutes: calls(known.Calls[1]),
			LastHour:     calls(known.Calls[2]),
		}
	}

	median, high := known.FirstToken.Quantile(pulse.FirstToken, 0.5), known.FirstToken.Quantile(pulse.FirstToken, 0.95)
	if median != nil {
		view.TtftMS = &gen.Quantiles{P50: milliseconds(*median), P95: milliseconds(*high)}
	}

	return view
}

func breakerView(b *traffic.ProxyBreaker) gen.Breaker {
	view := gen.Breaker{
		Proxy:      b.Proxy,
		State:      gen.BreakerState(b.State),
		ReportedAt: b.ReportedAt.UTC(),
		Silent:     b.Silent,
		Failures:   b.Failures,
		ErrorClass: convert.Optional(b.Class),
		Since:      convert.OptionalTime(b.Since),
		NextTry:    convert.OptionalTime(b.NextTry),
		AsideUntil: convert.OptionalTime(b.AsideUntil),
	}
	if b.Class != "" {
		view.FailedAt = convert.OptionalTime(b.FailedAt)
	}
	return view
}

func (h *Handlers) ResetRoute(ctx context.Context, call *gen.Call, r gen.ResetRouteRequestObject) (gen.ResetRouteResponseObject, error) {
	rev, err := h.Catalog.ResetRoute(ctx, r.RouteID)
	if err != nil {
		return nil, err
	}
	call.Changes = propagation.Changes{CatalogRev: rev}
	return gen.ResetRoute204Response{}, nil
}
