package httpapi

import (
	"time"

	"modelgateway/dataplane/internal/httpapi/refused"
	"modelgateway/shared/ident"
)

// answerUnserved returns the answer to a request that no handler has got, as it is written to the connection, and records
// the request. status is the one that net/http has chosen for a request that is no valid HTTP, or 503 if there are too
// many connections.
func (s *Server) answerUnserved(status int) []byte {
	e := refused.Unserved(status)
	id := ident.Request.New()
	s.record(&exchange{
		id:      id,
		started: time.Now(),
		status:  e.Status,
		code:    e.Code,
	})
	return refused.Text(e, id)
}
