package httpapi_test

import "testing"

// metric returns the value of a counter or gauge, summed over its labels.
func (g *gateway) metric(name string) (sum float64) {
	g.t.Helper()
	families, err := g.metrics.Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			for _, m := range family.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
			return sum
		}
	}
	g.t.Fatalf("there is no metric %s", name)
	return 0
}

func TestAttemptsAndTokensAreCounted(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(200, chatJSON))
	if got := g.post("/v1/chat/completions", `{"model":"text","messages":[]}`); got.status != 200 {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	if n := g.metric("mgw_provider_attempts_total"); n != 1 {
		t.Errorf("%v attempts; want 1", n)
	}
	if n := g.metric("mgw_tokens_total"); n != 15 {
		t.Errorf("%v tokens; want 15", n)
	}
}
