package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
)

// explained asks what would happen to a request of a key.
func (a *api) explained(ctx context.Context, keyID string, e endpoint, body map[string]any) (*adminclient.RequestExplanation, error) {
	members := maps.Clone(body)
	delete(members, "model")
	text, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	answer, err := a.Admin.ExplainRequest(ctx, &adminclient.ExplainRequestParams{
		KeyID: &keyID, Model: body["model"].(string), Format: new(adminclient.ExplainRequestParamsFormat(e.format)), Parameters: new(string(text)),
	})
	if err != nil {
		return nil, err
	}
	return answer.Value, nil
}

// predict explains a request, sends it to every proxy and compares: status, code and message of the answer.
func (a *api) predict(t *testing.T, keyID, key string, e endpoint, body map[string]any, status int) *adminclient.RequestExplanation {
	t.Helper()
	var got *adminclient.RequestExplanation
	rig.Await(t, "the explanation of every proxy", func(ctx context.Context) (err error) {
		if got, err = a.explained(ctx, keyID, e, body); err == nil && len(got.Proxies) != len(a.Proxies) {
			err = fmt.Errorf("%d proxies answered; silent: %v", len(got.Proxies), got.Silent)
		}
		return err
	})
	for i := range a.Proxies {
		answer := a.Do(t, rig.Request{Proxy: i, Path: e.path, Key: key, Body: body})
		if answer.Status != status {
			t.Fatalf("%s: got %s; want %d", e.format, answer, status)
		}
		of := got.Proxies[i]
		if of.Proxy != rig.DataPlane(i) {
			t.Fatalf("the explanations are of %s; want %s", of.Proxy, rig.DataPlane(i))
		}
		if status < http.StatusMultipleChoices {
			if got.Outcome != adminclient.RequestExplanationOutcomeSent || len(of.Refusals) > 0 {
				t.Errorf("%s is served; the explanation is %s %+v", e.format, got.Outcome, of.Refusals)
			}
			continue
		}
		p := answer.Problem(t)
		if len(of.Refusals) == 0 {
			t.Errorf("%s is refused with %s; the explanation has no refusal", e.format, answer)
			continue
		}
		code := ""
		if of.Refusals[0].Code != nil {
			code = *of.Refusals[0].Code
		}
		if r := of.Refusals[0]; r.Status != answer.Status || code != p.Code || r.Message != p.Message {
			t.Errorf("%s is refused with %s; the explanation is %d %s %q", e.format, answer, r.Status, code, r.Message)
		}
		if got.Outcome != adminclient.RequestExplanationOutcomeRefused || got.Refusal == nil || got.Refusal.Status != status {
			t.Errorf("the outcome is %s, %+v", got.Outcome, got.Refusal)
		}
	}
	return got
}

// step fails the test unless the first refusal is of a step.
func step(t *testing.T, got *adminclient.RequestExplanation, want string) {
	t.Helper()
	if got.Refusal == nil || got.Refusal.Step != want {
		t.Errorf("refused by %+v; want the step %s", got.Refusal, want)
	}
}

// A request that is explained as sent takes the route, the price and the reservation of the explanation.
func TestExplanationPredictsRouteAndReservation(t *testing.T) {
	a := newAPI(t)
	u := rig.Unique()
	model := a.Model(t, rig.Model{Routes: []rig.Route{
		{UpstreamModel: "second-" + u, Priority: 2},
		{UpstreamModel: "first-" + u, Priority: 1},
		{UpstreamModel: "off-" + u, Enabled: rig.False()},
		{UpstreamModel: "fourth-" + u, Priority: 4},
		{UpstreamModel: "third-" + u, Priority: 3},
	}})
	body := chat.with(model, "max_tokens", 77)
	body["n"] = 2
	got := a.predict(t, a.account.KeyID, a.account.Key, chat, body, http.StatusOK)
	used := a.account.AwaitUsage(t, len(a.Proxies))
	want := used[0]
	routes := got.Proxies[0].Routes
	if got.Price == nil || got.Price.Reservation != want.Reservation || got.Price.Version != want.PriceVersion || *want.Route != routes[0].Route {
		t.Errorf("explained %+v by %+v; the request was %+v", got.Price, routes, want)
	}
	var reasons []string
	for _, r := range routes {
		reason := ""
		if r.Skipped != nil {
			reason = *r.Skipped
		}
		reasons = append(reasons, r.UpstreamModel+" "+reason)
	}
	if wants := fmt.Sprint([]string{"first-" + u + " ", "second-" + u + " ", "third-" + u + " ", "fourth-" + u + " beyond_attempts", "off-" + u + " disabled"}); fmt.Sprint(reasons) != wants {
		t.Errorf("routes %v; want %v", reasons, wants)
	}
	for _, n := range got.Needs {
		if !n.Enough || n.Available == nil || n.Wanted == "" {
			t.Errorf("needs %+v", n)
		}
	}
	if len(got.Needs) != 2 {
		t.Errorf("needs %+v; want balance and slot", got.Needs)
	}
	for _, e := range generations {
		a.predict(t, a.account.KeyID, a.account.Key, e, e.body(e.model), map[bool]int{true: http.StatusAccepted, false: http.StatusOK}[e.format == "videos"])
	}
}

