package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/money"
)

// A hundred clients on four proxies send requests at once while the balance has room for
// exactly 37. These are served, and the others get 402. No request gets 503, and none reaches
// the provider twice.
func TestChaos_last_cent_race(t *testing.T) {
	const asking, fit = 100, 37
	r := rig.Get(t)
	open, h := rig.NewBlockingProvider(t, r), rig.NewBlockingProvider(t, r)
	open.Release()
	reservation := reservationOf(t, r, open.Model)
	account := r.Account(t, rig.AccountSpec{Credit: (fit * reservation).String()})
	got := outcome(t, retryingCrowd(t, r, asking, account.Key, h.Model, 0, 1, 2, 3), asking, h)
	if got[http.StatusOK] != fit || got[http.StatusPaymentRequired] != asking-fit {
		t.Errorf("got %v; want %d times 200 and %d times 402", got, fit, asking-fit)
	}
	if n := h.Arrived(); n != fit {
		t.Errorf("%d requests reached the provider; want %d", n, fit)
	}
	total := sum(t, account.AwaitUsage(t, fit))
	if balance := account.AwaitIdle(t); balance != fit*reservation-total {
		t.Errorf("the balance is %v; want %v", balance, fit*reservation-total)
	}
	r.AwaitSettled(t)
	checkInvariants(t, r)
}

// reservationOf returns the reservation of a request to a model.
func reservationOf(t *testing.T, r *rig.Rig, model string) money.Nano {
	t.Helper()
	answer := r.AwaitStatus(t, rig.Request{Proxy: 1, Path: "/v1/chat/completions", Key: r.Account(t, rig.AccountSpec{}).Key, Body: question(model)}, http.StatusOK)
	reservation, err := money.Parse(r.AwaitUsage(t, answer.RequestID()).Reservation)
	if err != nil || reservation <= 0 {
		t.Fatalf("the reservation is %v, %v", reservation, err)
	}
	return reservation
}

// Ten clients share ten slots. Each sends its requests through all of sixteen proxies. No
// request is refused, and a request takes two messages to the control plane.
func TestChaos_limit10_16dps_no_false_429(t *testing.T) {
	rig.Long(t)
	const planes, places, requests = 16, 10, 1000
	r := rig.Start(t, rig.Options{DataPlanes: planes, ControlPlanes: 2})
	model := r.Model(t, rig.Model{Formats: []string{"chat"}, Directives: "delay=5ms"})
	account := r.Account(t, rig.AccountSpec{Slots: places})
	for proxy := range planes { // every proxy caches the key
		r.AwaitStatus(t, rig.Request{Proxy: proxy, Path: "/v1/chat/completions", Key: account.Key, Body: question(model)}, http.StatusOK)
	}
	account.AwaitIdle(t)
	before := messages(t, r)
	var mu sync.Mutex
	got := map[int]int{}
	var clients sync.WaitGroup
	for range places {
		clients.Go(func() {
			for range requests / places {
				answer, err := r.Try(t.Context(), rig.Request{
					Proxy: rand.N(planes), Path: "/v1/chat/completions", Key: account.Key, Body: question(model),
				})
				if err != nil {
					answer = &rig.Answer{}
				}
				mu.Lock()
				got[answer.Status]++
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	r.AwaitSettled(t)
	each := (messages(t, r) - before) / requests
	if got[http.StatusOK] != requests {
		t.Errorf("got %v; want %d answers", got, requests)
	}
	const most = 2.2
	if each > most {
		t.Errorf("a request took %.2f messages; want at most %v", each, most)
	}
	if balance, total := account.AwaitIdle(t), sum(t, account.AwaitUsage(t, got[http.StatusOK]+planes)); balance != credit-total {
		t.Errorf("the balance is %v; want %v", balance, credit-total)
	}
	checkInvariants(t, r)
	t.Logf("%d proxies, %d slots: %v, %.2f messages per request", planes, places, got, each)
}

// messages returns the number of lease requests and returns that the control planes have
// received.
func messages(t *testing.T, r *rig.Rig) float64 {
	t.Helper()
	n, err := r.Sum(t.Context(), "mgw_lease_batch_size_sum", r.ControlPlanes()...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Both control planes settle usage of many accounts concurrently with lease requests. There
// are no deadlocks.
func TestChaos_settle_two_workers_no_deadlock(t *testing.T) {
	rig.Long(t)
	r := rig.Get(t)
	const query = `select deadlocks from pg_stat_database where datname = current_database()`
	before, err := r.Number(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	settled := make([]float64, len(r.ControlPlanes()))
	for i, part := range r.ControlPlanes() {
		settled[i] = settledBy(t, r, part)
	}
	var loads []*load
	for range 6 {
		loads = append(loads, startLoad(t, 4))
	}
	for _, l := range loads {
		for proxy := range r.Proxies {
			l.await(t, 5, on(proxy))
		}
	}
	for i, part := range r.ControlPlanes() {
		rig.Await(t, part+" to settle", func(context.Context) error {
			if now := settledBy(t, r, part); now == settled[i] {
				return fmt.Errorf("still %v events", now)
			}
			return nil
		})
	}
	asked := make([][]request, len(loads))
	for i, l := range loads {
		asked[i] = l.finish()
	}
	for i, l := range loads {
		checkOnlyUnavailable(t, asked[i])
		checkBills(t, l, asked[i], credit)
	}
	if after, err := r.Number(t.Context(), query); after != before || err != nil {
		t.Errorf("%d deadlocks, %v; want none", after-before, err)
	}
}

// settledBy returns the number of events that a control plane has settled.
func settledBy(t *testing.T, r *rig.Rig, part string) float64 {
	t.Helper()
	n, err := r.Sum(t.Context(), `mgw_settlement_events_total{outcome="settled"}`, part)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
