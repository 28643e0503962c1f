package event

import (
	"math"
	"strings"
	"testing"

	"modelgateway/shared/price"
)

func TestHonestUsageIsPlausible(t *testing.T) {
	t.Parallel()
	for name, u := range map[string]Usage{
		"at the limits":                    {MaxInput: 128_000, MaxOutput: 4096, Usage: price.Usage{Input: 128_000, Output: 4096}},
		"no limit is known":                {Usage: price.Usage{Input: 10_000_000, Output: 10_000_000}},
		"one token asked, thinking twice":  {MaxOutput: 1, Usage: price.Usage{Output: 100_001, Reasoning: 100_000}},
		"thinking is not reported apart":   {MaxOutput: 4096, Usage: price.Usage{Output: 4096 + 12_000}},
		"an image in the answer":           {MaxOutput: 100, Usage: price.Usage{Output: 40_100, ImageOut: 40_000}},
		"speech":                           {MaxOutput: 100, Usage: price.Usage{Output: 60_100, AudioOut: 60_000}},
		"a little beyond one token":        {MaxOutput: 1, Usage: price.Usage{Output: 20}},
		"the prompt is cached":             {MaxInput: 200_000, Usage: price.Usage{Input: 10, CachedInput: 190_000, CacheWrite1h: 9_000}},
		"the provider counts by itself":    {MaxInput: 8000, Usage: price.Usage{Input: 13_000}},
		"several turns with a web search":  {MaxInput: 200_000, MaxOutput: 1000, Usage: price.Usage{Input: 900_000, Output: 4000, ServerToolRequests: 4}},
		"a limit beyond every number":      {MaxOutput: math.MaxInt64, MaxInput: math.MaxInt64, Usage: price.Usage{Output: 1 << 20, Input: 1 << 20}},
		"a video that is rounded up":       {MaxSeconds: 4, Usage: price.Usage{Seconds: 8}},
		"a video of the provider's length": {MaxSeconds: 4, Usage: price.Usage{Seconds: 10}},
		"a long video, rounded up":         {MaxSeconds: 60, Usage: price.Usage{Seconds: 120}},
		"a video of unknown length":        {Usage: price.Usage{Seconds: 60}},
	} {
		u.Rule = RuleReported
		if reason := u.Implausible(); reason != "" {
			t.Errorf("%s: got %q", name, reason)
		}
	}
	if reason := (&Usage{Rule: RuleEstimated, MaxOutput: 1, Usage: price.Usage{Output: 1 << 30}}).Implausible(); reason != "" {
		t.Errorf("estimate of the proxy: got %q", reason)
	}
}

func TestUsageBeyondTheRequestIsImplausible(t *testing.T) {
	t.Parallel()
	for want, u := range map[string]Usage{
		"output is 100000000":                                  {MaxOutput: 1, Usage: price.Usage{Output: 100_000_000}},
		"50000 output tokens for a request of":                 {MaxOutput: 100, Usage: price.Usage{Output: 50_000}},
		"output tokens for a request of at most 3":             {MaxOutput: 3, Usage: price.Usage{Output: 600_000, Reasoning: 599_999}},
		"input tokens for a request of at most 8000":           {MaxInput: 8000, Usage: price.Usage{Input: 8000, CachedInput: 40_000}},
		"a video of 61 seconds for a request of 4":             {MaxSeconds: 4, Usage: price.Usage{Seconds: 61}},
		"seconds is 2147483647":                                {MaxSeconds: 4, Usage: price.Usage{Seconds: math.MaxInt32}},
		"server_tool_requests is 1000000":                      {Usage: price.Usage{ServerToolRequests: 1_000_000}},
		"secondary.output is 100000000":                        {Usage: price.Usage{Secondary: price.Secondary{Output: 100_000_000}}},
		"cached_input is -1":                                   {Usage: price.Usage{CachedInput: -1}},
		"3000000 output tokens for a request of at most 10000": {MaxOutput: 10_000, Usage: price.Usage{Output: 3_000_000, ServerToolRequests: 9000}},
		"images is 9223372036854775807":                        {Usage: price.Usage{Images: math.MaxInt64}},
		"reasoning is 9223372036854775807":                     {MaxOutput: 1, Usage: price.Usage{Reasoning: math.MaxInt64, AudioOut: math.MaxInt64}},
	} {
		u.Rule = RuleReported
		if got := u.Implausible(); !strings.Contains(got, want) {
			t.Errorf("got %q; want %q", got, want)
		}
	}
}

func TestImplausibleUsageIsNotChargedToLeases(t *testing.T) {
	t.Parallel()
	u := Usage{Rule: RuleReported, Cost: 7}
	if got := u.LeaseCharge(); got != 7 {
		t.Errorf("plausible usage: %d; want its cost", got)
	}
	u.Usage.Input = -1
	if got := u.LeaseCharge(); got != 0 {
		t.Errorf("implausible usage: %d; want nothing", got)
	}
}
