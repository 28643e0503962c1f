package format

import (
	"bytes"
	"math"

	"modelgateway/dataplane/internal/jsonspan"
)

// isIntegral tells whether a number is an integer, of whatever size.
func isIntegral(raw []byte) bool {
	_, ok := integer(raw)
	return ok
}

// integer returns the value of an integral number; one that does not fit is moved to
// the bound of int64 that it is beyond. ok is false for anything else.
func integer(raw []byte) (value int64, ok bool) {
	if value, ok = jsonspan.Int64(raw); ok {
		return value, true
	}
	if jsonspan.KindOf(raw) != jsonspan.KindNumber {
		return 0, false
	}
	bound := int64(math.MaxInt64)
	if raw[0] == '-' {
		bound = math.MinInt64
	}
	mantissa, exponent := raw, []byte("0")
	if i := bytes.IndexAny(raw, "eE"); i >= 0 {
		mantissa, exponent = raw[:i], bytes.TrimPrefix(raw[i+1:], []byte("+"))
	}
	_, fraction, _ := bytes.Cut(mantissa, []byte("."))
	digits := int64(len(bytes.TrimRight(fraction, "0")))
	if exponent[0] == '-' {
		// It was integral and small enough to be read, or it is not integral;
		// there is no telling a thousand digits apart here, nor a need to.
		return 0, false
	}
	if e, ok := jsonspan.Int64(bytes.TrimLeft(exponent, "0")); ok && e < digits {
		return 0, false
	}
	return bound, digits == 0 || len(bytes.Trim(exponent, "0")) > 0
}

// maxCount bounds the counts that are taken from a provider, so that sums of them
// cannot overflow. No answer is that long.
const maxCount = 1 << 40

// Count reads a count of a usage object. Anything but a whole number is none, and
// none is negative.
func Count(raw []byte) int64 {
	n, _ := jsonspan.Int64(raw)
	return min(max(n, 0), maxCount)
}
