package e2e

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/optional"
	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/money"
)

// crowd is the number of concurrent requests, fit the number of them that can be served.
const crowd, fit = 100, 37

// An outcome of a request is its status, its code and the Retry-After header.
type outcome string

func outcomeOf(t *testing.T, answer *rig.Answer) outcome {
	t.Helper()
	if answer.Status == 200 {
		return "200"
	}
	p := answer.Problem(t)
	return outcome(fmt.Sprintf("%d %s %s", answer.Status, p.Code, answer.Header.Get("Retry-After")))
}

// reservationOf returns the reservation of a request.
func reservationOf(t *testing.T, r *rig.Rig, body any) money.Nano {
	t.Helper()
	answer := r.Do(t, rig.Request{Path: "/v1/chat/completions", Key: r.Account(t, rig.AccountSpec{}).Key, Body: body})
	if answer.Status != 200 {
		t.Fatalf("got %s; want an answer", answer)
	}
	reservation, err := money.Parse(r.AwaitUsage(t, answer.RequestID()).Reservation)
	if err != nil || reservation <= 0 {
		t.Fatalf("the reservation is %v, %v", reservation, err)
	}
	return reservation
}

// A hundred clients on both proxies send requests at the same time while the account has room
// for exactly 37.
func TestExactlyAsManyAsFitAreServed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		// before is the number of requests that run before the others. While units are plenty,
		// proxies may get more than they asked for, and have to give it back.
		before int
		// setup creates the account and the key, with room for the given number of concurrent
		// requests.
		setup func(t *testing.T, r *rig.Rig, requests int, reservation money.Nano) (account *rig.Account, key string)
		want  outcome
	}{
		{"balance", 0, enoughBalance, "402 insufficient_quota "},
		{"balance, others running", 60, enoughBalance, "402 insufficient_quota "},
		{"key limit", 0, enoughLimit, "403 spend_limit_exceeded "},
		{"key limit, others running", 60, enoughLimit, "403 spend_limit_exceeded "},
		{"limit of the project", 0, enoughInProject, "403 spend_limit_exceeded "},
		{"limit of the project, others running", 60, enoughInProject, "403 spend_limit_exceeded "},
		{"limit of the account", 0, enoughInAccount, "403 spend_limit_exceeded "},
		{"slots of the key", 0, enoughSlotsOfKey, "429 rate_limit_exceeded 1"},
		{"slots of the key, others running", 60, enoughSlotsOfKey, "429 rate_limit_exceeded 1"},
		{"slots", 0, enoughSlots, "429 rate_limit_exceeded 1"},
		{"slots, others running", 60, enoughSlots, "429 rate_limit_exceeded 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := rig.Get(t)
			open, h := rig.NewBlockingProvider(t, r), rig.NewBlockingProvider(t, r)
			open.Release()
			reservation := reservationOf(t, r, chatBody(open.Model, "Is there a place?", false))
			account, key := tt.setup(t, r, fit+tt.before, reservation)
			before, err := account.Balance(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			body := chatBody(h.Model, "Is there a place?", false)
			answers := make(chan *rig.Answer, tt.before+crowd)
			var clients sync.WaitGroup
			ask := func(n int) {
				for i := range n {
					clients.Go(func() {
						answer, err := r.Ask(t.Context(), rig.Request{Proxy: i % len(r.Proxies), Path: "/v1/chat/completions", Key: key, Body: body})
						if err != nil {
							answer = &rig.Answer{Body: []byte(strconv.Quote(err.Error()))}
						}
						answers <- answer
					})
				}
			}
			ask(tt.before)
			h.Await(t, int64(tt.before))
			ask(crowd)
			got := map[outcome]int{}
			for range crowd - fit { // the served ones are blocked at the provider
				got[outcomeOf(t, <-answers)]++
			}
			served := fit + tt.before
			if arrived := h.Arrived(); arrived > int64(served) {
				t.Errorf("%d requests reached the provider; want at most %d", arrived, served)
			}
			h.Release()
			clients.Wait()
			for range served {
				got[outcomeOf(t, <-answers)]++
			}
			if diff := cmp.Diff(map[outcome]int{"200": served, tt.want: crowd - fit}, got); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}

			account.AwaitUsage(t, served)
			after := account.AwaitIdle(t)
			const cost = 10*1_000 + 5*2_000 // nano-USD of the held answer's tokens
			if spent := before.Balance - after; spent != money.Nano(served*cost) {
				t.Errorf("%v was charged; want %v", spent, money.Nano(served*cost))
			}
			if again := outcomeOf(t, r.Do(t, rig.Request{Path: "/v1/chat/completions", Key: key, Body: body})); again != "200" {
				t.Errorf("afterwards: got %s; want an answer", again)
			}
			r.CheckLedger(t)
		})
	}
}

