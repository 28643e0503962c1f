package jsonspan

import "bytes"

// Size says how much of a value is text that a model may read, and how much is
// media written into it.
type Size struct {
	// Bytes is the length of the value as written.
	Bytes int
	// MediaBytes is how many of them are the text of long data URLs and base64
	// members. They say little about tokens, so an estimate leaves them out and
	// counts MediaParts instead.
	MediaBytes int
	// MediaParts is the number of such strings.
	MediaParts int
}

const (
	// minMedia is the length of text from which a string may be media. Shorter
	// ones are not worth a look: at worst a tiny picture counts as text.
	minMedia = 1024
	// mediaSample is how much of a string is looked at to tell.
	mediaSample = 256
)

// Measure measures a value as written, in a text that Parse has accepted. For a
// top-level member Parse has done it already: see Member.Size.
func Measure(raw []byte) Size {
	size := Size{Bytes: len(raw)}
	var name []byte // of the member whose value comes next
	for i := 0; i < len(raw); {
		if raw[i] != '"' {
			if raw[i] == ',' || raw[i] == '[' || raw[i] == '{' {
				name = nil
			}
			i++
			continue
		}
		end := SkipString(raw, i)
		if next := SkipSpace(raw, end); next < len(raw) && raw[next] == ':' {
			name = raw[i:end]
		} else if end-i > minMedia {
			decoded, _ := Text(nil, name)
			size.addString(decoded, raw[i+1:end-1])
		}
		i = end
	}
	return size
}

// addString counts the inside of a string, the value of the member of that name,
// if it is media.
func (s *Size) addString(name, text []byte) {
	if len(text) >= minMedia && isMedia(name, text[:mediaSample]) {
		s.MediaBytes += len(text)
		s.MediaParts++
	}
}

// isMedia tells by the start of a long string whether it is media. Text that only
// claims to be must not pass, or a prompt could hide from the estimate.
func isMedia(name, start []byte) bool {
	if rest, ok := bytes.CutPrefix(start, []byte("data:")); ok {
		header, _, ok := bytes.Cut(rest, []byte(","))
		return ok && (bytes.IndexByte(header, ' ') < 0 || bytes.HasSuffix(header, []byte(";base64")))
	}
	switch string(name) {
	case "data", "b64_json", "file_data":
		// The same names also carry plain text, which has spaces and
		// punctuation within so many bytes.
		return isBase64(start)
	}
	return false
}

// isBase64 tells whether b has only bytes of base64 in either alphabet, with the
// slash perhaps escaped.
func isBase64(b []byte) bool {
	for _, c := range b {
		switch {
		case c|0x20 >= 'a' && c|0x20 <= 'z', isDigit(c):
		case c == '+', c == '/', c == '\\', c == '-', c == '_', c == '=':
		default:
			return false
		}
	}
	return true
}
