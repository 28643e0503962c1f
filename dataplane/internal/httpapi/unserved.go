package httpapi

import (
	"bytes"
	"fmt"
	"net/http"
	"time"

	"modelgateway/shared/apierr"
	"modelgateway/shared/ident"
)

// answerUnserved returns the answer to a request that no handler has got, as it is written to the connection, and records
// the request. status is the one that net/http has chosen for a request that is no valid HTTP, or 503 if there are too
// many connections.
func (s *Server) answerUnserved(status int) []byte {
	e := apierr.New(status, apierr.InvalidRequest, "The request is not valid HTTP: "+http.StatusText(status)+".")
	switch {
	case status == http.StatusServiceUnavailable:
		e = errConnections
	case status >= http.StatusInternalServerError:
		e.Code = apierr.None
	}

	id := ident.Request.New()
	x := &exchange{
		id:      id,
		started: time.Now(),
		status:  e.Status,
		code:    e.Code,
	}
	s.record(x)
	var b bytes.Buffer
	body := e.Envelope(id)
	fmt.Fprintf(
		&b,
		"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nX-Request-Id: %s\r\nRequest-Id: %s\r\nConnection: "+
			"close\r\n",
		e.Status,
		http.StatusText(e.Status),
		len(body),
		id,
		id,
	)

	if seconds := e.RetryAfterSeconds(); seconds > 0 {
		fmt.Fprintf(&b, "Retry-After: %d\r\n", seconds)
	}
	if e.Permanent() {
		b.WriteString("X-Should-Retry: false\r\n")
	}

	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes()
}

var errConnections = apierr.New(
	http.StatusServiceUnavailable,
	apierr.ServiceUnavailable,
	"The service has too many connections now. Please try again.",
)
