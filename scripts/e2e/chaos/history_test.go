package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"modelgateway/scripts/e2e/rig"
)

// The tests check histories for linearizability with three small models: is there an order of
// the calls, each at some moment between its begin and its end, in which every result is
// correct? A call with an unknown result has no end.

// share is the model of a quantity of which a number of clients can hold a unit at once: money
// for that many requests, or slots.
type shareState struct {
	free int
	// doubtful is the number of units that requests with an unknown result may hold, from
	// their begin on, for any time.
	doubtful int
}

type shareKind int

const (
	take shareKind = iota
	refused
	giveBack
	unknown
)

func shareModel(size int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return shareState{free: size} },
		Step: func(state, input, _ any) (bool, any) {
			s, ok := state.(shareState)
			kind, known := input.(shareKind)
			if !ok || !known {
				return false, state
			}
			switch kind {
			case take:
				s.free--
				return s.free >= 0, s
			case refused: // correct only if no unit is free
				return s.free-s.doubtful <= 0, s
			case giveBack:
				s.free++
				return s.free <= size, s
			case unknown:
				s.doubtful++
			}
			return true, s
		},
		DescribeOperation: func(input, _ any) string {
			return []string{"take", "refused", "give back", "unknown"}[input.(shareKind)]
		}, //nolint:forcetypeassert // see Step
	}
}

// The model of a key at one proxy: true while the key is valid. During a revocation, proxies
// may differ. Each of them changes once, and all have changed when the revocation returns.
const (
	admitted = "admitted"
	turned   = "turned away"
	revoke   = "revoke"
)

func keyModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return true },
		Step: func(state, input, _ any) (bool, any) {
			switch input {
			case admitted:
				return state == true, state
			case turned:
				return state == false, state
			default:
				return true, false
			}
		},
	}
}

// A history is the calls of several clients, by one clock.
type history struct {
	mu  sync.Mutex
	ops []porcupine.Operation
}

var historyBegan = time.Now()

// now returns the time of the histories, in nanoseconds.
func now() int64 { return int64(time.Since(historyBegan)) }

// open is the end of a call whose result is unknown.
const open = math.MaxInt64

func (h *history) add(client int, what any, from, to int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: what, Call: from, Return: to})
}

// reopen gives an unknown result to the calls that ended just before the proxy was killed,
// because it is unknown whether their units were returned by then.
func (h *history) reopen(of func(client int) bool, killed int64) {
	const before = int64(2 * time.Second)
	for i, op := range h.ops {
		if op.Input == giveBack && of(op.ClientId) && op.Return > killed-before && op.Call < killed {
			h.ops[i].Return = open
		}
	}
}

// at returns the calls at one proxy and the calls that concern all proxies.
func (h *history) at(proxy, proxies int) *history {
	part := &history{}
	for _, op := range h.ops {
		if op.Input == revoke || op.ClientId%proxies == proxy {
			part.ops = append(part.ops, op)
		}
	}
	return part
}

// count returns the number of calls of a kind.
func (h *history) count(what any) (n int) {
	for _, op := range h.ops {
		if op.Input == what {
			n++
		}
	}
	return n
}

// check fails the test unless the history is linearizable. A check that takes too long fails
// as well.
func (h *history) check(t *testing.T, model porcupine.Model) {
	t.Helper()
	const maxCalls = 5000
	if len(h.ops) == 0 || len(h.ops) > maxCalls {
		t.Fatalf("the history has %d calls; want 1 to %d", len(h.ops), maxCalls)
	}
	if got := porcupine.CheckOperationsTimeout(model, h.ops, time.Minute); got != porcupine.Ok {
		t.Errorf("the linearizability check of %d calls returned %s", len(h.ops), got)
	}
}

