package refused

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"

	"modelgateway/shared/apierr"
)

// Unserved returns the error of a request that no handler has got. status is the one that net/http has chosen for a request
// that is no valid HTTP, or 503 if there are too many connections.
func Unserved(status int) *apierr.Error {
	if status == http.StatusServiceUnavailable {
		return errConnections
	}
	e := apierr.New(status, apierr.InvalidRequest, "The request is not valid HTTP: "+http.StatusText(status)+".")
	if status >= http.StatusInternalServerError {
		e.Code = apierr.None
	}
	return e
}

var errConnections = apierr.New(
	http.StatusServiceUnavailable,
	apierr.ServiceUnavailable,
	"The service has too many connections now. Please try again.",
)

// Text returns an error as an answer that is written to a connection, which is closed after it.
func Text(e *apierr.Error, id string) []byte {
	body := e.Envelope(id)
	header := http.Header{
		"Content-Type":   {"application/json"},
		"Content-Length": {strconv.Itoa(len(body))},
		"X-Request-Id":   {id},
		"Request-Id":     {id},
		"Connection":     {"close"},
	}
	if seconds := e.RetryAfterSeconds(); seconds > 0 {
		header.Set("Retry-After", strconv.Itoa(seconds))
	}
	if e.Permanent() {
		header.Set("X-Should-Retry", "false")
	}

	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", e.Status, http.StatusText(e.Status))
	_ = header.Write(&b) // a buffer does not fail
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes()
}
