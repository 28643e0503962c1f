package gen

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
)

// stream is a response that is not JSON. Its length is sent if it is not zero. The body is closed if it can be.
type stream struct {
	Body          io.Reader
	ContentLength int64
}

func (s stream) write(w http.ResponseWriter, status int, mediaType string) error {
	if closer, ok := s.Body.(io.Closer); ok {
		defer func() { _ = closer.Close() }()
	}
	w.Header().Set("Content-Type", mediaType)
	if s.ContentLength != 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(s.ContentLength, 10))
	}
	w.WriteHeader(status)
	_, err := io.Copy(w, s.Body)
	return err
}

// writeJSON encodes a whole response before it sends the status, so that an encoding error can still be answered.
func writeJSON(w http.ResponseWriter, status int, response any) error {
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(response); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, err := text.WriteTo(w)
	return err
}
