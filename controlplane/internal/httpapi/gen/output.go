package gen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// stream is a response that is not JSON, with the status 200. Its length is sent if it is not zero. The body is closed if it can be.
type stream struct {
	Body          io.Reader
	ContentLength int64
}

func (s stream) write(w http.ResponseWriter, mediaType string) error {
	if closer, ok := s.Body.(io.Closer); ok {
		defer func() { _ = closer.Close() }()
	}
	w.Header().Set("Content-Type", mediaType)
	if s.ContentLength != 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(s.ContentLength, 10))
	}
	w.WriteHeader(http.StatusOK)
	if _, err := io.Copy(w, s.Body); err != nil {
		return fmt.Errorf("write the response: %w", err)
	}
	return nil
}

// writeJSON encodes a whole response before it sends the status, so that an encoding error can still be answered.
func writeJSON(w http.ResponseWriter, status int, response any) error {
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(response); err != nil {
		return fmt.Errorf("encode the response: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := text.WriteTo(w); err != nil {
		return fmt.Errorf("write the response: %w", err)
	}
	return nil
}
