package route

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"modelgateway/shared/catalogkv"
)

// failing returns a breaker after n failures in a row.
func failing(n int, now time.Time) (b breaker) {
	for range n {
		b = b.failed(now, time.Second, false)
	}
	return b
}

func TestBreakerStates(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	open := failing(failuresToOpen, now)
	half := open.until
	probing := open
	probing.probing = true
	reopened := probing.failed(half, 0, true)
	tests := []struct {
		name   string
		b      breaker
		now    time.Time
		want   breakerState
		allows bool
	}{
		{"new", breaker{}, now, stateClosed, true},
		{"one failure less than opens it", failing(failuresToOpen-1, now), now, stateClosed, true},
		{"failures interrupted by a success", failing(failuresToOpen-1, now).succeeded(now, false).failed(now, 0, false), now, stateClosed, true},
		{"failures in a row", open, now, stateOpen, false},
		{"before the end of the cooldown", open, now.Add(firstCooldown - 1), stateOpen, false},
		{"at the end of the cooldown", open, now.Add(firstCooldown), stateHalfOpen, true},
		{"while a probe is running", probing, half, stateHalfOpen, false},
		{"abandoned probe", probing.abandoned(true), half, stateHalfOpen, true},
		{"another abandoned request", probing.abandoned(false), half, stateHalfOpen, false},
		{"successful probe", probing.succeeded(half, true), half, stateClosed, true},
		{"success of an older request", probing.succeeded(half, false), half, stateHalfOpen, false},
		{"success of an older request while open", open.succeeded(now, false), now, stateOpen, false},
		{"failed probe", reopened, half.Add(2*firstCooldown - 1), stateOpen, false},
		{"failed probe, at the end of the cooldown", reopened, half.Add(2 * firstCooldown), stateHalfOpen, true},
		{"failure of an older request", probing.failed(half, time.Minute, false), half, stateHalfOpen, false},
		{"pause requested by the provider", failing(failuresToOpen-1, now).failed(now, 30*time.Second, false), now.Add(30*time.Second - 1), stateOpen, false},
		{"pause requested while open", open.failed(now, 30*time.Second, false), now.Add(30*time.Second - 1), stateOpen, false},
		{"requested pause above the bound", failing(failuresToOpen-1, now).failed(now, time.Hour, false), now.Add(maxCooldown), stateHalfOpen, true},
	}
	for _, tt := range tests {
		if got := tt.b.state(tt.now); got != tt.want || tt.b.allows(tt.now) != tt.allows {
			t.Errorf("%s: got state %d, allows %v; want %d, %v", tt.name, got, tt.b.allows(tt.now), tt.want, tt.allows)
		}
	}
	long := breaker{}
	for range 100 { // the cooldown neither exceeds the bound nor overflows
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
			t.Fatalf("%s allows no request", id)
		}
		a.Failed(time.Second, "acc", false)
		a.Succeeded() // ignored: the attempt has ended
	}
}

func TestOpenRouteIsNotOfferedAndHalfOpenRouteGetsOneProbe(t *testing.T) {
	t.Parallel()
	p, c := setup()
	routes := model([]int{0, 1}, []int{1, 1}).Routes[catalogkv.Chat]
	order := func() string { return strings.Join(ids(p.Order(routes, 0)), " ") }
	p.fail(t, "r0", failuresToOpen)
	if got := order(); got != "r1" {
		t.Errorf("with r0 open: %q", got)
	}
	if _, ok := p.Begin("r0"); ok {
		t.Error("an open route allows a request")
	}
	p.fail(t, "r1", failuresToOpen)
	if got := order(); got != "" {
		t.Errorf("with both open: %q", got)
	}
	if got := p.Failing(); !slices.Equal(got, []string{"r0", "r1"}) {
		t.Errorf("failing: %q; want both", got)
	}
	if got := p.RetryAfter(routes); got != firstCooldown {
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
		t.Errorf("after an abandoned probe: %q", got)
	}
	if probe, ok = p.Begin("r0"); !ok {
		t.Fatal("no second probe")
	}
	if got := p.Failing(); !slices.Equal(got, []string{"r0", "r1"}) {
		t.Errorf("failing, before a call has succeeded: %q; want both", got)
	}
	probe.Succeeded()
	if got := p.Failing(); !slices.Equal(got, []string{"r1"}) {
		t.Errorf("failing: %q; want the route that has not succeeded", got)
	}
	for range 3 {
		if _, ok := p.Begin("r0"); !ok {
			t.Error("the breaker is closed again but allows no request")
		}
	}
	const want = `
# HELP mgw_route_breaker_openings_total Number of times that the circuit breaker of a route has opened.
# TYPE mgw_route_breaker_openings_total counter
mgw_route_breaker_openings_total{route="r0"} 1
mgw_route_breaker_openings_total{route="r1"} 1
# HELP mgw_route_breaker_state State of the circuit breaker of a route that has failed: 0 closed, 1 half-open, 2 open.
# TYPE mgw_route_breaker_state gauge
mgw_route_breaker_state{route="r0"} 0
mgw_route_breaker_state{route="r1"} 1
`
	if err := testutil.CollectAndCompare(p, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if got := p.RetryAfter(routes[:1]); got != 0 {
		t.Errorf("wait %s for a closed route", got)
	}
}

func TestRetryAfterIsTheEndOfTheFirstMaintenance(t *testing.T) {
	t.Parallel()
	p, c := setup()
	routes := model([]int{0, 1}, []int{1, 1}).Routes[catalogkv.Chat]
	ends := func(route int, after time.Duration) {
		m := &catalogkv.Maintenance{}
		if after > 0 {
			m.UntilUnix = c.now.Add(after).Unix()
		}
		routes[route].Provider.Maintenance = m
	}
	wait := func(want time.Duration) {
		t.Helper()
		if got := p.RetryAfter(routes); got.Round(time.Second) != want {
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
	wait(maxRetryAfter)
	ends(0, time.Second) // its breaker stays open for longer
	p.fail(t, "r0", failuresToOpen)
	wait(firstCooldown)
}

func TestDoubtfulFailuresOpenTheBreakerOnlyTogetherWithThoseOfOtherAccounts(t *testing.T) {
	t.Parallel()
	p, _ := setup()
	fail := func(account string) bool {
		a, ok := p.Begin("r")
		if ok {
			a.Failed(time.Second, account, true)
		}
		return ok
	}
	for range 5 * failuresToOpen {
		if !fail("one") {
			t.Fatal("the failures of one account have opened the breaker")
		}
	}
	for _, account := range []string{"two", "two", "three", "three", "four", "four", "five", "five"} {
		if !fail(account) {
			t.Fatalf("the breaker is open before the failures of account %s", account)
		}
	}
	if fail("six") {
		t.Error("ten failures of five accounts have not opened the breaker")
	}
}

func TestDoubtfulFailureIsConfirmedByAnotherAccountOnly(t *testing.T) {
	t.Parallel()
	p, c := setup()
	for range 2 {
		if p.Confirm("x", "one") {
			t.Error("an account has confirmed its own failure")
		}
	}
	if !p.Confirm("x", "two") {
		t.Error("a second account has not confirmed the failure")
	}
	p.RecordSuccess("x")
	if p.Confirm("x", "two") {
		t.Error("a failure before a success is confirmed")
	}
	c.now = c.now.Add(doubtLasts + 1)
	if p.Confirm("x", "three") {
		t.Error("an old failure is confirmed")
	}
}
