package jsonspan

import "bytes"

// Size is the length of a value: how much of it is text that a model may read, and how much is embedded media.
type Size struct {
	// Bytes is the length of the value as written.
	Bytes int
	// MediaBytes is the length of the long data URLs and base64 members in the value. It says little about tokens, so
	// an estimate leaves it out and counts MediaParts instead.
	MediaBytes int
	// MediaParts is the number of such strings.
	MediaParts int
	// FileBytes is the part of MediaBytes that is no image: documents and audio, whose tokens grow with their length.
	FileBytes int
}

const (
	// minMedia is the length from which a string may be media. A shorter one is not worth checking: at worst a tiny
	// image counts as text.
	minMedia = 1024
	// mediaSample is how many bytes of a string are checked.
	mediaSample = 256
)

// addString counts the text of a string if it is media. name is that of its member, nil in an array.
func (s *Size) addString(name, text []byte) {
	if len(text) >= minMedia && isMedia(name, text[:mediaSample]) {
		s.MediaBytes += len(text)
		s.MediaParts++
		if !isImage(text[:mediaSample]) {
			s.FileBytes += len(text)
		}
	}
}

// isMedia reports whether the first bytes of a long string are those of media. Text that only looks like media must not
// count as media, otherwise a client could hide a prompt from the estimate.
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

// isImage reports whether media are an image, by the type of a data URL or the first bytes in base64: PNG, JPEG, GIF, WebP.
func isImage(start []byte) bool {
	for _, begin := range []string{"data:image", "iVBORw0KGgo", "/9j/", `\/9j\/`, "R0lGOD"} {
		if bytes.HasPrefix(start, []byte(begin)) {
			return true
		}
	}
	return bytes.HasPrefix(start, []byte("UklGR")) && string(start[12:16]) == "RUJQ" // WAV files have the same first letters
}

// isBase64 reports whether b consists of bytes of base64 in either alphabet. The slash may be escaped.
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
