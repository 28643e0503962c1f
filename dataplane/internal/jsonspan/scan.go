package jsonspan

import "strconv"

// The scanner is a recursive descent over the body. Each function takes the index of the first byte of an item and
// returns the index after the item, or -1 after it has set o.err. MaxDepth bounds the recursion.

// fail sets the first error and returns -1.
func (o *Object) fail(offset int, msg string) int {
	o.err = &SyntaxError{Offset: offset, Msg: msg}
	return -1
}

// scanObject reads the object whose opening brace is at i. At depth one it also records the members.
func (o *Object) scanObject(i, depth int) int {
	body := o.body
	if depth > MaxDepth {
		return o.fail(i, "nested too deep")
	}

	frame := o.keys.push()
	place, outside := o.place, o.sizes
	var kind []byte // the member type
	i = SkipSpace(body, i+1)
	if i < len(body) && body[i] == '}' {
		return i + 1
	}

	for {
		keyStart := i
		name, valueStart := o.scanKey(&frame, i)
		if valueStart < 0 {
			return -1
		}

		before := o.sizes
		if c := body[min(valueStart, len(body)-1)]; c == '{' || c == '[' {
			o.place = place.inside(name, depth)
		}

		if i = o.scanValue(valueStart, depth+1); i < 0 {
			o.prependPath(string(clipName(name)), "")
			return -1
		}

		o.place = place
		if body[valueStart] == '"' {
			o.sizes.addString(place, name, body[valueStart+1:i-1])
			if string(name) == "type" {
				kind = body[valueStart:i]
			}
		}

		if depth == 1 {
			o.members = append(o.members, Member{
				Name:  name,
				Key:   Span{keyStart, keyStart + frame.quoted},
				Value: Span{valueStart, i},
				Kind:  KindOf(body[valueStart:]),
				Size: Size{
					Bytes:         i - valueStart,
					MediaBytes:    o.sizes.MediaBytes - before.MediaBytes,
					MediaParts:    o.sizes.MediaParts - before.MediaParts,
					FileBytes:     o.sizes.FileBytes - before.FileBytes,
					PlainBytes:    o.sizes.PlainBytes - before.PlainBytes,
					DenseBytes:    o.sizes.DenseBytes - before.DenseBytes,
					Addresses:     o.sizes.Addresses - before.Addresses,
					FileAddresses: o.sizes.FileAddresses - before.FileAddresses,
				},
			})
		}

		i = SkipSpace(body, i)
		if i == len(body) {
			return o.fail(i, "unexpected end of text in an object")
		}

		switch body[i] {
		case ',':
			i = SkipSpace(body, i+1)
		case '}':
			o.sizes.endObject(place, &outside, kind)
			o.keys.pop(frame)
			return i + 1
		default:
			return o.fail(i, "expected a comma or the end of the object")
		}
	}
}

// scanKey reads a name at i and the colon after it. It returns the decoded name and the index of the value.
func (o *Object) scanKey(frame *keyFrame, i int) (name []byte, value int) {
	body := o.body
	if i == len(body) || body[i] != '"' {
		return nil, o.fail(i, "expected a member name")
	}

	end, escaped, fault := scanString(body, i+1)
	if fault != stringOK {
		return nil, o.fail(end, fault.String())
	}

	frame.quoted = end - i
	name, outcome := o.keys.add(frame, body, i+1, end-1, escaped)
	switch outcome {
	case keyDuplicate:
		o.err = &DuplicateError{Path: string(clipName(name)), Offset: i}
		return nil, -1
	case keyOverLimit:
		return nil, o.fail(i, "too many members")
	case keyAdded:
	}

	i = SkipSpace(body, end)
	if i == len(body) || body[i] != ':' {
		return nil, o.fail(i, "expected a colon after a member name")
	}

	return name, SkipSpace(body, i+1)
}