// The checker rejects impossible histories.
func TestCheckerRejectsImpossibleHistories(t *testing.T) {
	t.Parallel()
	type call struct {
		what     any
		from, to int64
	}
	tests := []struct {
		name  string
		model porcupine.Model
		calls []call
		want  porcupine.CheckResult
	}{
		{"refused while one is free", shareModel(2), []call{{take, 0, 1}, {refused, 2, 3}}, porcupine.Illegal},
		{"refused while another holds the last", shareModel(1), []call{{take, 0, 5}, {refused, 2, 3}}, porcupine.Ok},
		{"refused after it was given back", shareModel(1), []call{{take, 0, 1}, {giveBack, 2, 3}, {refused, 4, 5}}, porcupine.Illegal},
		{"refused while it is perhaps not given back", shareModel(1), []call{{take, 0, 1}, {giveBack, 2, open}, {refused, 4, 5}}, porcupine.Ok},
		{"refused while another client may hold it", shareModel(1), []call{{unknown, 0, 1}, {refused, 4, 5}}, porcupine.Ok},
		{"refused before another client may hold it", shareModel(1), []call{{refused, 0, 1}, {unknown, 2, 3}}, porcupine.Illegal},
		{"one more than there are", shareModel(2), []call{{take, 0, 1}, {take, 0, 1}, {take, 2, 3}, {giveBack, 4, 5}}, porcupine.Illegal},
		{"admitted after the revocation", keyModel(), []call{{admitted, 0, 1}, {revoke, 2, 3}, {admitted, 4, 5}}, porcupine.Illegal},
		{"admitted during the revocation", keyModel(), []call{{revoke, 2, 9}, {admitted, 4, 5}, {turned, 6, 7}}, porcupine.Ok},
		{"alive again during the revocation", keyModel(), []call{{revoke, 2, 9}, {turned, 4, 5}, {admitted, 6, 7}}, porcupine.Illegal},
		{"turned away for nothing", keyModel(), []call{{turned, 0, 1}, {revoke, 2, open}}, porcupine.Illegal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var h history
			for i, c := range tt.calls {
				h.add(i, c.what, c.from, c.to)
			}
			if got := porcupine.CheckOperationsTimeout(tt.model, h.ops, time.Minute); got != tt.want {
				t.Errorf("got %s; want %s", got, tt.want)
			}
		})
	}
}

// Clients of several accounts take and return money and slots, while a proxy and a control
// plane are killed. No request is refused while units are free, and no more units are granted
// than the pool has.
func TestHistoriesOfMoneyAndSlots(t *testing.T) {
	r := rig.Get(t)
	gate := newGate(t, r)
	const size, clients = 3, 6
	reservation := gate.reservation(t, r)
	type party struct {
		account *rig.Account
		refusal int
		history history
	}
	var parties []*party
	for range 3 {
		parties = append(parties,
			&party{account: r.Account(t, rig.AccountSpec{Credit: (size * reservation).String()}), refusal: http.StatusPaymentRequired},
			&party{account: r.Account(t, rig.AccountSpec{Slots: size}), refusal: http.StatusTooManyRequests})
	}
	var (
		running sync.WaitGroup
		stopped atomic.Bool
	)
	for _, p := range parties {
		for client := range clients {
			running.Go(func() {
				for !stopped.Load() {
					gate.round(t, r, &p.history, client, p.account.Key, p.refusal)
				}
			})
		}
	}
	kills := map[int]int64{}
	for _, proxy := range []int{1, -1, 0} {
		gate.awaitMore(t, 60)
		part := rig.ControlPlane2
		if proxy >= 0 {
			part = rig.DataPlane(proxy)
		}
		restarted := r.Kill(t, part)
		kills[proxy] = now()
		restarted()
	}
	gate.awaitMore(t, 60)
	stopped.Store(true)
	running.Wait()
	r.AwaitSessions(t)
	for _, p := range parties {
		for proxy, at := range kills {
			p.history.reopen(func(client int) bool { return client%len(r.Proxies) == proxy }, at)
		}
		p.history.check(t, shareModel(size))
		p.account.AwaitIdle(t)
		t.Logf("%d units, refusal %d: %d taken, %d refused, %d unknown", size, p.refusal,
			p.history.count(take), p.history.count(refused), p.history.count(unknown))
	}
	r.AwaitSettled(t)
	checkInvariants(t, r)
}

