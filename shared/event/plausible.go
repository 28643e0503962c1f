package event

import "fmt"

// The bounds of plausible usage. They are far above honest differences: thinking
// tokens beyond the output limit, several turns of the model within one request,
// and providers that count in another way than their documentation says.
const (
	// excess is by which factor usage may exceed what the request allows, extra how many tokens in addition.
	excess, extra = 2, 8192
	// maxHidden bounds the output tokens that an output limit need not cover: thinking, audio and images.
	maxHidden = 1 << 18
	// maxTurns bounds how often a request with tools of the provider counts its limits.
	maxTurns = 100
	// maxTokens, maxSeconds and maxItems bound every single count, also that of a request without a limit.
	maxTokens, maxSeconds, maxItems = 1 << 26, 24 * 60 * 60, 10_000
)

// Implausible returns why the reported usage cannot be that of the request, or an
// empty string. Such an event is not charged but goes into quarantine. Usage that
// the proxy has estimated is always plausible.
func (u *Usage) Implausible() string {
	if u.Rule != RuleReported {
		return ""
	}
	if reason := u.absurd(); reason != "" {
		return reason
	}
	n := &u.Usage
	turns := 1 + min(n.ServerToolRequests, maxTurns)
	output := n.Output - min(n.Reasoning+n.AudioOut+n.ImageOut, maxHidden)
	switch {
	case u.MaxOutput > 0 && exceeds(output, u.MaxOutput, turns):
		return fmt.Sprintf("implausible usage: %d output tokens for a request of at most %d", n.Output, u.MaxOutput)
	case u.MaxInput > 0 && exceeds(n.TotalInput(), u.MaxInput, turns):
		return fmt.Sprintf("implausible usage: %d input tokens for a request of at most %d", n.TotalInput(), u.MaxInput)
	case u.MaxSeconds > 0 && n.Seconds > excess*u.MaxSeconds:
		return fmt.Sprintf("implausible usage: a video of %d seconds for a request of %d", n.Seconds, u.MaxSeconds)
	}
	return ""
}

// exceeds reports whether n is beyond excess*limit*turns + extra. The limit may be
// any number of the client's, so it is not multiplied before it is compared.
func exceeds(n, limit, turns int64) bool {
	return limit <= maxTokens && n > excess*limit*turns+extra
}

// absurd returns a reason if a count is beyond that of any request.
func (u *Usage) absurd() string {
	n, second := &u.Usage, &u.Usage.Secondary
	for _, count := range [...]struct {
		name     string
		n, limit int64
	}{
		{"input", n.Input, maxTokens},
		{"cached_input", n.CachedInput, maxTokens},
		{"cache_write_5m", n.CacheWrite5m, maxTokens},
		{"cache_write_1h", n.CacheWrite1h, maxTokens},
		{"cache_write_30m", n.CacheWrite30m, maxTokens},
		{"cache_write_12h", n.CacheWrite12h, maxTokens},
		{"cache_write_other", n.CacheWriteOther, maxTokens},
		{"output", n.Output, maxTokens},
		{"reasoning", n.Reasoning, maxTokens},
		{"audio_in", n.AudioIn, maxTokens},
		{"audio_out", n.AudioOut, maxTokens},
		{"image_in", n.ImageIn, maxTokens},
		{"image_out", n.ImageOut, maxTokens},
		{"images", n.Images, maxItems},
		{"seconds", n.Seconds, maxSeconds},
		{"server_tool_requests", n.ServerToolRequests, maxItems},
		{"secondary.input", second.Input, maxTokens},
		{"secondary.cached_input", second.CachedInput, maxTokens},
		{"secondary.cache_write_5m", second.CacheWrite5m, maxTokens},
		{"secondary.cache_write_1h", second.CacheWrite1h, maxTokens},
		{"secondary.image_in", second.ImageIn, maxTokens},
		{"secondary.output", second.Output, maxTokens},
		{"secondary.reasoning", second.Reasoning, maxTokens},
		{"secondary.image_out", second.ImageOut, maxTokens},
		{"secondary.images", second.Images, maxItems},
	} {
		if count.n < 0 || count.n > count.limit {
			return fmt.Sprintf("implausible usage: %s is %d", count.name, count.n)
		}
	}
	return ""
}
