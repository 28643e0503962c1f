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

// OutputLimit returns how many output tokens an answer with n choices can have at
// most, or zero if that is unknown. requested is the limit in the request, zero if
// it has none. Image models have no limit in tokens.
func (m *Model) OutputLimit(requested, n int64) int64 {
	if m.Type == catalogkv.Image {
		return 0
	}
	for _, limit := range [...]int64{requested, m.MaxOutputTokens, m.ContextWindow} {
		if limit > math.MaxInt64/max(n, 1) {
			return 0
		}
		if limit > 0 {
			return limit * max(n, 1)
		}
	}
	return 0
}
