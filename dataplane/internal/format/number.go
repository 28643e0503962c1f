package format

import (
	"bytes"
	"math"

	"modelgateway/dataplane/internal/jsonspan"
)

// isIntegral reports whether a number is an integer of any size.
func isIntegral(raw []byte) bool {
	_, ok := integer(raw)
	return ok
}

// integer returns the value of an integral number. A value beyond int64 is replaced by the nearest int64. ok is false
// for anything else.
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
		// Int64 has read every integral number of usual length. A thousand digits before a negative exponent are not
		// worth checking.
		return 0, false
	}

	if e, ok := jsonspan.Int64(bytes.TrimLeft(exponent, "0")); ok && e < digits {
		return 0, false
	}

	return bound, digits == 0 || len(bytes.Trim(exponent, "0")) > 0
}
