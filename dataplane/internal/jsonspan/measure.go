package jsonspan

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"unicode/utf8"
)

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
	// PlainBytes is the part of FileBytes that is plain text in base64, whose tokens are those of a text.
	FileBytes, PlainBytes int
	// DenseBytes is the part of the text that has no words, such as base64 and hexadecimal digits: a token of it is much
	// shorter than one of a word.
	DenseBytes int
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

// addString counts a string that is the value of a member, or an element of a list if name is nil.
func (s *Size) addString(p place, name, text []byte) {
	if !s.addMedia(p, name, text) && (p == opaque || !isSealed(name)) {
		s.DenseBytes += denseBytes(text)
	}
}

// isSealed reports whether a member of a message has what only the provider reads: its tokens are those of the text that is
// encrypted.
func isSealed(name []byte) bool {
	switch string(name) {
	case "encrypted_content", "signature", "thought_signature", "thoughtSignature", "data":
		return true
	}
	return false
}

// addMedia counts a string if it is media: by its member, and by what it is. Text that only looks like media must not
// count as media, otherwise a client could hide a prompt from the estimate.
func (s *Size) addMedia(p place, name, text []byte) bool {
	switch string(name) {
	case "url", "data":
		if p != carrier && p != fileCarrier {
			return false
		}
	case "image_url", "video_url", "file_url", "file_data", "b64_json":
		if p == opaque {
			return false
		}
	case "result": // of an image tool, in the history of a conversation
		if p != prose || !hasImageBytes(text) {
			return false
		}
	default:
		return false
	}

	if isAddress(text) {
		s.Addresses++
		if p == fileCarrier || string(name) == "file_url" || string(name) == "video_url" {
			s.FileAddresses++
		}
	} else if !s.addFile(text) {
		return false
	}

	s.MediaBytes += len(text)
	s.MediaParts++
	return true
}

// addFile counts a text that is an image, a document or audio, and reports whether it is.
func (s *Size) addFile(text []byte) bool {
	isImage, isFile := classify(text)
	if isFile {
		s.FileBytes += len(text)
		if isPlainText(text) {
			s.PlainBytes += len(text)
		}
	}
	return isImage || isFile
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
			dense := before.DenseBytes + s.MediaBytes - before.MediaBytes // it looks like base64, and is read as it is
			*s = *before
			s.DenseBytes = dense
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

// isPlainText reports whether a file in base64 begins with text.
func isPlainText(text []byte) bool {
	if rest, isURL := bytes.CutPrefix(text, []byte("data:")); isURL {
		header, content, _ := bytes.Cut(rest[:min(len(rest), maxMediaType+plainSample)], []byte(","))
		if bytes.HasPrefix(header, []byte("text/")) {
			return true
		}
		text = content
	}

	var begin [plainSample / 4 * 3]byte
	n, _ := base64.StdEncoding.Decode(begin[:], text[:min(len(text)/4*4, plainSample)])
	if n == 0 || bytes.HasPrefix(begin[:n], []byte("%PDF")) {
		return false
	}
	return !bytes.ContainsFunc(begin[:n], func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == utf8.RuneError
	})
}

// plainSample is how much of a file isPlainText reads, a multiple of four. A letter of several bytes at its end would be
// taken for none, so it reads ASCII text only.
const plainSample = 64

// denseRun is how long a run of letters and digits without a space is that has no words: longer than words and names.
const denseRun = 32

// denseBytes returns how many bytes of a text are in runs of base64, hexadecimal digits or the like. It reads eight bytes of
// about 25, as prose has a space in nearly all of them: no run of denseRun bytes goes over that, so the next eight are those before
// which one could end that begins after the first of them. Where in them the space is does not matter, so that the processor need
// not wait for it.
func denseBytes(text []byte) (n int) {
	for at := denseRun; at <= len(text); {
		if hasSpace(text[at-8 : at]) {
			at += denseRun - 7
			continue
		}
		start := at - denseRun
		if gap := lastGap(text, start, at); gap >= 0 {
			at = gap + 1 + denseRun
			continue
		}

		end := denseEnd(text, start, at)
		if run := text[start:end]; hasLetters(run) {
			n += len(run)
		}
		at = end + denseRun
	}
	return n
}

// hasSpace reports whether there is a space in eight bytes. With the bits of a space flipped it is zero, and only a zero, or the
// exclamation mark after one, gets its highest bit when one is subtracted from each byte.
func hasSpace(text []byte) bool {
	const ones, highest = 0x0101010101010101, 0x8080808080808080
	flipped := binary.LittleEndian.Uint64(text) ^ ' '*ones
	return (flipped-ones)&^flipped&highest != 0
}

// lastGap returns the index of the last byte of text[start:end] that is not dense, -1 if all are.
func lastGap(text []byte, start, end int) int {
	for i := end - 1; i >= start; i-- {
		if !dense[text[i]] && !isEscapedSlash(text[i:]) {
			return i
		}
	}
	return -1
}

func isEscapedSlash(text []byte) bool { return text[0] == '\\' && len(text) > 1 && text[1] == '/' }

// denseEnd returns the end of the run that begins at start and has text[end-1].
func denseEnd(text []byte, start, end int) int {
	for end < len(text) {
		switch {
		case end-start >= 2*denseRun && end+7 < len(text) &&
			dense[text[end]] && dense[text[end+3]] && dense[text[end+5]] && dense[text[end+7]]:
			end += 8 // prose has no run as long as this, so samples do
		case dense[text[end]], isEscapedSlash(text[end:]):
			end++
		default:
			return end
		}
	}
	return end
}

// hasLetters reports whether a run is more than a line of dashes, by denseRun bytes of all of it: such a line may stand before base64.
func hasLetters(run []byte) bool {
	letters := 0
	for i := range denseRun {
		c := run[i*len(run)/denseRun]
		if c|0x20 >= 'a' && c|0x20 <= 'z' || isDigit(c) {
			letters++
		}
	}
	return letters > denseRun/2
}

// dense are the letters of base64 in either alphabet.
var dense = func() (set [256]bool) {
	for c := range set {
		set[c] = isAlphabet([]byte{byte(c)}) && c != '\\'
	}
	return set
}()