// Keys are revoked while clients use them on every proxy, one of which is killed and another
// cut off for a while.
func TestHistoriesOfKeys(t *testing.T) {
	rig.Long(t)
	r := rig.Get(t)
	model := r.Model(t, rig.Model{Formats: []string{"chat"}})
	account := r.Account(t, rig.AccountSpec{})
	const keys, clients, refusals = 8, 7, 4 // each client stops after this number of refusals
	histories := make([]history, keys)
	for i := range histories {
		h := &histories[i]
		id, secret := account.NewKey(t, "")
		var running sync.WaitGroup
		for client := range clients {
			running.Go(func() {
				for left := refusals; left > 0; {
					from := now()
					answer, err := r.Try(t.Context(), rig.Request{
						Proxy: client % len(r.Proxies), Path: "/v1/chat/completions", Key: secret, Body: question(model),
					})
					switch {
					case err != nil:
					case answer.Status == http.StatusOK:
						h.add(client, admitted, from, now())
					case answer.Status == http.StatusUnauthorized:
						h.add(client, turned, from, now())
						left--
					case answer.Status != http.StatusServiceUnavailable:
						t.Errorf("got %s; want 200, 401 or 503", answer)
					}
				}
			})
		}
		awaitCalls(t, h, 3*clients)
		var reconnect func()
		switch i {
		case 1:
			r.Kill(t, rig.DataPlane1)()
		case 2, 5:
			reconnect = r.Cut(t, rig.DataPlane(3))
		case 3:
			r.Kill(t, rig.ControlPlane2)
		}
		from := now()
		answer, err := r.Admin.RevokeKey(t.Context(), id, nil)
		if err == nil && answer.Value.Effective {
			h.add(clients, revoke, from, now())
		} else {
			h.add(clients, revoke, from, open)
		}
		if reconnect != nil {
			reconnect()
		}
		running.Wait()
	}
	for i := range histories {
		for proxy := range r.Proxies {
			histories[i].at(proxy, len(r.Proxies)).check(t, keyModel())
		}
		t.Logf("%d admitted, %d refused", histories[i].count(admitted), histories[i].count(turned))
	}
	r.AwaitSessions(t)
	checkCharged(t, r, account)
	checkInvariants(t, r)
}

func awaitCalls(t *testing.T, h *history, n int) {
	t.Helper()
	rig.Await(t, "calls at every proxy", func(context.Context) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.ops) < n {
			return fmt.Errorf("there are %d calls; want %d", len(h.ops), n)
		}
		return nil
	})
}

// round takes one unit, holds it for a moment and returns it.
func (g *gate) round(t *testing.T, r *rig.Rig, h *history, client int, key string, refusal int) {
	t.Helper()
	token, arrived := g.expect()
	answered := make(chan *rig.Answer, 1)
	var err error
	from := now()
	go func() {
		var answer *rig.Answer
		answer, err = r.Try(t.Context(), rig.Request{
			Proxy: client % len(r.Proxies), Path: "/v1/chat/completions", Key: key,
			Body: map[string]any{"model": g.model, "messages": []any{map[string]any{"role": "user", "content": token}}},
		})
		answered <- answer
	}()
	select {
	case <-arrived:
	case answer := <-answered:
		select {
		case <-arrived: // and was aborted
			h.add(client, take, from, now())
			h.add(client, giveBack, now(), open)
		default:
			g.refused(t, h, client, from, answer, err, refusal)
		}
		return
	}
	h.add(client, take, from, now())
	time.Sleep(holdFor())
	from = now()
	g.release(token)
	if answer := <-answered; err != nil || answer.Status != http.StatusOK {
		h.add(client, giveBack, from, open)
		return
	}
	h.add(client, giveBack, from, now()+int64(returning))
}

// returning is how long after the answer a unit is free for other proxies at the latest, on a machine that is busy with the
// whole stack. The refusal grace period is shorter: in production it only has to be longer than a message takes.
const returning = 400 * time.Millisecond

// holdFor is how long a unit is held: often shorter, and now and then longer, than the refusal
// grace period.
func holdFor() time.Duration {
	const short, long, often = 10 * time.Millisecond, 700 * time.Millisecond, 5
	if rand.N(often) == 0 {
		return long
	}
	return rand.N(short)
}

// refused adds a call that did not reach the provider to the history.
func (g *gate) refused(t *testing.T, h *history, client int, from int64, answer *rig.Answer, err error, refusal int) {
	t.Helper()
	switch {
	case errors.Is(err, syscall.ECONNREFUSED): // no process listened
		time.Sleep(rand.N(50 * time.Millisecond))
	case err != nil || answer.Status == http.StatusServiceUnavailable:
		h.add(client, unknown, from, now())
		time.Sleep(rand.N(100 * time.Millisecond))
	case answer.Status == refusal:
		h.add(client, refused, from, now())
	default:
		t.Errorf("got %s; want 200, %d or 503", answer, refusal)
	}
}
