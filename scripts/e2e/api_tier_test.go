package e2e

import (
	"fmt"
	"testing"

	"modelgateway/scripts/e2e/rig"
)

// tierPrices are prices of service tiers, each with another one for long inputs.
var tierPrices = map[string]prices{
	"default":  {"input": "1.00", "output": "2.00"},
	"priority": {"input": "2.00", "output": "5.00"},
	"flex":     {"input": "0.50", "output": "1.00"},
	"fast":     {"input": "6.00", "output": "13.00"},
}

const longTierInput = "9.00"

// tieredPrice is a price with all service tiers.
func tieredPrice() map[string]any {
	tiers := []any{map[string]any{"above_input": 100_000, "input": longTierInput}}
	of := func(name string) map[string]any {
		return map[string]any{"input": tierPrices[name]["input"], "output": tierPrices[name]["output"], "tiers": tiers}
	}
	p := of("default")
	var named []any
	for _, name := range []string{"priority", "flex", "fast"} {
		entry := of(name)
		entry["name"] = name
		named = append(named, entry)
	}
	p["service_tiers"] = named
	return p
}

// Each answer is charged at the prices of the service tier that it names, also if the provider has downgraded the request.
func TestAnswersAreChargedByTheirServiceTier(t *testing.T) {
	a := newAPI(t)
	for _, tt := range []struct {
		e             endpoint
		asked, answer string // what the request names, and what the directive makes the answer name
		tier          string
	}{
		{chat, "", "", "default"},
		{chat, "priority", "", "priority"},
		{chat, "flex", "", "flex"},
		{chat, "priority", "default", "default"},
		{chat, "auto", "priority", "priority"},
		{responses, "", "", "default"},
		{responses, "priority", "", "priority"},
		{responses, "flex", "", "flex"},
		{responses, "flex", "default", "default"},
		{messages, "", "", "default"},
		{messages, "auto", "priority", "priority"},
		{messages, "auto", "", "default"},
		{messages, "fast", "", "fast"},
		{messages, "fast", "standard", "default"},
	} {
		directives := "out=10"
		if tt.answer != "" {
			directives += ",tier=" + tt.answer
		}
		model := a.Model(t, rig.Model{Formats: []string{tt.e.format}, Directives: directives, Price: tieredPrice()})
		for _, stream := range []bool{false, true} {
			name := fmt.Sprintf("%s, stream %v, %q answered in %q", tt.e.format, stream, tt.asked, tt.answer)
			body := tt.e.with(model, "stream", stream)
			switch tt.asked {
			case "":
			case "fast":
				body["speed"] = tt.asked
			default:
				body["service_tier"] = tt.asked
			}
			usage := a.AwaitUsage(t, a.ok(t, tt.e.path, body).RequestID())
			if usage.Usage["service_tier"] != tt.tier {
				t.Errorf("%s: the record has the usage %+v; want the service tier %s", name, usage.Usage, tt.tier)
			}
			checkReceipt(t, usage, tierPrices[tt.tier], *journalEntry(t, a.Rig, model, *usage.ProviderRequestID).Counts)
			if usage.Estimated {
				t.Errorf("%s is an estimate", name)
			}
		}
	}
}

// The reservation is that of the dearest service tier in which the request can be answered.
func TestReservationCoversTheDearestServiceTier(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Formats: []string{"chat"}, Directives: "out=10", Price: tieredPrice()})
	reserved := func(asked any) string {
		body := chat.with(model, "max_completion_tokens", 1000)
		body["service_tier"] = asked
		return a.AwaitUsage(t, a.ok(t, chat.path, body).RequestID()).Reservation
	}
	plain := rat(t, reserved(nil))
	for asked, dearer := range map[string]bool{"default": false, "flex": false, "priority": true, "auto": true} {
		got := rat(t, reserved(asked))
		if (got.Cmp(plain) > 0) != dearer || got.Cmp(plain) < 0 {
			t.Errorf("%s: reserved are %s; %s in the default tier", asked, got.FloatString(9), plain.FloatString(9))
		}
	}
}

func TestServiceTierWithoutPricesIsRefused(t *testing.T) {
	a := newAPI(t)
	plain := a.Model(t, rig.Model{})
	tiered := a.Model(t, rig.Model{Price: tieredPrice()})
	for _, e := range []endpoint{chat, responses} {
		a.refusedPost(t, e.path, e.with(plain, "service_tier", "priority"), refusal{400, "unsupported_value", "service_tier"})
		a.refusedPost(t, e.path, e.with(tiered, "service_tier", "scale"), refusal{400, "unsupported_value", "service_tier"})
	}
	a.refusedPost(t, messages.path, messages.with(plain, "speed", "fast"), refusal{400, "unsupported_value", "speed"})
	a.refusedPost(t, messages.path, messages.with(tiered, "service_tier", "priority"), refusal{400, "unsupported_value", "service_tier"})
}
