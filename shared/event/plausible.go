package event

import (
	"fmt"

	"modelgateway/shared/price"
)

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
	for i, count := range u.Usage.Counts() {
		if k := &price.Kinds[i]; *count < 0 || *count > limitOf(k) {
			return PartOf(k), fmt.Sprintf("implausible usage: %s is %d", k.Line, *count)
		}
	}

	for _, count := range secondaryCounts(&u.Usage.Secondary) {
		if count.n < 0 || count.n > count.limit {
			return SecondaryPart, fmt.Sprintf("implausible usage: secondary.%s is %d", count.name, count.n)
		}
	}

	return "", ""
}

// secondaryCount is a count of the usage of a secondary model, and the most that a plausible one is.
type secondaryCount struct {
	name     string
	n, limit int64
}

func secondaryCounts(second *price.Secondary) [9]secondaryCount {
	return [...]secondaryCount{
		{"input", second.Input, maxTokens},
		{"cached_input", second.CachedInput, maxTokens},
		{"cache_write_5m", second.CacheWrite5m, maxTokens},
		{"cache_write_1h", second.CacheWrite1h, maxTokens},
		{"image_in", second.ImageIn, maxTokens},
		{"output", second.Output, maxTokens},
		{"reasoning", second.Reasoning, maxTokens},
		{"image_out", second.ImageOut, maxTokens},
		{"images", second.Images, maxItems},
	}
}

// limitOf bounds the count of a kind in any request.
func limitOf(k *price.Kind) int64 {
	switch k.Unit {
	case price.Tokens:
		return maxTokens
	case price.SecondUnit:
		return maxSeconds
	default:
		return maxItems
	}
}

// PartOf returns the part that a kind belongs to.
func PartOf(k *price.Kind) Part {
	switch {
	case k.IsInput():
		return InputPart
	case k.IsOutput():
		return OutputPart
	default:
		return Part(k.Line)
	}
}
