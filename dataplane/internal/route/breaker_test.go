package route

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	contract "modelgateway/shared/catalog"
)

// failing is a breaker after so many failures in a row.
func failing(n int, now time.Time) (b breaker) {
	for range n {
		b = b.failed(now, time.Second, false)
	}
	return b
}

func TestBreaker(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	open := failing(failuresToOpen, now)
	half := open.until
	probing := open
	probing.probing = true
	reopened := probing.failed(half, 0, true)
	tests := []struct {
		name string
		b    breaker
		now  time.Time
		want State
		lets bool
	}{
		{"new", breaker{}, now, Closed, true},
		{"one failure less than it takes", failing(failuresToOpen-1, now), now, Closed, true},
		{"failures that a success has interrupted", failing(failuresToOpen-1, now).succeeded(now, false).failed(now, 0, false), now, Closed, true},
		{"failures in a row", open, now, Open, false},
		{"until its time is over", open, now.Add(firstCooldown - 1), Open, false},
		{"when its time is over", open, now.Add(firstCooldown), HalfOpen, true},
		{"while a probe is on its way", probing, half, HalfOpen, false},
		{"a probe that says nothing", probing.left(true), half, HalfOpen, true},
		{"another request that says nothing", probing.left(false), half, HalfOpen, false},
		{"a probe that was served", probing.succeeded(half, true), half, Closed, true},
		{"an older request that was served", probing.succeeded(half, false), half, HalfOpen, false},
		{"an older request that was served while open", open.succeeded(now, false), now, Open, false},
		{"a probe that failed", reopened, half.Add(2*firstCooldown - 1), Open, false},
		{"a probe that failed, in the end", reopened, half.Add(2 * firstCooldown), HalfOpen, true},
		{"an older request that failed", probing.failed(half, time.Minute, false), half, HalfOpen, false},
		{"a pause that the provider names", failing(failuresToOpen-1, now).failed(now, 30*time.Second, false), now.Add(30*time.Second - 1), Open, false},
		{"a pause that it names when open", open.failed(now, 30*time.Second, false), now.Add(30*time.Second - 1), Open, false},
		{"a pause beyond the bound", failing(failuresToOpen-1, now).failed(now, time.Hour, false), now.Add(maxCooldown), HalfOpen, true},
	}
	for _, tt := range tests {
		if got := tt.b.state(tt.now); got != tt.want || tt.b.lets(tt.now) != tt.lets {
			t.Errorf("%s: got state %d, lets %v; want %d, %v", tt.name, got, tt.b.lets(tt.now), tt.want, tt.lets)
		}
	}
	long := breaker{}
	for range 100 { // it never rests for longer than the bound, nor wraps around
		long = long.failed(long.until.Add(maxCooldown), 0, true)
	}
	if again := long.failed(long.until, 0, true); again.until.Sub(long.until) != maxCooldown {
		t.Errorf("the hundredth cooldown is %s", again.until.Sub(long.until))
	}
}

func (p *Picker) fail(t *testing.T, id string, n int) {
	t.Helper()
	for range n {
		a, ok := p.Begin(id)
		if !ok {
			t.Fatalf("%s lets nothing through", id)
		}
		a.Failed(time.Second)
		a.Succeeded() // too late to count
	}
}

// An open route is no candidate; half-open, it takes one request at a time.
func TestOpenRoutes(t *testing.T) {
	t.Parallel()
	p, c := setup()
	routes := model([]int{0, 1}, []int{1, 1}).Routes[contract.Chat]
	order := func() string { return strings.Join(ids(p.Order(routes, "acc")), " ") }
	p.fail(t, "r0", failuresToOpen)
	if got := order(); got != "r1" {
		t.Errorf("with r0 open: %q", got)
	}
	if _, ok := p.Begin("r0"); ok {
		t.Error("an open route is begun")
	}
	p.fail(t, "r1", failuresToOpen)
	if got := order(); got != "" {
		t.Errorf("with both open: %q", got)
	}
	if got := p.Wait(routes); got != firstCooldown {
		t.Errorf("wait %s", got)
	}
	c.now = c.now.Add(firstCooldown)
	probe, ok := p.Begin("r0")
	if _, second := p.Begin("r0"); !ok || second {
		t.Errorf("half-open: first %v, second %v", ok, second)
	}
	if got := order(); got != "r1" {
		t.Errorf("with a probe on r0: %q", got)
	}
	probe.End()
	if got := order(); got != "r0 r1" {
		t.Errorf("after a probe that said nothing: %q", got)
	}
	if probe, ok = p.Begin("r0"); !ok {
		t.Fatal("no second probe")
	}
	probe.Succeeded()
	for range 3 {
		if _, ok := p.Begin("r0"); !ok {
			t.Error("closed again, it lets nothing through")
		}
	}
	const want = `
# HELP mgw_breaker_opened_total How often the breaker of a route has opened.
# TYPE mgw_breaker_opened_total counter
mgw_breaker_opened_total{route="r0"} 1
mgw_breaker_opened_total{route="r1"} 1
# HELP mgw_breaker_state Breaker of a route that has failed: 0 closed, 1 half-open, 2 open.
# TYPE mgw_breaker_state gauge
mgw_breaker_state{route="r0"} 0
mgw_breaker_state{route="r1"} 1
`
	if err := testutil.CollectAndCompare(p, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if got := p.Wait(routes[:1]); got != 0 {
		t.Errorf("wait %s for a closed route", got)
	}
}

// Clients are told when the maintenance of providers ends, if that is known.
func TestWaitForMaintenance(t *testing.T) {
	t.Parallel()
	p, c := setup()
	routes := model([]int{0, 1}, []int{1, 1}).Routes[contract.Chat]
	ends := func(route int, after time.Duration) {
		m := &contract.Maintenance{}
		if after > 0 {
			m.UntilUnix = c.now.Add(after).Unix()
		}
		routes[route].Provider.Maintenance = m
	}
	wait := func(want time.Duration) {
		t.Helper()
		if got := p.Wait(routes); got.Round(time.Second) != want {
			t.Errorf("wait %s; want %s", got, want)
		}
	}
	ends(0, 0)
	ends(1, 0)
	wait(0)
	ends(1, 40*time.Second)
	wait(40 * time.Second)
	ends(0, 30*time.Second)
	wait(30 * time.Second)
	ends(0, 100*time.Hour)
	ends(1, 200*time.Hour)
	wait(longestWait)
	ends(0, time.Second) // its breaker is open for longer
	p.fail(t, "r0", failuresToOpen)
	wait(firstCooldown)
}