func TestExplanationPredictsRefusals(t *testing.T) {
	a := newAPI(t)
	models := a.Models(t, rig.Model{}, rig.Model{Public: rig.False()})
	model, private := models[0], models[1]
	keyID, key := a.account.KeyID, a.account.Key
	step(t, a.predict(t, keyID, key, chat, chat.body("no-such-model"), http.StatusNotFound), "model")
	got := a.predict(t, keyID, key, chat, chat.body(private), http.StatusNotFound)
	if step(t, got, "model"); !got.Visibility.Exists || got.Visibility.Public || got.Visibility.Granted {
		t.Errorf("visibility %+v of a model that is not granted", got.Visibility)
	}
	a.account.Grant(t, private)
	rig.Await(t, "the grant", func(ctx context.Context) error {
		got, err := a.explained(ctx, keyID, chat, chat.body(private))
		if err == nil && got.Outcome != adminclient.RequestExplanationOutcomeSent {
			err = errors.New(string(got.Outcome))
		}
		return err
	})
	a.predict(t, keyID, key, chat, chat.body(private), http.StatusOK)
	step(t, a.predict(t, keyID, key, chat, chat.with(model, "frobnicate", true), http.StatusBadRequest), "parameters")
	step(t, a.predict(t, keyID, key, images, images.body(model), http.StatusNotFound), "model")

	poor := a.Account(t, rig.AccountSpec{Credit: "0"})
	got = a.predict(t, poor.KeyID, poor.Key, chat, chat.body(model), http.StatusPaymentRequired)
	if step(t, got, "admission"); len(got.Needs) != 2 || got.Needs[0].Enough || *got.Needs[0].Available != "0.00" || !got.Needs[1].Enough || *got.Refusal.Reason != "balance_insufficient" {
		t.Errorf("needs %+v, refusal %+v", got.Needs, got.Refusal)
	}
	if len(got.Proxies[0].Routes) == 0 || got.Proxies[0].Routes[0].Skipped != nil {
		t.Errorf("routes %+v; want the one that would be tried", got.Proxies[0].Routes)
	}
	limitedID, limited := a.account.NewKey(t, "0.000001")
	got = a.predict(t, limitedID, limited, chat, chat.body(model), http.StatusForbidden)
	if step(t, got, "admission"); len(got.Needs) != 3 || *got.Refusal.Reason != "limit_insufficient" {
		t.Errorf("needs %+v, refusal %+v", got.Needs, got.Refusal)
	}
	other := a.Account(t, rig.AccountSpec{})
	other.Suspend(t)
	rig.Await(t, "the suspension", func(ctx context.Context) error {
		answer, err := a.Try(ctx, rig.Request{Path: chat.path, Key: other.Key, Body: chat.body(model)})
		if err == nil && answer.Status != http.StatusUnauthorized {
			err = fmt.Errorf("got %s", answer)
		}
		return err
	})
	step(t, a.predict(t, other.KeyID, other.Key, chat, chat.body(model), http.StatusUnauthorized), "key")
}

func TestExplanationPredictsMaintenance(t *testing.T) {
	a := newAPI(t)
	u := rig.Unique()
	provider := a.Provider(t, rig.Provider{BaseURL: a.Sim.URL})
	models := a.Models(t, rig.Model{}, rig.Model{Routes: []rig.Route{{Provider: provider, UpstreamModel: "closed-" + u}}})
	set, err := a.Admin.MaintainModel(t.Context(), models[0], nil, notice())
	a.closed(t, set, err)
	got := a.predict(t, a.account.KeyID, a.account.Key, chat, chat.body(models[0]), http.StatusServiceUnavailable)
	if step(t, got, "model_maintenance"); got.Refusal.Message != "Back in a quarter of an hour." || got.Refusal.RetryAfter == nil {
		t.Errorf("refusal %+v", got.Refusal)
	}
	set, err = a.Admin.MaintainProvider(t.Context(), provider, nil, notice())
	a.closed(t, set, err)
	got = a.predict(t, a.account.KeyID, a.account.Key, chat, chat.body(models[1]), http.StatusServiceUnavailable)
	if step(t, got, "routes"); len(got.Proxies[0].Routes) != 1 || *got.Proxies[0].Routes[0].Skipped != "maintenance" {
		t.Errorf("routes %+v", got.Proxies[0].Routes)
	}
}

