// Package consoletest starts the console in front of the admin API, with a database of its own, for the tests of its pages.
package consoletest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"modelgateway/controlplane/internal/console"
	"modelgateway/controlplane/internal/httpapi"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/propagation"
	"modelgateway/controlplane/internal/traffic"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/platform/clientaddr"
	"modelgateway/shared/pulse"
	"modelgateway/shared/wire"
	"modelgateway/shared/wire/checkwire"
)

// proxies answer as two proxies would, and a third that does not.
type proxies struct{}

func (proxies) RunningBySession(context.Context, string) (map[wire.SessionID]map[wire.PoolID]int64, []string, error) {
	return nil, nil, nil
}

// Explain has the breaker of the first route open on one of the proxies, and the balance spent.
func (proxies) Explain(_ context.Context, q *wire.ExplainRequest) (map[wire.SessionID]wire.ExplainResponse, []string, error) {
	answers := map[wire.SessionID]wire.ExplainResponse{}
	for i, skipped := range []string{"", "breaker_open"} {
		answers[wire.SessionID(i)] = wire.ExplainResponse{
			V:               1,
			Session:         wire.SessionID(i),
			Name:            "proxy-" + string(rune('1'+i)),
			CatalogRevision: 7,
			PriceVersion:    12,
			PriceMultiplier: 1_500_000,
			InputTokens:     q.InputTokens,
			Reservation:     1_300_000,
			Needs: []wire.Need{
				{Pool: q.Record.BalancePool, Kind: wire.Balance, Amount: 1_300_000},
				{Pool: q.Record.SlotsPool, Kind: wire.Slots, Amount: 1},
			},
			Refusals: []wire.ExplainRefusal{{
				Step:    wire.ExplainAdmission,
				Status:  http.StatusPaymentRequired,
				Code:    "insufficient_quota",
				Message: "The balance is exhausted.",
				Reason:  wire.BalanceInsufficient,
			}},
			Routes: []wire.ExplainRoute{
				{
					Route:         "rte_a",
					Provider:      "backup",
					UpstreamModel: "u",
					URL:           "https://backup.example/v4/chat",
					Priority:      1,
					Weight:        1,
					Credential:    "crd_a",
				},
				{Route: "rte_b", Provider: "sim", UpstreamModel: "u", Weight: 1, Skipped: skipped},
			},
		}
	}
	return answers, []string{"proxy-3"}, nil
}

// CheckProvider has one call that works, and one that finds nothing at its address. No proxy is live for other providers.
func (proxies) CheckProvider(_ context.Context, provider string) (proxy string, checked checkwire.Response, answered bool, err error) {
	if provider != "acme" {
		return "", checked, false, nil
	}
	calls := []checkwire.Call{
		{
			Format:        "chat",
			Route:         "small-main",
			UpstreamModel: "small-2026",
			URL:           "https://api.example.com/v1/chat/completions",
			Result:        checkwire.Works,
			Status:        http.StatusOK,
			MS:            12,
		},
		{
			Format:        "messages",
			Route:         "small-main",
			UpstreamModel: "small-2026",
			URL:           "https://api.example.com/v1/messages",
			Result:        checkwire.NotFound,
			Status:        http.StatusNotFound,
			Detail:        "<b>no such path</b>",
			Hint:          "Correct the path.",
			MS:            3,
		},
	}
	return "proxy-1", checkwire.Response{
		V:               wire.Version,
		Name:            "proxy-1",
		CatalogRevision: 7,
		Calls:           calls,
	}, true, nil
}

// Tail has one refused request for everyone who watches.
func (proxies) Tail(_ pulse.Tail, handle func(string, *pulse.Lines)) (ask func(pulse.Tail) error, stop func(), err error) {
	return func(pulse.Tail) error {
		line := pulse.Line{RequestID: "req_refused", Status: http.StatusPaymentRequired, Code: "insufficient_quota"}
		handle("proxy-1", &pulse.Lines{Lines: []pulse.Line{line}})
		return nil
	}, func() {}, nil
}

// World is the console in front of the real admin API.
type World struct {
	*servertest.Server

	Live *traffic.Live
}

// echo answers requests to the gateway's own API with their path, credential and body.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // the test compares it
	w.Header().Set("X-Request-Id", "req_tried")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"path":       r.URL.Path,
		"authorized": strings.HasPrefix(r.Header.Get("Authorization"), "Bearer mgw_"),
		"sent":       json.RawMessage(body),
	})
}

// Start starts a console with an empty database.
func Start(t testing.TB) *World {
	t.Helper()
	return StartAs(t, "test")
}

// StartAs is Start for an installation with a name.
func StartAs(t testing.TB, environment string) *World {
	t.Helper()
	w := &World{Live: traffic.NewLive(nil)}
	w.Server = servertest.StartWith(t, nil, func(cfg *httpapi.Config) {
		cfg.Checker, cfg.Explainer.Proxies = proxies{}, proxies{}
		cfg.Traffic, cfg.Tails, cfg.Stopping = w.Live, traffic.NewTails(proxies{}, servertest.Discard, nil), nil
	})
	w.Announcer.Answer = propagation.Confirmation{
		Effective: true,
		Confirmed: []session.ActiveSession{{Session: 1, Proxy: "proxy-1"}, {Session: 2, Proxy: "proxy-2"}},
	}
	gateway := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(gateway.Close)
	pages, err := console.New(console.Config{
		APIURL:   gateway.URL,
		Sessions: w.Sessions,
		API:      w.Handler,
		// A reverse proxy is in front of the console.
		Address:       clientaddr.Behind([]netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}),
		Log:           servertest.Discard,
		Environment:   environment,
		Build:         "v1",
		SessionLength: servertest.SessionLength,
	})
	servertest.Check(t, err)
	mux := http.NewServeMux()
	mux.Handle("/", w.Handler)
	mux.Handle("/console/", pages)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	w.URL = server.URL
	return w
}
