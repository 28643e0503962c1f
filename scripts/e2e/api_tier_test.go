package e2e

import (
	"fmt"
	"testing"

	"modelgateway/scripts/e2e/rig"
)

// tierPrices are prices of service tiers, longPrices those for long inputs in them.
var (
	tierPrices = map[string]prices{
		"default":  {"input": "1.00", "cached_input": "0.10", "output": "2.00"},
		"priority": {"input": "2.00", "cached_input": "0.20", "output": "5.00"},
		"flex":     {"input": "0.50", "cached_input": "0.05", "output": "1.00"},
		"scale":    {"input": "1.50", "cached_input": "0.15", "output": "3.00"},
		"fast":     {"input": "6.00", "cached_input": "0.60", "output": "13.00"},
	}
	longPrices = map[string]prices{
		"default":  {"input": "3.00", "cached_input": "0.30", "output": "7.00"},
		"priority": {"input": "8.00", "cached_input": "0.80", "output": "11.00"},
		"flex":     {"input": "1.70", "cached_input": "0.17", "output": "4.00"},
		"scale":    {"input": "4.00", "cached_input": "0.40", "output": "9.00"},
		"fast":     {"input": "9.00", "cached_input": "0.90", "output": "19.00"},
	}
)

// tieredPrice is a price with all service tiers, each with other prices above a length of the input.
func tieredPrice(above int64) map[string]any {
	of := func(name string) map[string]any {
		long, entry := map[string]any{"above_input": above}, map[string]any{}
		for _, line := range []string{"input", "cached_input", "output"} {
			long[line], entry[line] = longPrices[name][line], tierPrices[name][line]
		}
		entry["tiers"] = []any{long}
		return entry
	}
	p := of("default")
	var named []any
	for _, name := range []string{"priority", "flex", "scale", "fast"} {
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
		{chat, "scale", "", "scale"},
		{chat, "priority", "default", "default"},
		{chat, "auto", "priority", "priority"},
		{chat, "auto", "scale", "scale"},
		{responses, "", "", "default"},
		{responses, "priority", "", "priority"},
		{responses, "flex", "", "flex"},
		{responses, "scale", "", "scale"},
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
		model := a.Model(t, rig.Model{Formats: []string{tt.e.format}, Directives: directives, Price: tieredPrice(100_000)})
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

// An input of exactly the length that is the limit of a service tier has its prices for short inputs, one token more those for long
// ones. What came from a cache counts.
func TestLongInputsAreChargedByTheirServiceTier(t *testing.T) {
	a := newAPI(t)
	plain := a.Model(t, rig.Model{Formats: []string{"chat"}})
	first := a.AwaitUsage(t, a.ok(t, chat.path, chat.with(plain, "stream", false)).RequestID())
	length := journalEntry(t, a.Rig, plain, *first.ProviderRequestID).Counts.Input
	for _, cached := range []int64{0, length - 1} {
		for above, want := range map[int64]map[string]prices{length: tierPrices, length - 1: longPrices} {
			model := a.Model(t, rig.Model{Formats: []string{"chat"}, Directives: fmt.Sprintf("out=10,cached=%d", cached), Price: tieredPrice(above)})
			for i, tier := range []string{"default", "priority", "flex", "scale"} {
				body := chat.with(model, "stream", i%2 == 0)
				body["service_tier"] = tier
				usage := a.AwaitUsage(t, a.ok(t, chat.path, body).RequestID())
				counts := *journalEntry(t, a.Rig, model, *usage.ProviderRequestID).Counts
				if counts.Input+counts.CachedInput != length || counts.CachedInput != cached {
					t.Errorf("the provider has counted %+v; want %d tokens of input, %d cached", counts, length, cached)
				}
				checkReceipt(t, usage, want[tier], counts)
				if usage.Usage["service_tier"] != tier || usage.Estimated {
					t.Errorf("above %d, %d cached, %s: the record has the usage %+v, estimated %v", above, cached, tier, usage.Usage, usage.Estimated)
				}
			}
		}
	}
}

// The reservation is that of the dearest service tier in which the request can be answered.
func TestReservationCoversTheDearestServiceTier(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Formats: []string{"chat"}, Directives: "out=10", Price: tieredPrice(100_000)})
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
	tiered := a.Model(t, rig.Model{Price: tieredPrice(100_000)})
	for _, e := range []endpoint{chat, responses} {
		a.refusedPost(t, e.path, e.with(plain, "service_tier", "priority"), refusal{400, "unsupported_value", "service_tier"})
		a.refusedPost(t, e.path, e.with(tiered, "service_tier", "turbo"), refusal{400, "unsupported_value", "service_tier"})
	}
	a.refusedPost(t, messages.path, messages.with(plain, "speed", "fast"), refusal{400, "unsupported_value", "speed"})
	a.refusedPost(t, messages.path, messages.with(tiered, "service_tier", "priority"), refusal{400, "unsupported_value", "service_tier"})
}
