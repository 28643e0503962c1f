package videos

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// IsText reports whether the beginning of a content is nothing, an error in JSON, a sentence or a page, whatever its media type
// says: no video or image begins with such bytes.
func IsText(content []byte) bool {
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	content = bytes.TrimSpace(content)
	if len(content) == 0 {
		return true
	}
	switch content[0] {
	case '{', '[', '<', '"':
		return true
	}
	return string(content) == "null" || isSentence(content)
}

// isSentence reports whether content has several words and nothing but characters that one can read.
func isSentence(content []byte) bool {
	content = content[:min(len(content), maxSentence)]
	return utf8.Valid(content) && bytes.IndexByte(content, ' ') > 0 && !bytes.ContainsFunc(content, func(r rune) bool {
		return unicode.IsControl(r) && !unicode.IsSpace(r)
	})
}

// maxSentence is how much of a content is looked at, in bytes: the head of each video and image has others than readable ones.
const maxSentence = 256

// IsTextType reports whether a media type is text, such as an error in JSON or a page of a proxy, and not a video or an image.
func IsTextType(contentType string) bool {
	media, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	media = strings.TrimSpace(media)
	return strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "json") || strings.HasSuffix(media, "xml")
}
