package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
)

// toldCost returns the last members "usage" with a cost of an answer, a stream or not.
func toldCost(t *testing.T, answer *rig.Answer, stream bool) (cost json.Number, currency string) {
	t.Helper()
	texts := []string{string(answer.Body)}
	if stream {
		texts = nil
		for _, e := range answer.Events() {
			texts = append(texts, e.Data)
		}
	}
	type usage struct {
		Cost     json.Number `json:"cost"`
		Currency string      `json:"cost_currency"`
	}
	for _, text := range texts {
		var body struct {
			Usage    usage
			Response struct{ Usage usage }
		}
		if !strings.HasPrefix(text, "{") {
			continue
		}
		if err := json.Unmarshal([]byte(text), &body); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for _, u := range []usage{body.Usage, body.Response.Usage} {
			if u.Cost != "" {
				cost, currency = u.Cost, u.Currency
			}
		}
	}
	return cost, currency
}

// The proxy tells a cost before it is settled: what is settled afterwards must be the same.
func TestCostOfAnAnswerIsThatOfItsReceipt(t *testing.T) {
	a := newAPI(t)
	for _, e := range generations {
		if e.kind() != "text" {
			continue
		}
		model := a.Model(t, rig.Model{
			Price:      prices{"input": "1.234567", "cached_input": "0.10", "output": "2.50"}.document(),
			Formats:    []string{e.format},
			Directives: "out=33,cached=3",
		})
		for _, stream := range []bool{false, true} {
			body := e.body(model)
			if stream {
				body["stream"] = true
			}
			answer := a.Do(t, rig.Request{Path: e.path, Key: a.account.Key, Body: body, Header: http.Header{"X-Include-Cost": {"1"}}})
			cost, currency := toldCost(t, answer, stream)
			if answer.Status != http.StatusOK || cost == "" {
				t.Fatalf("%s, stream %t: got %s; want an answer with its cost", e.path, stream, answer)
			}
			usage := a.AwaitUsage(t, answer.RequestID())
			if rat(t, cost.String()).Cmp(rat(t, usage.Cost)) != 0 || len(currency) != 3 {
				t.Errorf("%s, stream %t: told %s %q, charged %s", e.path, stream, cost, currency, usage.Cost)
			}
			if cost, _ := toldCost(t, a.ok(t, e.path, body), stream); cost != "" {
				t.Errorf("%s, stream %t: told %s without being asked", e.path, stream, cost)
			}
		}
	}
}

// An operator can make all answers of an account have their cost.
func TestAccountIsToldItsCostsUnasked(t *testing.T) {
	a := newAPI(t)
	set := func(include bool) {
		t.Helper()
		wait := adminclient.WaitForApplied
		_, err := a.Admin.UpdateAccount(t.Context(), a.account.ID, &adminclient.UpdateAccountParams{Wait: &wait}, adminclient.AccountPatch{IncludeCost: &include})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, include := range []bool{true, false} {
		set(include)
		for _, stream := range []bool{false, true} {
			body := generations[0].body(a.Model(t, rig.Model{Formats: []string{generations[0].format}}))
			if stream {
				body["stream"] = true
			}
			answer := a.ok(t, generations[0].path, body)
			cost, _ := toldCost(t, answer, stream)
			if !include {
				if cost != "" {
					t.Errorf("stream %t: told %s, which the account does not want", stream, cost)
				}
				continue
			}
			if charged := a.AwaitUsage(t, answer.RequestID()).Cost; cost == "" || rat(t, cost.String()).Cmp(rat(t, charged)) != 0 {
				t.Errorf("stream %t: told %q, charged %s", stream, cost, charged)
			}
		}
	}
}

// The demo has provider prices, half of its prices, so that whoever tries the product sees a margin.
func TestDemoCatalogHasAMargin(t *testing.T) {
	a := newAPI(t)
	for _, e := range generations {
		if e.kind() == "video" {
			continue
		}
		usage := a.AwaitUsage(t, a.ok(t, e.path, e.body(e.model)).RequestID())
		if usage.ProviderCost == nil || rat(t, usage.Cost).Sign() == 0 || amount(t, 2, *usage.ProviderCost, 1).Cmp(rat(t, usage.Cost)) != 0 {
			t.Errorf("%s: got %v for %s; want half of it", e.model, usage.ProviderCost, usage.Cost)
		}
	}
}
