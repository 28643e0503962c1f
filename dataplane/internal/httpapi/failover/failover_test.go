package failover_test

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/httpapi/failover"
	"modelgateway/dataplane/internal/httpapi/meter"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/route"
	"modelgateway/shared/apierr"
)

// caller notes the routes that are called or skipped.
type caller struct {
	limited bool // whether the calls are refused because of a rate limit
	calls   []string
}

func (c *caller) Context() context.Context { return context.Background() }

func (c *caller) Ready() error { return nil }

func (c *caller) Call(choice route.Choice, _ *route.Attempt) error {
	c.calls = append(c.calls, choice.ID)
	if c.limited {
		return &provider.Failure{Client: &apierr.Error{Status: http.StatusTooManyRequests}, Class: "rate_limit", RouteCooldown: time.Millisecond}
	}
	return nil
}

func (c *caller) Skipped(choice route.Choice, reason string) {
	c.calls = append(c.calls, choice.ID+" "+reason)
}

func routes(ids ...string) []*catalog.Route {
	routes := make([]*catalog.Route, 0, len(ids))
	for _, id := range ids {
		r := &catalog.Route{Provider: &catalog.Provider{Credentials: []catalog.Credential{catalog.NewCredential("of "+id, "x")}}}
		r.ID = id
		routes = append(routes, r)
	}
	return routes
}

func TestRequestRatherWaitsForItsTurnThanToCallARouteWithACooldown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		picker := route.New(nil)
		tries := &failover.Tries{Picker: picker, Metrics: meter.New(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)}
		try := func(c *caller, ids ...string) {
			t.Helper()
			if _, err := tries.Try(failover.Request{ID: "req", Account: "acc", Choices: picker.Order(routes(ids...), "acc")}, c); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // afterwards one call in a second is made
			try(&caller{limited: true}, "limited")
		}
		time.Sleep(time.Second)
		try(&caller{}, "limited")
		picker.StartCooldown("broken", time.Hour)
		c := &caller{}
		try(c, "limited", "broken")
		if !slices.Equal(c.calls, []string{"limited"}) {
			t.Errorf("with a cooldown on the other route: calls %v; want one of the limited route", c.calls)
		}
	})
}
