package upload

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/zstd"

	"modelgateway/dataplane/internal/bytebudget"
)

// ErrCompressed says that a compressed body is not valid.
var ErrCompressed = errors.New("upload: the compressed body is not valid")

// EncodingError says that bodies with this Content-Encoding are not accepted.
type EncodingError struct{ Encoding string }

func (e *EncodingError) Error() string { return "upload: a body with an unknown content encoding" }

// maxWindow is the largest window of a zstd frame in bytes, the one that RFC 8878 asks decoders to support.
const maxWindow = 8 << 20

// encodingOf returns the content encoding of a request, empty if there is none.
func encodingOf(h http.Header) string {
	values := h["Content-Encoding"]
	if len(values) == 0 {
		return ""
	}
	encoding := strings.ToLower(strings.TrimSpace(strings.Join(values, ", ")))
	if encoding == "identity" {
		return ""
	}
	return encoding
}

// decoder reads a decompressed body.
type decoder struct {
	body      *Body
	plain     io.Reader
	closeFunc func()
	// window is the part of the budget that the decoder itself needs.
	window bytebudget.Grant
}

// decoder returns the decompressed body. The caller closes it.
func (b *Body) decoder(encoding string) (*decoder, error) {
	d := &decoder{body: b, window: b.grant.Sibling(), closeFunc: func() {}}
	switch encoding {
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(&b.source)
		if err != nil {
			return nil, d.fault(err)
		}
		d.plain = z
	case "zstd":
		if err := d.window.Grow(maxWindow); err != nil {
			return nil, err
		}
		z, err := zstd.NewReader(
			&b.source,
			zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow),
		)
		if err != nil {
			d.window.Release()
			return nil, d.fault(err)
		}
		d.plain, d.closeFunc = z, z.Close
	default:
		return nil, &EncodingError{encoding}
	}

	return d, nil
}

func (d *decoder) Read(p []byte) (int, error) {
	n, err := d.plain.Read(p)
	return n, d.fault(err)
}

// fault tells an invalid body from a failed connection.
func (d *decoder) fault(err error) error {
	if err == nil || err == io.EOF || d.body.source.failed { //nolint:errorlint // a wrapped EOF is not the end
		return err
	}
	return fmt.Errorf("%w: %w", ErrCompressed, err)
}

// close frees the memory of the decoder.
func (d *decoder) close() {
	d.closeFunc()
	d.window.Release()
}
