package chaos

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/money"
)

// The outage allowance of the test, in percent, and its number of proxies.
const (
	allowancePercent = 50
	allowanceProxies = 2
)

// An account that has few slots and little money, so that each request needs a control plane, is served under the outage
// allowance while none runs, until it is used up at each proxy. Then it gets 503, and never a refusal. The death of a proxy
// gives nothing back. Afterwards everything is settled, marked and counted as overrun.
func TestAccountInCentralModeIsServedUnderTheOutageAllowance(t *testing.T) {
	r := rig.Start(t, rig.Options{DataPlanes: allowanceProxies, ControlPlanes: 2, ControlSettings: []string{
		"MGW_SESSION_TTL=10m", // no session expires during the outage
		fmt.Sprintf("MGW_LEASE_OUTAGE_ALLOWANCE_PERCENT=%d", allowancePercent), "MGW_LEASE_OUTAGE_ALLOWANCE_MAX=5", "MGW_LEASE_OUTAGE_ALLOWANCE_SLOTS_PERCENT=50",
	}})
	model := r.Model(t, rig.Model{Formats: []string{"chat"}, MaxOutputTokens: 100})
	ask := func(proxy int, key string) rig.Request {
		return rig.Request{Proxy: proxy, Path: "/v1/chat/completions", Key: key, Body: question(model)}
	}
	reservation := parse(t, r.AwaitUsage(t, r.Do(t, ask(0, r.Account(t, rig.AccountSpec{}).Key)).RequestID()).Reservation)
	// With less than 16 reservations for two proxies, the balance stays in central mode; four slots do anyway.
	account := r.Account(t, rig.AccountSpec{Credit: (14 * reservation).String(), Slots: 4})
	for proxy := range allowanceProxies { // each proxy learns the allowance
		if answer := r.Do(t, ask(proxy, account.Key)); answer.Status != http.StatusOK {
			t.Fatalf("proxy %d before the outage: %s", proxy, answer)
		}
		r.AwaitSettled(t)
		account.AwaitIdle(t)
	}
	for _, part := range r.ControlPlanes() {
		r.Halt(t, part)
	}
	served := map[string]bool{}
	for proxy := range allowanceProxies {
		awaitServed(t, r, ask(proxy, account.Key), served)
		useUp(t, r, proxy, ask(proxy, account.Key), served, reservation)
	}
	killed := rig.DataPlane(0)
	before := value(t, r, killed, allowanceUsed)
	restarted := r.Kill(t, killed)
	rig.Await(t, "the use of the allowance after the restart", func(ctx context.Context) error { // it is not ready without a control plane
		admitted, err := r.Sum(ctx, "mgw_outage_allowance_requests_total", killed)
		if err != nil || admitted > 0 {
			return fmt.Errorf("the earlier process runs: %v admitted, %w", admitted, err)
		}
		used, err := r.Sum(ctx, allowanceUsed, killed)
		if err == nil && !near(used, before) {
			err = fmt.Errorf("%v is used; it was %v", used, before)
		}
		return err
	})
	r.Resume(t, r.ControlPlanes()...)
	restarted()
	r.AwaitSessions(t)
	for proxy := range allowanceProxies {
		awaitServed(t, r, ask(proxy, account.Key), map[string]bool{})
	}
	r.AwaitSettled(t)
	account.AwaitIdle(t)
	checkMarks(t, r, account, served)
	for _, part := range r.DataPlanes() {
		if used := value(t, r, part, allowanceUsed); !near(used, 0) {
			t.Errorf("%s: %v of the allowance is used when everything is settled", part, used)
		}
	}
	checkInvariants(t, r)
}

// allowanceUsed is the metric of what a proxy uses of the outage allowances.
const allowanceUsed = "mgw_outage_allowance_used"

// near compares sums of money that a metric has as floating-point numbers.
func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// units returns an amount as a metric has it.
func units(n money.Nano) float64 { return float64(n) / float64(money.Unit) }

func parse(t *testing.T, text string) money.Nano {
	t.Helper()
	n, err := money.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// notRefused fails the test unless a request was answered or cannot be decided, and adds the id of an answered one.
func notRefused(t *testing.T, answer *rig.Answer, served map[string]bool) {
	t.Helper()
	switch answer.Status {
	case http.StatusOK:
		served[answer.RequestID()] = true
	case http.StatusServiceUnavailable:
	default:
		t.Fatalf("got %s; want 200 or 503", answer)
	}
}

// awaitServed repeats a request until it is answered: a proxy has to find out that no control plane decides.
func awaitServed(t *testing.T, r *rig.Rig, q rig.Request, served map[string]bool) {
	t.Helper()
	rig.Await(t, "an answer", func(ctx context.Context) error {
		answer, err := r.Try(ctx, q)
		if err != nil {
			return err
		}
		if notRefused(t, answer, served); answer.Status != http.StatusOK {
			return fmt.Errorf("got %s", answer)
		}
		return nil
	})
}

// useUp sends requests to a proxy until the allowance has no room for another one, and some more, which get 503.
func useUp(t *testing.T, r *rig.Rig, proxy int, q rig.Request, served map[string]bool, reservation money.Nano) {
	t.Helper()
	// A balance of 14 reservations, of which at least 12 and at most 13 were free at the last response.
	least, most := units(12*reservation)*allowancePercent/100/allowanceProxies, units(13*reservation)*allowancePercent/100/allowanceProxies
	for refused := 0; refused < 3; {
		answer := r.Do(t, q)
		if notRefused(t, answer, served); answer.Status == http.StatusServiceUnavailable {
			refused++
		} else if refused > 0 {
			t.Errorf("proxy %d answers again after the allowance was used up", proxy)
		}
		used := value(t, r, rig.DataPlane(proxy), allowanceUsed)
		if used > most || refused > 0 && used+units(reservation) < least {
			t.Fatalf("proxy %d: %v of the allowance is used after the answer %d; it is between %v and %v", proxy, used, answer.Status, least, most)
		}
	}
}

// checkMarks checks that exactly the requests that were served under the allowance are marked, and that operators see their cost.
func checkMarks(t *testing.T, r *rig.Rig, account *rig.Account, served map[string]bool) {
	t.Helper()
	var cost money.Nano
	limit, marked := 500, true
	answer, err := r.Admin.ListUsage(t.Context(), &adminclient.ListUsageParams{AccountID: &account.ID, OutageAllowance: &marked, Limit: &limit})
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range answer.Value.Data {
		if cost += parse(t, u.Cost); !served[u.RequestID] || !u.OutageAllowance {
			t.Errorf("%s is in the list of requests under the allowance, and was not served then", u.RequestID)
		}
	}
	if len(answer.Value.Data) != len(served) || cost == 0 {
		t.Errorf("%d requests are marked, with a cost of %v; %d were served under the allowance", len(answer.Value.Data), cost, len(served))
	}
	overrun, err := r.Number(t.Context(), "select overrun from pools where kind = 1 and account_id = $1", account.ID[len("acc_"):])
	if err != nil || overrun <= 0 || overrun > int64(cost) {
		t.Errorf("the overrun is %d, %v; want a part of %d", overrun, err, cost)
	}
	events, charged := 0.0, 0.0
	for _, part := range r.ControlPlanes() {
		events += value(t, r, part, "mgw_settlement_outage_allowance_events_total")
		charged += value(t, r, part, "mgw_settlement_outage_allowance_charged_total")
	}
	if int(events) != len(served) || !near(charged, units(cost)) {
		t.Errorf("the counters of settlement are %v events and %v; want %d and %v", events, charged, len(served), units(cost))
	}
}