// scanArray reads the array whose opening bracket is at i.
func (o *Object) scanArray(i, depth int) int {
	body := o.body
	if depth > MaxDepth {
		return o.fail(i, "nested too deep")
	}

	i = SkipSpace(body, i+1)
	if i < len(body) && body[i] == ']' {
		return i + 1
	}

	for n := 0; ; n++ {
		start := i
		if i = o.scanValue(start, depth+1); i < 0 {
			o.prependPath("", "["+strconv.Itoa(n)+"]")
			return -1
		}
		if body[start] == '"' {
			o.sizes.addString(o.place, nil, body[start+1:i-1])
		}

		i = SkipSpace(body, i)
		if i == len(body) {
			return o.fail(i, "unexpected end of text in an array")
		}

		switch body[i] {
		case ',':
			i = SkipSpace(body, i+1)
		case ']':
			return i + 1
		default:
			return o.fail(i, "expected a comma or the end of the array")
		}
	}
}

// scanValue reads the value at i, which has the given depth if it is an object or array.
func (o *Object) scanValue(i, depth int) int {
	body := o.body
	if i == len(body) {
		return o.fail(i, "unexpected end of text before a value")
	}

	switch c := body[i]; {
	case c == '"':
		end, _, fault := scanString(body, i+1)
		if fault != stringOK {
			return o.fail(end, fault.String())
		}
		return end
	case c == '{':
		return o.scanObject(i, depth)
	case c == '[':
		return o.scanArray(i, depth)
	case c == '-' || isDigit(c):
		end, ok := scanNumber(body, i)
		if !ok {
			return o.fail(end, "malformed number")
		}
		return end
	case c == 't':
		return o.scanLiteral(i, "true")
	case c == 'f':
		return o.scanLiteral(i, "false")
	case c == 'n':
		return o.scanLiteral(i, "null")
	}

	return o.fail(i, "expected a value")
}

func (o *Object) scanLiteral(i int, word string) int {
	if end := i + len(word); end <= len(o.body) && string(o.body[i:end]) == word {
		return end
	}
	return o.fail(i, "expected a value")
}

// scanNumber reads the number at i. If it is malformed, end is the offending byte.
func scanNumber(b []byte, i int) (end int, ok bool) {
	if b[i] == '-' {
		i++
	}

	// A leading zero stands alone: what follows it can only be a fraction, an
	// exponent or the end.
	if i < len(b) && b[i] == '0' {
		i++
	} else if i, ok = scanDigits(b, i); !ok {
		return i, false
	}

	if i < len(b) && b[i] == '.' {
		if i, ok = scanDigits(b, i+1); !ok {
			return i, false
		}
	}

	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if i, ok = scanDigits(b, i); !ok {
			return i, false
		}
	}

	return i, true
}

// scanDigits reads one or more digits.
func scanDigits(b []byte, i int) (end int, ok bool) {
	start := i
	for i < len(b) && isDigit(b[i]) {
		i++
	}
	return i, i > start
}

func isDigit(c byte) bool { return c-'0' <= 9 }

// SkipSpace returns the index of the first byte at or after i that is no white space.
func SkipSpace(b []byte, i int) int {
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	return i
}

func isSpace(c byte) bool { return c <= ' ' && (c == ' ' || c == '\n' || c == '\t' || c == '\r') }

const (
	maxNameInPath = 64
	maxPath       = 256
)

// clipName shortens a name for a message, between two runes.
func clipName(name []byte) []byte {
	if len(name) <= maxNameInPath {
		return name
	}
	n := maxNameInPath
	for n > 0 && name[n]&0xc0 == 0x80 {
		n--
	}
	return name[:n]
}

// prependPath adds a step to the front of the path of a DuplicateError while it travels up. It does nothing without
// such an error.
func (o *Object) prependPath(name, index string) {
	dup, ok := o.err.(*DuplicateError) //nolint:errorlint // errors of this package are never wrapped here
	if !ok || len(dup.Path) > maxPath {
		return
	}
	step := name + index
	if dup.Path[:min(1, len(dup.Path))] != "[" {
		step += "."
	}
	dup.Path = step + dup.Path
}