// Running requests take all slots: one more is refused, and served when one has ended.
func TestExplanationPredictsThatSlotsAreTaken(t *testing.T) {
	a := newAPI(t)
	blocking := rig.NewBlockingProvider(t, a.Rig)
	account := a.Account(t, rig.AccountSpec{Slots: 1})
	body := chat.body(blocking.Model)
	var running sync.WaitGroup
	running.Go(func() {
		answer, err := a.Ask(context.WithoutCancel(t.Context()), rig.Request{Path: chat.path, Key: account.Key, Body: body})
		if err != nil || answer.Status != http.StatusOK {
			t.Errorf("got %v, %v", answer, err)
		}
	})
	blocking.Await(t, 1)
	got := a.predict(t, account.KeyID, account.Key, chat, body, http.StatusTooManyRequests)
	if step(t, got, "admission"); *got.Refusal.Reason != "no_slot" || got.Needs[1].Enough || *got.Needs[1].Reserved != "1" {
		t.Errorf("needs %+v, refusal %+v", got.Needs, got.Refusal)
	}
	blocking.Release()
	running.Wait()
	// The proxy returns the slot in a message of its own, which may come after the money is settled. An explanation counts a slot as
	// taken while a proxy holds it that does not say whether it is idle.
	rig.Await(t, "the slot to be free", func(ctx context.Context) error {
		pools, err := a.Admin.ListAccountPools(ctx, account.ID, nil)
		if err != nil {
			return err
		}
		for _, pool := range pools.Value.Data {
			if pool.Kind == adminclient.PoolKindSlots && pool.Outstanding != "0" {
				return fmt.Errorf("the proxies hold %s slots", pool.Outstanding)
			}
		}
		return nil
	})
	a.predict(t, account.KeyID, account.Key, chat, body, http.StatusOK)
}

// The breaker of the only route is open on every proxy.
func TestExplanationPredictsThatNoRouteCanBeCalled(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Routes: []rig.Route{{UpstreamModel: "down-" + rig.Unique() + "@status=502"}}})
	for i := range a.Proxies {
		rig.Await(t, "an open breaker", func(ctx context.Context) error {
			answer, err := a.Try(ctx, rig.Request{Proxy: i, Path: chat.path, Key: a.account.Key, Body: chat.body(model)})
			if err == nil && answer.Status != http.StatusServiceUnavailable {
				err = fmt.Errorf("got %s", answer)
			}
			return err
		})
	}
	var got *adminclient.RequestExplanation
	rig.Await(t, "the explanation of every proxy", func(ctx context.Context) (err error) {
		if got, err = a.explained(ctx, a.account.KeyID, chat, chat.body(model)); err == nil && got.Outcome != adminclient.RequestExplanationOutcomeRefused {
			err = fmt.Errorf("the outcome is %s", got.Outcome)
			for i := range a.Proxies { // a breaker is half-open after its pause: the probe opens it again
				a.Do(t, rig.Request{Proxy: i, Path: chat.path, Key: a.account.Key, Body: chat.body(model)})
			}
		}
		return err
	})
	if step(t, got, "routes"); got.Refusal.Status != http.StatusServiceUnavailable || got.Refusal.RetryAfter == nil || *got.Proxies[0].Routes[0].Skipped != "breaker_open" {
		t.Errorf("refusal %+v, routes %+v", got.Refusal, got.Proxies[0].Routes)
	}
}

// A video job that is not billed yet is expected to cost all that is left of a window: a further one is refused.
func TestExplanationPredictsThatVideoJobsTakeTheRest(t *testing.T) {
	a := newAPI(t)
	held := newHeldVideos(t, a.Rig)
	limited, err := a.Admin.CreateLimit(t.Context(), a.account.ID, &adminclient.CreateLimitParams{Wait: new(adminclient.WaitForApplied)}, adminclient.LimitCreate{
		Amount: "0.000001", Window: hourOfFirstUse(),
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := a.explained(t.Context(), a.account.KeyID, videos, videos.body(held.model))
	if err != nil || got.Outcome != adminclient.RequestExplanationOutcomeSent {
		t.Fatalf("before the first job: got %+v, %v", got, err)
	}
	if id, got := held.create(t, a.Rig, 0, a.account.Key); id == "" {
		t.Fatalf("the first job: got %s", got)
	}
	got = a.predict(t, a.account.KeyID, a.account.Key, videos, videos.body(held.model), http.StatusForbidden)
	step(t, got, "admission")
	for _, n := range got.Needs {
		if isLimit := n.LimitID != nil && *n.LimitID == limited.Value.ID; n.Enough == isLimit {
			t.Errorf("needs %+v; want too little of the limit only", n)
		}
	}
	// What is no video waits for no job.
	if got, err := a.explained(t.Context(), a.account.KeyID, chat, chat.body(a.Model(t, rig.Model{}))); err != nil || got.Outcome == adminclient.RequestExplanationOutcomeRefused && *got.Refusal.Reason == "limit" {
		t.Errorf("a chat: got %+v, %v", got, err)
	}
}
