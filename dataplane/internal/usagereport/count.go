package usagereport

import (
	"bytes"
	"math"

	"modelgateway/dataplane/internal/jsonspan"
)

// maxCount bounds a count, so that sums of counts cannot overflow. No answer is that long.
const maxCount = 1 << 40

// Count reads a count: a number that is not negative, or a string with its decimal digits. A fraction is rounded up: some
// providers convert the units of others. A missing value and null are zero. ok is false for anything else, also for a
// count whose meaning can be guessed: a guess would be charged.
func Count(raw []byte) (n int64, ok bool) {
	switch jsonspan.KindOf(raw) {
	case jsonspan.KindNull:
		return 0, true
	case jsonspan.KindNumber:
		return ceil(raw)
	case jsonspan.KindString:
		digits, _ := jsonspan.Text(nil, raw)
		if bytes.ContainsAny(digits, "eE-") {
			return 0, false
		}
		return ceil(digits)
	case jsonspan.KindInvalid, jsonspan.KindTrue, jsonspan.KindFalse, jsonspan.KindObject, jsonspan.KindArray:
	}
	return 0, len(raw) == 0
}

// ceil returns a decimal number as the next whole one, at most maxCount. It uses no floating-point arithmetic. ok is false
// if text is no number, or a negative one.
func ceil(text []byte) (n int64, ok bool) {
	negative := len(text) > 0 && text[0] == '-'
	if negative {
		text = text[1:]
	}

	whole, rest := cutDigits(text)
	if len(whole) == 0 {
		return 0, false
	}

	var fraction []byte
	if len(rest) > 0 && rest[0] == '.' {
		if fraction, rest = cutDigits(rest[1:]); len(fraction) == 0 {
			return 0, false
		}
	}

	exponent := 0
	if len(rest) > 0 {
		if exponent, ok = readExponent(rest); !ok {
			return 0, false
		}
	}

	n = scale(whole, fraction, exponent)
	return n, n == 0 || !negative
}

// cutDigits cuts the digits off that text begins with.
func cutDigits(text []byte) (digits, rest []byte) {
	end := 0
	for end < len(text) && '0' <= text[end] && text[end] <= '9' {
		end++
	}
	return text[:end], text[end:]
}

// readExponent reads an exponent with its letter. A large one is replaced by one that is large enough.
func readExponent(text []byte) (exponent int, ok bool) {
	if text[0] != 'e' && text[0] != 'E' {
		return 0, false
	}

	text = text[1:]
	sign := 1
	if len(text) > 0 && (text[0] == '-' || text[0] == '+') {
		if text[0] == '-' {
			sign = -1
		}
		text = text[1:]
	}

	digits, rest := cutDigits(text)
	for _, c := range digits {
		exponent = min(10*exponent+int(c-'0'), math.MaxInt32)
	}

	return sign * exponent, len(digits) > 0 && len(rest) == 0
}

// scale returns whole.fraction times ten to the power of exponent, rounded up, at most maxCount.
func scale(whole, fraction []byte, exponent int) (n int64) {
	// The digits before the point move it to the left or to the right.
	before := len(whole) + exponent
	at := 0
	for _, digits := range [...][]byte{whole, fraction} {
		for _, c := range digits {
			switch at++; {
			case at <= before:
				n = min(10*n+int64(c-'0'), maxCount)
			case c != '0':
				return min(n+1, maxCount)
			}
		}
	}

	for ; at < before && 0 < n && n < maxCount; at++ {
		n = min(10*n, maxCount)
	}

	return n
}
