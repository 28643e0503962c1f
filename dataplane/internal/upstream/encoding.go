package upstream

import (
	"bufio"
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

// decode replaces the body of an answer that is compressed, although the call asks for none, by its content. What cannot
// be decoded becomes an empty body: nobody can read it. The bounds are those of whoever reads the body; the decoder itself
// needs at most its window.
func decode(a *provider.Answer) {
	encoding := strings.ToLower(strings.TrimSpace(strings.Join(a.Header["Content-Encoding"], ",")))
	if encoding == "" || encoding == "identity" || a.Body == nil {
		return
	}

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