func enoughBalance(t *testing.T, r *rig.Rig, requests int, reservation money.Nano) (*rig.Account, string) {
	t.Helper()
	a := r.Account(t, rig.AccountSpec{Credit: (money.Nano(requests) * reservation).String()})
	return a, a.Key
}

func enoughLimit(t *testing.T, r *rig.Rig, requests int, reservation money.Nano) (*rig.Account, string) {
	t.Helper()
	a := r.Account(t, rig.AccountSpec{})
	_, key := a.NewKey(t, (money.Nano(requests) * reservation).String())
	return a, key
}

// enoughInProject gives room in the limit of a month of a project.
func enoughInProject(t *testing.T, r *rig.Rig, requests int, reservation money.Nano) (*rig.Account, string) {
	t.Helper()
	a := r.Account(t, rig.AccountSpec{})
	p, err := r.Admin.CreateProject(t.Context(), a.ID, nil, adminclient.ProjectCreate{Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	a.NewLimit(t, adminclient.LimitCreate{
		ProjectID: &p.Value.ID,
		Amount:    (money.Nano(requests) * reservation).String(),
		Window:    adminclient.LimitPeriod{Period: adminclient.LimitPeriodPeriodMonth, TimeZone: new("Asia/Tokyo")},
	})
	_, err = r.Admin.UpdateKey(
		t.Context(),
		a.KeyID,
		&adminclient.UpdateKeyParams{Wait: new(adminclient.WaitForApplied)},
		adminclient.KeyPatch{ProjectID: optional.Of(p.Value.ID)},
	)
	if err != nil {
		t.Fatal(err)
	}
	return a, a.Key
}

// enoughInAccount gives room in a limit of an account.
func enoughInAccount(t *testing.T, r *rig.Rig, requests int, reservation money.Nano) (*rig.Account, string) {
	t.Helper()
	a := r.Account(t, rig.AccountSpec{})
	a.NewLimit(t, adminclient.LimitCreate{
		Amount: (money.Nano(requests) * reservation).String(),
		Window: adminclient.LimitPeriod{Period: adminclient.LimitPeriodPeriodFirstUse, LengthSeconds: new(int64(86400))},
	})
	return a, a.Key
}

func enoughSlots(t *testing.T, r *rig.Rig, requests int, _ money.Nano) (*rig.Account, string) {
	t.Helper()
	a := r.Account(t, rig.AccountSpec{Slots: requests})
	return a, a.Key
}

func enoughSlotsOfKey(t *testing.T, r *rig.Rig, requests int, _ money.Nano) (*rig.Account, string) {
	t.Helper()
	a := r.Account(t, rig.AccountSpec{})
	limitSlots(t, r, a.KeyID, requests)
	return a, a.Key
}

// limitSlots bounds the concurrent requests of a key, and waits until all proxies have it.
func limitSlots(t *testing.T, r *rig.Rig, key string, slots int) {
	t.Helper()
	_, err := r.Admin.UpdateKey(
		t.Context(),
		key,
		&adminclient.UpdateKeyParams{Wait: new(adminclient.WaitForApplied)},
		adminclient.KeyPatch{MaxConcurrentRequests: optional.Of(slots)},
	)
	if err != nil {
		t.Fatal(err)
	}
}
