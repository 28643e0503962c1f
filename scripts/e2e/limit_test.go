package e2e

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/money"
)

// crowd is how many clients ask at once, fit how many of them can be served.
const crowd, fit = 100, 37

// An outcome of a request: the status, the code, and the Retry-After header.
type outcome string

func outcomeOf(t *testing.T, answer *rig.Answer) outcome {
	t.Helper()
	if answer.Status == 200 {
		return "200"
	}
	p := answer.Problem(t)
	return outcome(fmt.Sprintf("%d %s %s", answer.Status, p.Code, answer.Header.Get("Retry-After")))
}

// reserveOf finds what is reserved for a request.
func reserveOf(t *testing.T, r *rig.Rig, body any) money.Nano {
	t.Helper()
	answer := r.Do(t, rig.Request{Path: "/v1/chat/completions", Key: r.Account(t, rig.AccountSpec{}).Key, Body: body})
	if answer.Status != 200 {
		t.Fatalf("got %s; want an answer", answer)
	}
	reserve, err := money.Parse(r.AwaitUsage(t, answer.RequestID()).Reserve)
	if err != nil || reserve <= 0 {
		t.Fatalf("the reserve is %v, %v", reserve, err)
	}
	return reserve
}

// A hundred clients on both proxies ask at the same time, and there is exactly
// enough of something for 37.
func TestExactlyAsManyAsFitAreServed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		// setup makes the account, and the key to use, with enough for 37 reserves.
		setup func(t *testing.T, r *rig.Rig, enough money.Nano) (account *rig.Account, key string)
		want  outcome
		// again is what another request gets when all have been answered.
		again outcome
	}{
		{
			name: "balance",
			setup: func(t *testing.T, r *rig.Rig, enough money.Nano) (*rig.Account, string) {
				a := r.Account(t, rig.AccountSpec{Credit: enough.String()})
				return a, a.Key
			},
			want:  "402 insufficient_quota ",
			again: "200",
		},
		{
			name: "key limit",
			setup: func(t *testing.T, r *rig.Rig, enough money.Nano) (*rig.Account, string) {
				a := r.Account(t, rig.AccountSpec{})
				_, key := a.NewKey(t, enough.String())
				return a, key
			},
			want:  "403 spend_limit_exceeded ",
			again: "200",
		},
		{
			name: "slots",
			setup: func(t *testing.T, r *rig.Rig, _ money.Nano) (*rig.Account, string) {
				a := r.Account(t, rig.AccountSpec{Slots: fit})
				return a, a.Key
			},
			want:  "429 rate_limit_exceeded 1",
			again: "200",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := rig.Get(t)
			open, h := newHolder(t, r), newHolder(t, r)
			open.Release()
			reserve := reserveOf(t, r, chatBody(open.Model, "Is there a place?", false))
			account, key := tt.setup(t, r, fit*reserve)
			before, err := account.Balance(t.Context())
			if err != nil {
				t.Fatal(err)
			}

			body := chatBody(h.Model, "Is there a place?", false)
			answers := make(chan *rig.Answer, crowd)
			var clients sync.WaitGroup
			for i := range crowd {
				clients.Go(func() {
					answer, err := r.Try(t.Context(), rig.Request{Proxy: i % len(r.Proxies), Path: "/v1/chat/completions", Key: key, Body: body})
					if err != nil {
						answer = &rig.Answer{Body: []byte(strconv.Quote(err.Error()))}
					}
					answers <- answer
				})
			}
			got := map[outcome]int{}
			for range crowd - fit { // those who are served wait for the provider
				got[outcomeOf(t, <-answers)]++
			}
			if arrived := h.arrived.Load(); arrived > fit {
				t.Errorf("%d requests reached the provider; want at most %d", arrived, fit)
			}
			h.Release()
			clients.Wait()
			for range fit {
				got[outcomeOf(t, <-answers)]++
			}
			if diff := cmp.Diff(map[outcome]int{"200": fit, tt.want: crowd - fit}, got); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}

			account.AwaitUsage(t, fit)
			after := account.AwaitIdle(t)
			const cost = 10*1_000 + 5*2_000 // nano-USD of the held answer's tokens
			if spent := before.Balance - after; spent != fit*cost {
				t.Errorf("%v was charged; want %v", spent, money.Nano(fit*cost))
			}
			if again := outcomeOf(t, r.Do(t, rig.Request{Path: "/v1/chat/completions", Key: key, Body: body})); again != tt.again {
				t.Errorf("afterwards: got %s; want %s", again, tt.again)
			}
			r.CheckLedger(t)
		})
	}
}
