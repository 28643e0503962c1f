package upstream

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/zstd"

	"modelgateway/dataplane/internal/provider"
)

// maxWindow is the largest window of a zstd frame in bytes, the one that RFC 8878 asks decoders to support.
const maxWindow = 8 << 20

// decode replaces the body of an answer that is compressed, although the call asks for none, by its content, and removes
// the byte order mark of a text. What cannot be decoded becomes an empty body: nobody can read it. The bounds are those of
// whoever reads the body; the decoder itself needs at most its window.
func decode(a *provider.Answer) {
	if a.Body == nil {
		return
	}

	encoding := strings.ToLower(strings.TrimSpace(strings.Join(a.Header["Content-Encoding"], ",")))
	if encoding != "" && encoding != "identity" {
		decodeAs(a, encoding)
	}
	if a.Status != http.StatusPartialContent && mayBeText(a.Header.Get("Content-Type")) {
		a.Body = readText(a.Body)
	}
}

// decodeAs is decode for an encoding that the answer declares.
func decodeAs(a *provider.Answer, encoding string) {
	a.Header = a.Header.Clone()
	a.Header.Del("Content-Encoding")
	a.Header.Del("Content-Length")
	a.Length = -1
	body := &decodedBody{encoded: a.Body}
	switch {
	case a.Status == http.StatusPartialContent: // a part of a compressed file
	case encoding == "gzip" || encoding == "x-gzip":
		body.openFunc = openGzip
	case encoding == "deflate":
		body.openFunc = openDeflate
	case encoding == "zstd":
		body.openFunc = openZstd
	}

	a.Body = provider.NoAwait{ReadCloser: body}
}

// decodedBody is the content of a compressed body. The decoder begins with the first read, because it reads at once.
type decodedBody struct {
	encoded  io.ReadCloser
	openFunc func(io.Reader) (io.ReadCloser, error) // nil if the body cannot be decoded
	content  io.ReadCloser
}

func (d *decodedBody) Read(p []byte) (int, error) {
	if d.openFunc == nil {
		return 0, io.EOF
	}
	if d.content == nil {
		content, err := d.openFunc(d.encoded)
		switch {
		case errors.Is(err, io.EOF): // there is nothing to decode
			return 0, io.EOF
		case err != nil:
			return 0, fmt.Errorf("upstream: decode the answer: %w", err)
		}
		d.content = content
	}
	return d.content.Read(p)
}

func (d *decodedBody) Close() error {
	if d.content != nil {
		_ = d.content.Close() // frees the decoder
	}
	return d.encoded.Close() //nolint:wrapcheck // passed through as the body's own
}

func openGzip(r io.Reader) (io.ReadCloser, error) {
	return gzip.NewReader(r) //nolint:wrapcheck // wrapped by the caller
}

// openDeflate accepts both what the name means and what some servers send under it.
func openDeflate(r io.Reader) (io.ReadCloser, error) {
	in := bufio.NewReader(r)
	head, err := in.Peek(2)
	if err != nil {
		return nil, err //nolint:wrapcheck // wrapped by the caller
	}
	if head[0]&0x0f == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0 {
		return zlib.NewReader(in) //nolint:wrapcheck // wrapped by the caller
	}
	return flate.NewReader(in), nil
}

func openZstd(r io.Reader) (io.ReadCloser, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err //nolint:wrapcheck // wrapped by the caller
	}
	return z.IOReadCloser(), nil
}

// mayBeText reports whether a body of this media type can be JSON, a stream or an error page.
func mayBeText(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return media == "" || strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "json") || media == "application/octet-stream"
}

// The first bytes of a byte order mark and of a gzip file.
const (
	byteOrderMark = "\xef\xbb\xbf"
	gzipMagic     = "\x1f\x8b\x08"
)

// textBody is a text whose first bytes decide what it is: a byte order mark is not part of it, and neither JSON nor an
// event begins like a gzip file, so one is decoded although the answer does not declare it.
type textBody struct {
	provider.AnswerBody
	decided bool
	// head has the first bytes while they are too few to decide, and then until they are read. err came with them.
	head []byte
	err  error
}

func readText(body provider.AnswerBody) *textBody {
	if b, ok := body.(*answerBody); ok { // which has room for one: it saves an allocation for each answer
		b.text.AnswerBody = body
		return &b.text
	}
	return &textBody{AnswerBody: body}
}

func (t *textBody) Read(p []byte) (int, error) {
	for !t.decided && len(p) > 0 {
		n, err := t.AnswerBody.Read(p)
		if len(t.head) == 0 && n > 0 && p[0] != byteOrderMark[0] && p[0] != gzipMagic[0] {
			t.decided = true
			return n, err
		}
		t.head, t.err = append(t.head, p[:n]...), err
		t.decide()
	}

	if len(t.head) > 0 {
		n := copy(p, t.head)
		t.head = t.head[n:]
		return n, nil
	}
	if t.err != nil {
		return 0, t.err
	}

	return t.AnswerBody.Read(p)
}

// decide decides by the head, if that is long enough or the last of the body.
func (t *textBody) decide() {
	head := string(t.head[:min(len(t.head), len(byteOrderMark))])
	switch {
	case head == byteOrderMark:
		t.head = t.head[len(byteOrderMark):]
	case head == gzipMagic:
		encoded := readCloser{io.MultiReader(bytes.NewReader(t.head), t.AnswerBody), t.AnswerBody}
		content := &decodedBody{encoded: encoded, openFunc: openGzip}
		t.AnswerBody, t.head, t.err = readText(provider.NoAwait{ReadCloser: content}), nil, nil
	case t.err == nil && (strings.HasPrefix(byteOrderMark, head) || strings.HasPrefix(gzipMagic, head)):
		return
	}
	t.decided = true
}

func (t *textBody) Await() error {
	if t.decided && (len(t.head) > 0 || t.err != nil) {
		return nil //nolint:nilerr // Read returns the error
	}
	return t.AnswerBody.Await()
}

type readCloser struct {
	io.Reader
	io.Closer
}
