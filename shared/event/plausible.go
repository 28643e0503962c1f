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
	// honestSeconds is a length in seconds that a video may have whatever was requested: some providers have few lengths,
	// and make the one that they have.
	honestSeconds = 60
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
	_, reason := u.Beyond()
	return reason
}

// Part names a part of a usage.
type Part string

// The parts.
const (
	InputPart     Part = "input"
	OutputPart    Part = "output"
	ImagesPart    Part = "images"
	SecondsPart   Part = "seconds"
	ToolsPart     Part = "server_tool_requests"
	SecondaryPart Part = "secondary"
)

// Beyond returns the first part of the usage that is beyond what the request allows, and why; both are empty if there is
// none.
func (u *Usage) Beyond() (Part, string) {
	if part, reason := u.absurd(); reason != "" {
		return part, reason
	}
	n := &u.Usage
	turns := 1 + min(n.ServerToolRequests, maxTurns)
	output := n.Output - min(n.Reasoning+n.AudioOut+n.ImageOut, maxHidden)
	switch {
	case u.MaxOutput > 0 && exceeds(output, u.MaxOutput, turns):
		return OutputPart, fmt.Sprintf("implausible usage: %d output tokens for a request of at most %d", n.Output, u.MaxOutput)
	case u.MaxInput > 0 && exceeds(n.TotalInput(), u.MaxInput, turns):
		return InputPart, fmt.Sprintf("implausible usage: %d input tokens for a request of at most %d", n.TotalInput(), u.MaxInput)
	case u.MaxSeconds > 0 && n.Seconds > max(excess*u.MaxSeconds, honestSeconds):
		return SecondsPart, fmt.Sprintf("implausible usage: a video of %d seconds for a request of %d", n.Seconds, u.MaxSeconds)
	}
	return "", ""
}

// exceeds reports whether n is beyond excess*limit*turns + extra. The limit may be
// any number of the client's, so it is not multiplied before it is compared.
func exceeds(n, limit, turns int64) bool {
	return limit <= maxTokens && n > excess*limit*turns+extra
}

// absurd returns the part and a reason if a count is beyond that of any request.
func (u *Usage) absurd() (Part, string) {
	n, second := &u.Usage, &u.Usage.Secondary
	for _, count := range [...]struct {
		part     Part
		name     string
		n, limit int64
	}{
		{InputPart, "input", n.Input, maxTokens},
		{InputPart, "cached_input", n.CachedInput, maxTokens},
		{InputPart, "cache_write_5m", n.CacheWrite5m, maxTokens},
		{InputPart, "cache_write_1h", n.CacheWrite1h, maxTokens},
		{InputPart, "cache_write_30m", n.CacheWrite30m, maxTokens},
		{InputPart, "cache_write_12h", n.CacheWrite12h, maxTokens},
		{InputPart, "cache_write_other", n.CacheWriteOther, maxTokens},
		{OutputPart, "output", n.Output, maxTokens},
		{OutputPart, "reasoning", n.Reasoning, maxTokens},
		{InputPart, "audio_in", n.AudioIn, maxTokens},
		{OutputPart, "audio_out", n.AudioOut, maxTokens},
		{InputPart, "image_in", n.ImageIn, maxTokens},
		{OutputPart, "image_out", n.ImageOut, maxTokens},
		{ImagesPart, "images", n.Images, maxItems},
		{SecondsPart, "seconds", n.Seconds, maxSeconds},
		{ToolsPart, "server_tool_requests", n.ServerToolRequests, maxItems},
		{SecondaryPart, "secondary.input", second.Input, maxTokens},
		{SecondaryPart, "secondary.cached_input", second.CachedInput, maxTokens},
		{SecondaryPart, "secondary.cache_write_5m", second.CacheWrite5m, maxTokens},
		{SecondaryPart, "secondary.cache_write_1h", second.CacheWrite1h, maxTokens},
		{SecondaryPart, "secondary.image_in", second.ImageIn, maxTokens},
		{SecondaryPart, "secondary.output", second.Output, maxTokens},
		{SecondaryPart, "secondary.reasoning", second.Reasoning, maxTokens},
		{SecondaryPart, "secondary.image_out", second.ImageOut, maxTokens},
		{SecondaryPart, "secondary.images", second.Images, maxItems},
	} {
		if count.n < 0 || count.n > count.limit {
			return count.part, fmt.Sprintf("implausible usage: %s is %d", count.name, count.n)
		}
	}

	return "", ""
}
