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

func (c *caller) Call(choice route.Choice, _ *route.Attempt, _ bool) error {
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
			if _, err := tries.Try(failover.Request{ID: "req", Account: "acc", Choices: picker.Order(routes(ids...), 0)}, c); err != nil {
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

// refusing fails the calls of some credentials, and notes all calls.
type refusing struct {
	caller
	failures map[string]*provider.Failure
}

func (c *refusing) Call(choice route.Choice, _ *route.Attempt, _ bool) error {
	c.calls = append(c.calls, choice.Credential.ID)
	if f := c.failures[choice.Credential.ID]; f != nil {
		return f
	}
	return nil
}

// A second credential of a route is called after a failure that is the first one's, and no third one before other routes.
func TestSecondCredentialIsCalledAfterAFailureOfTheFirst(t *testing.T) {
	t.Parallel()
	limited := &provider.Failure{Client: &apierr.Error{Status: http.StatusTooManyRequests}, Failover: true, Class: "rate_limit", RouteCooldown: time.Second}
	refused := &provider.Failure{Client: &apierr.Error{Status: http.StatusBadGateway}, Failover: true, Class: "unavailable", CredentialCooldown: time.Second, Refusal: "key_rejected"}
	broken := &provider.Failure{Client: &apierr.Error{Status: http.StatusBadGateway}, Failover: true, Class: "unavailable", RouteCooldown: time.Second}
	for _, tt := range []struct {
		name        string
		first, next *provider.Failure
		want        []int // credentials of the first route by rank, -1 for that of the second route
	}{
		{"served", nil, nil, []int{0}},
		{"limited", limited, nil, []int{0, 1}},
		{"refused", refused, nil, []int{0, 1}},
		{"broken", broken, nil, []int{0, -1}},
		{"limited twice", limited, limited, []int{0, 1, -1}},
		{"limited, then broken", limited, broken, []int{0, 1, -1}},
	} {
		picker := route.New(nil)
		tries := &failover.Tries{Picker: picker, Metrics: meter.New(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)}
		all := routes("first", "second")
		all[1].Priority = 1
		for _, id := range []string{"b", "c", "d"} {
			all[0].Provider.Credentials = append(all[0].Provider.Credentials, catalog.NewCredential(id, "x"))
		}
		choices := picker.Order(all, 42)
		c := &refusing{failures: map[string]*provider.Failure{choices[0].Credential.ID: tt.first, choices[1].Credential.ID: tt.next}}
		if failures, err := tries.Try(failover.Request{ID: "req", Account: "acc", Choices: choices}, c); err != nil || failures != nil {
			t.Errorf("%s: got %v, %v", tt.name, failures, err)
		}
		var want []string
		for _, rank := range tt.want {
			if rank < 0 {
				want = append(want, "of second")
			} else {
				want = append(want, choices[rank].Credential.ID)
			}
		}
		if !slices.Equal(c.calls, want) {
			t.Errorf("%s: calls %v; want %v", tt.name, c.calls, want)
		}
	}
}
