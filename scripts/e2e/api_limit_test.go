package e2e

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"modelgateway/scripts/e2e/rig"
)

func TestConcurrencyLimitIsPerAccountAcrossKeys(t *testing.T) {
	a := newAPI(t)
	account := a.Account(t, rig.AccountSpec{Slots: 2})
	_, second := account.NewKey(t, "")
	h := rig.NewBlockingProvider(t, a.Rig)
	var running sync.WaitGroup
	for proxy, key := range []string{account.Key, second} {
		running.Go(func() {
			_, _ = a.Try(t.Context(), rig.Request{Proxy: proxy, Path: chat.path, Key: key, Body: chatBody(h.Model, "Hold on", false)})
		})
	}
	h.Await(t, 2)
	_, third := account.NewKey(t, "")
	for proxy := range a.Proxies {
		a.refused(t, rig.Request{Proxy: proxy, Path: chat.path, Key: third, Body: chat.body("demo-all")}, refusal{429, "rate_limit_exceeded", ""})
	}
	a.ok(t, chat.path, chat.body("demo-all")) // another account
	h.Release()
	running.Wait()
	a.AwaitStatus(t, rig.Request{Path: chat.path, Key: third, Body: chat.body("demo-all")}, http.StatusOK)
}

// A key may have slots of its own: 40 clients on all proxies get exactly its 7. The other keys of the account have theirs, and each
// slot comes back when its request has ended.
func TestSlotsOfAKeyAreItsOwn(t *testing.T) {
	a := newAPI(t)
	account := a.Account(t, rig.AccountSpec{Slots: 50})
	_, other := account.NewKey(t, "")
	const slots, clients = 7, 40
	limitSlots(t, a.Rig, account.KeyID, slots)
	for range 2 {
		h := rig.NewBlockingProvider(t, a.Rig)
		answers := make(chan *rig.Answer, clients)
		var running sync.WaitGroup
		for i := range clients {
			running.Go(func() {
				q := rig.Request{Proxy: i % len(a.Proxies), Path: chat.path, Key: account.Key, Body: chatBody(h.Model, "Hold on", false)}
				answer, err := a.Try(context.WithoutCancel(t.Context()), q)
				for err == nil && answer.Status == http.StatusServiceUnavailable && t.Context().Err() == nil {
					answer, err = a.Try(context.WithoutCancel(t.Context()), q) // nothing was decided within two seconds
				}
				if err == nil {
					answers <- answer
				}
			})
		}
		h.Await(t, slots)
		for range clients - slots { // the served ones are blocked at the provider
			answer := <-answers
			if p := answer.Problem(t); answer.Status != http.StatusTooManyRequests || !strings.HasPrefix(p.Message, "This API key has too many concurrent requests.") {
				t.Errorf("got %s; want a refusal for the slots of the key", answer)
			}
		}
		if n := h.Arrived(); n != slots {
			t.Errorf("%d requests run with %d slots", n, slots)
		}
		if answer := a.Do(t, rig.Request{Path: chat.path, Key: other, Body: chat.body("demo-all")}); answer.Status != http.StatusOK {
			t.Errorf("another key of the account: got %s", answer)
		}
		h.Release()
		running.Wait()
		account.AwaitIdle(t)
	}
}

// There is no limit of requests per minute.
func TestThereIsNoLimitOfRequestsPerMinute(t *testing.T) {
	a := newAPI(t)
	const many = 150
	for i := range many {
		if answer := a.Do(t, rig.Request{Proxy: i % 2, Path: "/v1/balance", Key: a.account.Key}); answer.Status != http.StatusOK {
			t.Fatalf("request %d: got %s", i, answer)
		}
		a.ok(t, chat.path, chat.body("demo-all"))
	}
}

// The slot is free when the request has ended: a client that has its answer may send the next
// request at once.
func TestSlotIsFreeWhenTheRequestHasEnded(t *testing.T) {
	a := newAPI(t)
	account := a.Account(t, rig.AccountSpec{Slots: 1})
	for i := range 30 {
		for _, stream := range []bool{false, true} {
			answer := a.Do(t, rig.Request{Proxy: i % 2, Path: chat.path, Key: account.Key, Body: chatBody("demo-all", "Again", stream)})
			if answer.Status == http.StatusTooManyRequests {
				answer = a.AwaitStatus(t, rig.Request{Proxy: i % 2, Path: chat.path, Key: account.Key, Body: chatBody("demo-all", "Again", stream)}, http.StatusOK)
			}
			if answer.Status != http.StatusOK {
				t.Fatalf("request %d: got %s", i, answer)
			}
		}
	}
}

// A request that needs the money that running requests reserve is refused with 402 or 403, and
// served after they have ended.
func TestReservedRemainderBecomesAvailableAgain(t *testing.T) {
	a := newAPI(t)
	h := rig.NewBlockingProvider(t, a.Rig)
	body := chatBody(h.Model, "Hold on", false)
	reservation := reservationOf(t, a.Rig, chatBody("demo-chat", "Hold on", false))
	poor := a.Account(t, rig.AccountSpec{Credit: reservation.String()})
	_, limited := a.account.NewKey(t, reservation.String())
	for _, tt := range []struct {
		key  string
		want refusal
	}{{poor.Key, refusal{402, "insufficient_quota", ""}}, {limited, refusal{403, "spend_limit_exceeded", ""}}} {
		done := make(chan struct{})
		before := h.Arrived()
		go func() {
			defer close(done)
			_, _ = a.Try(t.Context(), rig.Request{Path: chat.path, Key: tt.key, Body: body})
		}()
		h.Await(t, before+1)
		big := chatBody("demo-chat", "Hold on", false)
		for proxy := range a.Proxies {
			a.refused(t, rig.Request{Proxy: proxy, Path: chat.path, Key: tt.key, Body: big}, tt.want)
		}
		h.AnswerOne()
		<-done
		small := chatBody("demo-chat", "Hold on", false)
		small["max_tokens"] = 16
		a.AwaitStatus(t, rig.Request{Path: chat.path, Key: tt.key, Body: small}, http.StatusOK)
	}
}

// The retry-after of the provider is passed on, limited to 1 to 60 seconds. See
// TestEvery429HasRetryAfter.
func TestRetryAfterOfTheProviderIsPassedOn(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Directives: "status=429,retry_after=12"})
	answer := a.post(t, chat.path, chat.body(model))
	checkRefusal(t, chat.path, answer, refusal{429, "rate_limit_exceeded", ""})
	if got := answer.Header.Get("Retry-After"); got != "12" {
		t.Errorf("Retry-After is %s; want 12", got)
	}
}

func TestEveryPathBeginsWithV1(t *testing.T) {
	a := newAPI(t)
	for _, e := range generations {
		for _, path := range []string{e.path[len("/v1"):], "/v2" + e.path[len("/v1"):]} {
			answer := a.post(t, path, e.body(e.model))
			if answer.Status != http.StatusNotFound {
				t.Errorf("%s: got %s; want 404", path, answer)
			}
		}
	}
}
