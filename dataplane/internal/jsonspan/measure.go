package jsonspan

import "bytes"

// Size is the length of a value: how much of it is text that a model may read, and how much is media.
type Size struct {
	// Bytes is the length of the value as written.
	Bytes int
	// MediaBytes is the length of the media in the value: data URLs, base64, and addresses of media. It says little about
	// tokens, so an estimate leaves it out and counts MediaParts and FileBytes instead.
	MediaBytes int
	// MediaParts is the number of media.
	MediaParts int
	// FileBytes is the part of MediaBytes that is no image: documents and audio, whose tokens grow with their length.
	FileBytes int
	// Addresses is the number of MediaParts that are only named by an address, and FileAddresses that of those that are no
	// images: documents, audio and videos of unknown length.
	Addresses, FileAddresses int
}

// place is what the strings of an object or array may be.
type place uint8

const (
	// prose: a message, a part of one, or a list of them.
	prose place = iota
	// carrier: an object that carries one media, such as source or image_url.
	carrier
	// fileCarrier: one that carries no image.
	fileCarrier
	// opaque: a definition of a tool, or its arguments. All of it is read as text, whatever its members are called; so is
	// all that is inside.
	opaque
)

// inside returns the place of the object or array that is the value of a member. A client may choose the names inside of
// an opaque value freely, so none of them makes anything media.
func (p place) inside(name []byte, depth int) place {
	if p == opaque {
		return opaque
	}
	switch string(name) {
	case "source", "image_url", "input_reference":
		return carrier
	case "input_audio", "audio", "audio_url", "video_url", "file":
		return fileCarrier
	case "tools",
		"tool",
		"functions",
		"parameters",
		"input_schema",
		"schema",
		"json_schema",
		"response_format",
		"text",
		"arguments",
		"metadata":
		return opaque
	case "input": // of a call of a tool; that of the body is the prompt
		if depth > 1 {
			return opaque
		}
	}
	return prose
}

// addString counts a string if it is media: by its member, and by what it is. Text that only looks like media must not
// count as media, otherwise a client could hide a prompt from the estimate.
func (s *Size) addString(p place, name, text []byte) {
	switch string(name) {
	case "url", "data":
		if p != carrier && p != fileCarrier {
			return
		}
	case "image_url", "video_url", "file_url", "file_data", "b64_json":
		if p == opaque {
			return
		}
	case "result": // of an image tool, in the history of a conversation
		if p != prose || !hasImageBytes(text) {
			return
		}
	default:
		return
	}

	if isAddress(text) {
		s.Addresses++
		if p == fileCarrier || string(name) == "file_url" || string(name) == "video_url" {
			s.FileAddresses++
		}
	} else {
		isImage, isFile := classify(text)
		if !isImage && !isFile {
			return
		}
		if isFile {
			s.FileBytes += len(text)
		}
	}

	s.MediaBytes += len(text)
	s.MediaParts++
}

// endObject corrects the sizes at the end of an object with the type kind, as written, nil if it has none. before are the
// sizes at its begin. The member data of a source of the type text is text. The source of a document, an audio or a video
// is named like that of an image: only the type of the part, which may stand before or after it, says what is at its
// address.
func (s *Size) endObject(p place, before *Size, kind []byte) {
	switch {
	case kind == nil:
	case p == carrier:
		if string(kind) == `"text"` {
			*s = *before
		}
	case p == prose && s.Addresses > before.Addresses:
		switch text, _ := Text(nil, kind); string(text) {
		case "document", "audio", "video":
			s.FileAddresses = before.FileAddresses + s.Addresses - before.Addresses
		}
	}
}

func isAddress(text []byte) bool {
	return bytes.HasPrefix(text, []byte("https:")) || bytes.HasPrefix(text, []byte("http:"))
}

// classify reports whether a text is an image, or a document or audio. It is neither if a model would read it as it is.
func classify(text []byte) (isImage, isFile bool) {
	rest, isURL := bytes.CutPrefix(text, []byte("data:"))
	if !isURL {
		isImage = hasImageBytes(text)
		return isImage, !isImage && isBase64(text)
	}

	header, _, ok := bytes.Cut(rest[:min(len(rest), maxMediaType)], []byte(","))
	content := rest[min(len(header)+1, len(rest)):]
	switch {
	case !ok || !bytes.HasSuffix(header, []byte("base64")):
		return false, false // percent-encoded text
	case !isBase64(content):
		return false, false
	}

	isImage = bytes.HasPrefix(header, []byte("image")) && !bytes.HasPrefix(header, []byte("image/svg"))
	return isImage, !isImage
}

// maxMediaType bounds the media type of a data URL, in bytes.
const maxMediaType = 256

// hasImageBytes reports whether a text is an image in base64, by its first bytes: PNG, JPEG, GIF, WebP.
func hasImageBytes(text []byte) bool {
	for _, begin := range []string{"iVBORw0KGgo", "/9j/", `\/9j\/`, "R0lGOD"} {
		if bytes.HasPrefix(text, []byte(begin)) {
			return isBase64(text)
		}
	}
	// WAV files have the same first letters as WebP.
	return len(text) > 16 && bytes.HasPrefix(text, []byte("UklGR")) && string(text[12:16]) == "RUJQ" && isBase64(text)
}

const (
	// sampleSize and samples say how much of a long text isBase64 reads: so many bytes at so many places. Reading all of
	// an image of a megabyte would take several times as long as parsing it.
	sampleSize = 64
	samples    = 16
)

// isBase64 reports whether text consists of bytes of base64 in either alphabet, by samples from its start to its end.
// A slash may be escaped.
func isBase64(text []byte) bool {
	if len(text) <= sampleSize*samples {
		return len(text) > 0 && isAlphabet(text)
	}
	for i := range samples {
		at := i * (len(text) - sampleSize) / (samples - 1)
		if !isAlphabet(text[at : at+sampleSize]) {
			return false
		}
	}
	return true
}

func isAlphabet(b []byte) bool {
	for i, c := range b {
		switch {
		case c|0x20 >= 'a' && c|0x20 <= 'z', isDigit(c):
		case c == '+', c == '/', c == '-', c == '_', c == '=':
		case c == '\\' && (i+1 == len(b) || b[i+1] == '/' || b[i+1] == 'n' || b[i+1] == 'r'): // lines of MIME
		default:
			return false
		}
	}
	return true
}
