package jsonspan

import (
	"bytes"
	"math"
	"unicode/utf16"
	"unicode/utf8"
)

// The readers below take a value as written, from a text that Parse has accepted. For other text their results are
// undefined, but they never panic.

// KindOf returns the type of the value that raw begins with, determined by its first byte. It returns KindInvalid if no
// value begins with that byte, or raw is empty.
func KindOf(raw []byte) Kind {
	if len(raw) == 0 {
		return KindInvalid
	}

	switch c := raw[0]; {
	case c == '"':
		return KindString
	case c == '{':
		return KindObject
	case c == '[':
		return KindArray
	case c == 't':
		return KindTrue
	case c == 'f':
		return KindFalse
	case c == 'n':
		return KindNull
	case c == '-' || isDigit(c):
		return KindNumber
	}

	return KindInvalid
}

// Bool returns the value of true or false; ok is false for anything else.
func Bool(raw []byte) (value, ok bool) {
	k := KindOf(raw)
	return k == KindTrue, k == KindTrue || k == KindFalse
}

// Text returns the decoded text of a string; ok is false if raw is no string. Without escapes the text aliases raw;
// with escapes it is decoded into buf[:0], which grows as needed. Lone surrogate escapes become U+FFFD.
func Text(buf, raw []byte) (text []byte, ok bool) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return nil, false
	}
	raw = raw[1 : len(raw)-1 : len(raw)-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw, true
	}
	return appendUnescaped(buf[:0], raw), true
}

// appendUnescaped appends the decoded text between the quotes of a string to dst.
func appendUnescaped(dst, raw []byte) []byte {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 || i+1 == len(raw) {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:i]...)
		raw = raw[i:]
		if raw[1] == 'u' {
			var r rune
			r, raw = unescapeRune(raw)
			dst = utf8.AppendRune(dst, r)
			continue
		}
		dst = append(dst, unescapeByte(raw[1]))
		raw = raw[2:]
	}
}

func unescapeByte(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// unescapeRune decodes the \u escape, or the surrogate pair of two, that raw begins with.
func unescapeRune(raw []byte) (r rune, rest []byte) {
	r, rest, ok := hexEscape(raw)
	if !ok {
		return utf8.RuneError, raw[2:]
	}
	if !utf16.IsSurrogate(r) {
		return r, rest
	}
	if low, after, ok := hexEscape(rest); ok {
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return pair, after
		}
	}
	return utf8.RuneError, rest
}

// hexEscape decodes one \uXXXX.
func hexEscape(raw []byte) (r rune, rest []byte, ok bool) {
	if len(raw) < 6 || raw[1] != 'u' || escapeLen(raw) != 6 || raw[0] != '\\' {
		return 0, raw, false
	}
	for _, c := range raw[2:6] {
		r = r<<4 | rune(hexValue[c])
	}
	return r, raw[6:], true
}

// Int64 returns the value of an integral number however it is spelt: 3, 3.0, 3e0 and 30e-1 are all 3. ok is false for
// other numbers, for those that do not fit, and for anything but a number. It uses no floating-point arithmetic.
func Int64(raw []byte) (value int64, ok bool) {
	if KindOf(raw) != KindNumber {
		return 0, false
	}
	if end, ok := scanNumber(raw, 0); !ok || end != len(raw) {
		return 0, false
	}

	negative := raw[0] == '-'
	if negative {
		raw = raw[1:]
	}

	digits, exponent := raw, 0
	if i := bytes.IndexAny(raw, "eE"); i >= 0 {
		digits, exponent = raw[:i], readExponent(raw[i+1:])
	}

	magnitude, ok := scale(digits, exponent)
	switch {
	case !ok:
		return 0, false
	case negative && magnitude <= 1<<63:
		return -int64(magnitude), true
	case !negative && magnitude <= math.MaxInt64:
		return int64(magnitude), true
	}

	return 0, false
}

// readExponent parses the digits of an exponent. It stops counting far above the length that a number can have, so
// that the sum with that length cannot overflow.
func readExponent(raw []byte) int {
	sign, e := 1, 0
	if raw[0] == '-' {
		sign = -1
	}
	for _, c := range bytes.TrimLeft(raw, "+-") {
		if e < 1<<40 {
			e = 10*e + int(c-'0')
		}
	}
	return sign * e
}

// scale returns digits, which may contain a point, times ten to the power of exponent. ok is false if the result is
// no integer or has more than 64 bits.
func scale(digits []byte, exponent int) (value uint64, ok bool) {
	point := bytes.IndexByte(digits, '.')
	if point < 0 {
		point = len(digits)
	}

	last := len(digits) - 1
	for last >= 0 && (digits[last] == '0' || digits[last] == '.') {
		last--
	}

	if last < 0 {
		return 0, true
	}

	// power is the power of ten of the last significant digit.
	power := exponent + point - last - 1
	if last > point {
		power++
	}
	if power < 0 {
		return 0, false
	}

	for _, c := range digits[:last+1] {
		if c == '.' {
			continue
		}
		if value, ok = timesTen(value, uint64(c-'0')); !ok {
			return 0, false
		}
	}

	for ; power > 0; power-- {
		if value, ok = timesTen(value, 0); !ok {
			return 0, false
		}
	}

	return value, true
}

// timesTen returns 10*v + add; ok is false if that has more than 64 bits.
func timesTen(v, add uint64) (uint64, bool) {
	if v > (math.MaxUint64-add)/10 {
		return 0, false
	}
	return 10*v + add, true
}
