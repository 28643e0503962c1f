package answer

import "testing"

func TestIsCost(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"cost": true, "cost_details": true, "estimated_cost": true, "totalCost": true, "cost_in_usd_ticks": true, "is_byok": true, "pricing": true, "price": true,
		"COST": true, "creditsUsed": true, "upstream_inference_cost": true,
		"": false, "prompt_tokens": false, "service_tier": false, "queue_time": false, "num_sources_used": false, "billed_units": false,
		"upstream_inference_completions_cost": true, "a_name_that_is_longer_than_any_that_a_provider_would_give_to_one_cost": false,
	} {
		if got := IsCost([]byte(name)); got != want {
			t.Errorf("%q: got %v", name, got)
		}
	}
}
