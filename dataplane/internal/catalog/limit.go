package catalog

import (
	"math"

	"modelgateway/shared/catalogkv"
)

// InputLimit returns how many input tokens a request with a body of this size can
// have at most, or zero if that is unknown. A batch of texts can be larger than
// the context window, but no token is shorter than a byte.
func (m *Model) InputLimit(bodyBytes int) int64 {
	if m.ContextWindow <= 0 {
		return 0
	}
	return max(m.ContextWindow, int64(bodyBytes))
}

// BoundedOutput returns the output limit that a request effectively has: its own, or that of the model if it is lower.
// requested is zero if the request has none; the result is zero if neither is known.
func (m *Model) BoundedOutput(requested int64) int64 {
	if m.MaxOutputTokens > 0 && (requested <= 0 || requested > m.MaxOutputTokens) {
		return m.MaxOutputTokens
	}
	return max(requested, 0)
}

// OutputLimit returns how many output tokens an answer with n choices can have at
// most, or zero if that is unknown. requested is the limit in the request, zero if
// it has none. Image models have no limit in tokens.
func (m *Model) OutputLimit(requested, n int64) int64 {
	if m.Type == catalogkv.Image {
		return 0
	}
	for _, limit := range [...]int64{m.BoundedOutput(requested), m.ContextWindow} {
		if limit > math.MaxInt64/max(n, 1) {
			return 0
		}
		if limit > 0 {
			return limit * max(n, 1)
		}
	}
	return 0
}
