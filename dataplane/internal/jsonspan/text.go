package jsonspan

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// stringError is the result of scanning a string.
type stringError uint8

const (
	stringOK stringError = iota
	stringTruncated
	stringControl
	stringEscape
	stringUTF8
)

// String describes the error.
func (f stringError) String() string {
	switch f {
	case stringTruncated:
		return "unexpected end of text in a string"
	case stringControl:
		return "control character in a string"
	case stringEscape:
		return "invalid escape in a string"
	case stringUTF8:
		return "invalid UTF-8 in a string"
	default:
		return "no error"
	}
}

const (
	lsb = 0x0101010101010101 // 1 in every byte
	msb = 0x8080808080808080 // the high bit of every byte
)

// specialBytes sets the high bit of those bytes of w that end a run of plain string text: quote, backslash, control
// characters and everything beyond ASCII. A borrow may wrongly mark bytes above the lowest marked byte, but the lowest
// mark is always right.
func specialBytes(w uint64) uint64 {
	// Flipping bit 1 swaps the quote (0x22) with the space (0x20) and leaves the
	// control characters below 0x20, so one comparison finds both.
	return (w | ((w ^ lsb*0x02) - lsb*0x21) | ((w ^ lsb*'\\') - lsb)) & msb
}

// skipPlain returns the index of the first special byte at or after i, or len(b). Runs are often short, and need no call.
func skipPlain(b []byte, i int) int {
	if len(b)-i >= 8 {
		if m := specialBytes(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	return skipRun(b, i)
}

// plainBlock is the number of bytes that vector instructions check at once.
const plainBlock = 64

// skipRun is skipPlain for longer runs.
func skipRun(b []byte, i int) int {
	if hasVectors && len(b)-i >= plainBlock {
		i += plainBlocks(b[i:])
	}

	// Four words at a time: it hides the latency of the loads, and prompts are
	// mostly long runs.
	for len(b)-i >= 32 {
		p := b[i : i+32 : i+32]
		m0 := specialBytes(binary.LittleEndian.Uint64(p[0:8]))
		m1 := specialBytes(binary.LittleEndian.Uint64(p[8:16]))
		m2 := specialBytes(binary.LittleEndian.Uint64(p[16:24]))
		m3 := specialBytes(binary.LittleEndian.Uint64(p[24:32]))
		if m0|m1|m2|m3 != 0 {
			switch {
			case m0 != 0:
				return i + bits.TrailingZeros64(m0)>>3
			case m1 != 0:
				return i + 8 + bits.TrailingZeros64(m1)>>3
			case m2 != 0:
				return i + 16 + bits.TrailingZeros64(m2)>>3
			}
			return i + 24 + bits.TrailingZeros64(m3)>>3
		}

		i += 32
	}

	for len(b)-i >= 8 {
		if m := specialBytes(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		i += 8
	}

	for i < len(b) && b[i] >= ' ' && b[i] < utf8.RuneSelf && b[i] != '"' && b[i] != '\\' {
		i++
	}

	return i
}

// scanString reads the string whose first byte after the opening quote is at i. It returns the index after the
// closing quote and whether the string has escapes. With an error, end is the index of the offending byte.
func scanString(b []byte, i int) (end int, escaped bool, f stringError) {
	for {
		i = skipPlain(b, i)
		if i == len(b) {
			return i, escaped, stringTruncated
		}

		switch c := b[i]; {
		case c == '"':
			return i + 1, escaped, stringOK
		case c == '\\':
			escaped = true
			// Escapes come in runs if a client escapes all characters beyond ASCII.
			for i < len(b) && b[i] == '\\' {
				n := escapeLen(b[i:])
				if n == 0 {
					return i, escaped, stringEscape
				}
				i += n
			}
		case c < ' ':
			return i, escaped, stringControl
		default:
			var ok bool
			if i, ok = scanRunes(b, i); !ok {
				return i, escaped, stringUTF8
			}
		}
	}
}

// escapeLen returns the length of the escape that b begins with, 0 if it is invalid.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) >= 6 && hexValue[b[2]]|hexValue[b[3]]|hexValue[b[4]]|hexValue[b[5]] < 16 {
			return 6
		}
	}
	return 0
}

// hexValue maps a hexadecimal digit to its value, and any other byte to 0xff.
var hexValue = func() (t [256]uint8) {
	for i := range t {
		switch c := byte(i); {
		case isDigit(c):
			t[i] = c - '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			t[i] = c | 0x20 - 'a' + 10
		default:
			t[i] = 0xff
		}
	}
	return t
}()

// scanRunes reads text with runes beyond ASCII from i on. It returns the index of the first byte that skipPlain or
// scanString has to look at again; ok is false if invalid UTF-8 begins there.
func scanRunes(b []byte, i int) (end int, ok bool) {
	// With four bytes left, each usual length is checked with a few masks.
	for len(b)-i >= 4 {
		w := binary.LittleEndian.Uint32(b[i:])
		switch {
		case w&0x80 == 0:
			// A single space between two words does not end the loop.
			if c := byte(w); w&0x80808080 == 0 || c < ' ' || c == '"' || c == '\\' {
				return i, true
			}
			i++
		case w&0xc0e0 == 0x80c0:
			if w&0x1e == 0 { // overlong
				return i, false
			}
			i += 2
		case w&0xc0c0f0 == 0x8080e0:
			// These bits distinguish overlong forms and surrogates.
			if x := w & 0x200f; x == 0 || x == 0x200d {
				return i, false
			}
			i += 3
		default:
			n := runeLen(b[i:])
			if n == 0 {
				return i, false
			}
			i += n
		}
	}

	for i < len(b) && b[i] >= utf8.RuneSelf {
		n := runeLen(b[i:])
		if n == 0 {
			return i, false
		}
		i += n
	}

	return i, true
}

// runeLen returns the length of the rune that b begins with, 0 if it is invalid.
func runeLen(b []byte) int {
	r, n := utf8.DecodeRune(b)
	if r == utf8.RuneError && n == 1 {
		return 0
	}
	return n
}
