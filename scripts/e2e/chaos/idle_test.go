package chaos

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/money"
)

// crowd sends n concurrent requests, spread over the given proxies, and sends their statuses
// on the channel.
func crowd(t *testing.T, r *rig.Rig, n int, key, model string, proxies ...int) <-chan int {
	t.Helper()
	return crowdBy(t, r.Try, n, key, model, proxies...)
}

// retryingCrowd is like crowd, but retries after a 503, so that each status is a final decision.
func retryingCrowd(t *testing.T, r *rig.Rig, n int, key, model string, proxies ...int) <-chan int {
	t.Helper()
	return crowdBy(t, r.Ask, n, key, model, proxies...)
}

func crowdBy(t *testing.T, ask func(context.Context, rig.Request) (*rig.Answer, error), n int, key, model string, proxies ...int) <-chan int {
	t.Helper()
	statuses := make(chan int, n)
	for i := range n {
		go func() {
			answer, err := ask(t.Context(), rig.Request{
				Proxy: proxies[i%len(proxies)], Path: "/v1/chat/completions", Key: key, Body: question(model),
			})
			if err != nil {
				answer = &rig.Answer{}
			}
			statuses <- answer.Status
		}()
	}
	return statuses
}

// outcome waits until each of n requests is refused or has reached the provider, lets the
// provider answer, and counts the statuses.
func outcome(t *testing.T, statuses <-chan int, n int, h *rig.BlockingProvider) (got map[int]int) {
	t.Helper()
	rig.Await(t, "all requests to be refused or to reach the provider", func(context.Context) error {
		if decided := len(statuses) + int(h.Arrived()); decided < n {
			return fmt.Errorf("%d of %d have", decided, n)
		}
		return nil
	})
	h.Release()
	got = map[int]int{}
	for range n {
		got[<-statuses]++
	}
	return got
}

func question(model string) map[string]any {
	return map[string]any{"model": model, "messages": []any{map[string]any{"role": "user", "content": "Are you still there?"}}}
}

// newAccountWithIdleUnits returns an account of whose balance every proxy holds idle units. The
// balance is enough for some more requests.
func newAccountWithIdleUnits(t *testing.T, r *rig.Rig) *rig.Account {
	t.Helper()
	account := r.Account(t, rig.AccountSpec{Credit: "0.04"})
	quick := r.Model(t, rig.Model{Formats: []string{"chat"}, MaxOutputTokens: 50})
	var proxies sync.WaitGroup
	for proxy, part := range r.DataPlanes() {
		proxies.Go(func() { collectIdleUnits(t, r, account.Key, quick, proxy, part) })
	}
	proxies.Wait()
	r.AwaitSettled(t)
	return account
}

// collectIdleUnits sends requests with a key through one proxy until it admits from idle units. No
// other test may use the account at this proxy.
func collectIdleUnits(t *testing.T, r *rig.Rig, key, model string, proxy int, part string) {
	t.Helper()
	before, err := admissions(t.Context(), r, "local", part)
	if err != nil {
		t.Error(err)
		return
	}
	rig.Await(t, part+" to hold a slice", func(ctx context.Context) error {
		answer, err := r.Try(ctx, rig.Request{Proxy: proxy, Path: "/v1/chat/completions", Key: key, Body: question(model)})
		if err != nil || answer.Status != http.StatusOK {
			return fmt.Errorf("got %v, %w", answer, err)
		}
		now, err := admissions(ctx, r, "local", part)
		if err == nil && now == before {
			err = fmt.Errorf("%v requests were admitted from idle units", now)
		}
		return err
	})
}

// fits returns the number of concurrent requests for which the balance of the account is enough.
func fits(t *testing.T, account *rig.Account, reservation money.Nano) int {
	t.Helper()
	b, err := account.Balance(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return int(b.Balance / reservation)
}

// Exactly as many requests are served as the balance is enough for.
func TestIdleUnitsAreReturnedBeforeRequestsAreRefused(t *testing.T) {
	r := rig.Get(t)
	open, h := rig.NewBlockingProvider(t, r), rig.NewBlockingProvider(t, r)
	open.Release()
	reservation := reservationOf(t, r, open.Model)
	account := newAccountWithIdleUnits(t, r)
	fit := fits(t, account, reservation)
	const more = 30
	got := outcome(t, retryingCrowd(t, r, fit+more, account.Key, h.Model, 0, 1), fit+more, h)
	if got[http.StatusOK] != fit || got[http.StatusPaymentRequired] != more {
		t.Errorf("got %v; want %d answers and %d refusals", got, fit, more)
	}
	r.AwaitSettled(t)
	account.AwaitIdle(t)
	checkInvariants(t, r)
	t.Logf("the balance was enough for %d requests", fit)
}

// While a proxy with idle units does not answer, the free balance is uncertain. Then requests
// get 503 and not 402.
func TestSilentProxyCausesNoRefusal(t *testing.T) {
	r := rig.Get(t)
	open, h := rig.NewBlockingProvider(t, r), rig.NewBlockingProvider(t, r)
	open.Release()
	reservation := reservationOf(t, r, open.Model)
	account := newAccountWithIdleUnits(t, r) // created last, because proxies return idle units after some seconds
	fit := fits(t, account, reservation)
	resume := r.Pause(t, rig.DataPlane1)
	got := outcome(t, crowd(t, r, fit, account.Key, h.Model, 1), fit, h)
	if got[http.StatusServiceUnavailable] == 0 || got[http.StatusOK]+got[http.StatusServiceUnavailable] != fit {
		t.Errorf("while a proxy is silent: got %v with a balance for %d requests; want 200 and 503 only", got, fit)
	}
	resume()
	r.AwaitSessions(t)
	for proxy := range r.Proxies {
		r.AwaitStatus(t, rig.Request{Proxy: proxy, Path: "/v1/chat/completions", Key: account.Key, Body: question(open.Model)}, http.StatusOK)
	}
	r.AwaitSettled(t)
	account.AwaitIdle(t)
	checkInvariants(t, r)
	t.Logf("got %v while a proxy was silent", got)
}
