package systempages

import (
	"strconv"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

// proxyView is a proxy with how far it is behind.
type proxyView struct {
	adminclient.Proxy
	// Behind and CatalogBehind count the revisions that it has not applied.
	Behind, CatalogBehind int64
	// Left is the share of its session's time that is left, unless it is renewed; empty if it has ended.
	Left []view.Part
	// Spool has the used and the free places; empty if the proxy has not reported its capacity.
	Spool []view.Part
	// SpoolShare is the percentage of the places that are used; -1 if unknown.
	SpoolShare int
	// Refused are the credentials that the proxy does not use because their providers refuse them.
	Refused []adminclient.RefusedCredential
}

func proxyOf(p adminclient.Proxy, fleet *adminclient.Fleet, now time.Time) proxyView {
	v := proxyView{
		Proxy:         p,
		Behind:        max(fleet.Revision-p.AppliedRevision, 0),
		CatalogBehind: max(fleet.CatalogRevision-p.CatalogRevision, 0),
		Left:          left(p, now),
		SpoolShare:    -1,
	}
	if p.SpoolCapacity > 0 {
		used, rest := strconv.FormatInt(p.SpoolUsed, 10), strconv.FormatInt(max(p.SpoolCapacity-p.SpoolUsed, 0), 10)
		v.Spool = view.Bar(view.Part{Kind: "held", Name: "used", Text: used}, view.Part{Kind: "idle", Name: "free", Text: rest})
		v.SpoolShare = view.Share(used, strconv.FormatInt(p.SpoolCapacity, 10))
	}

	for _, c := range fleet.RefusedCredentials {
		for _, name := range c.Proxies {
			if name == p.Name {
				v.Refused = append(v.Refused, c)
			}
		}
	}

	return v
}

// left returns the bar of the time that a session has until it ends. Little is left if renewals are missing.
func left(p adminclient.Proxy, now time.Time) []view.Part {
	whole, rest := p.ValidUntil.Sub(p.RenewedAt), p.ValidUntil.Sub(now)
	if p.State != adminclient.ProxyStateActive || rest <= 0 || whole < rest {
		return nil
	}
	kind := "left"
	if rest < whole/3 {
		kind = "short"
	}
	return view.Bar(
		view.Part{Kind: kind, Text: strconv.FormatInt(rest.Milliseconds(), 10)},
		view.Part{Kind: "rest", Text: strconv.FormatInt((whole - rest).Milliseconds(), 10)},
	)
}

// fleetView is the data of the page Fleet.
type fleetView struct {
	*adminclient.Fleet
	Proxies []proxyView
	// Active, Draining, Running and Unsettled are sums.
	Active, Draining   int
	Running, Unsettled int64
}

// listProxies shows every proxy with its state.
func listProxies(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.ListProxies(r.Context())
	if err != nil {
		return nil, err
	}

	data := &fleetView{Fleet: answer.Value}
	for _, p := range answer.Value.Data {
		data.Proxies = append(data.Proxies, proxyOf(p, answer.Value, time.Now()))
		data.Running += p.Running
		data.Unsettled += p.Unsettled
		switch {
		case p.State != adminclient.ProxyStateActive:
		case p.Draining:
			data.Draining++
		default:
			data.Active++
		}
	}

	return &kit.Page{
		Template: "proxies",
		Title:    "Fleet",
		Command:  "gwctl proxies list",
		Data:     data,
	}, nil
}

// showProxy shows one session of a proxy.
func showProxy(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.ListProxies(r.Context())
	if err != nil {
		return nil, err
	}

	for _, p := range answer.Value.Data {
		if strconv.FormatInt(p.Session, 10) == r.PathValue("session") {
			data := proxyOf(p, answer.Value, time.Now())
			return &kit.Page{
				Template: "proxy",
				Title:    p.Name,
				Crumbs:   []kit.Link{{Text: "Fleet", URL: "/console/proxies"}},
				Command:  "gwctl proxies list -o yaml",
				Data:     &data,
			}, nil
		}
	}

	return nil, kit.NotFound()
}
