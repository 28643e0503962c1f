package call

import (
	"bytes"
	"compress/gzip"
)

// Pack packs a body with gzip, unless it is packed.
func Pack(body []byte) []byte {
	if bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
		return body
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(body) // a buffer takes everything
	_ = w.Close()
	return packed.Bytes()
}
