package upload

import (
	"io"
	"time"

	"modelgateway/dataplane/internal/httpapi/buffer"
	"modelgateway/dataplane/internal/httpapi/clientconn"
	"modelgateway/dataplane/internal/turns"
)

// The bounds of Discard: in bytes, in time without a byte, and in time altogether.
const (
	maxDiscarded   = 128 << 20
	discardPause   = 5 * time.Second
	discardTimeout = 30 * time.Second
)

// Discard reads the rest of a body whose request has been answered, within bounds. Many clients send their whole request
// before they read; if the connection were closed at once, the client's system would drop the answer. It reads in the turn.
func Discard(conn *clientconn.Conn, body io.Reader, turn *turns.Turn) {
	if conn == nil {
		return // without deadlines there is no bound
	}

	if conn.ReadInTurn(turn) {
		turn.Begin()
		defer turn.End()
		defer conn.ReadInTurn(nil)
	}

	const size = 32 << 10
	b := buffer.GetSized(size)
	defer buffer.Put(b)
	end := time.Now().Add(discardTimeout)
	for n := 0; n < maxDiscarded; {
		at := time.Now().Add(discardPause)
		if at.After(end) {
			at = end
		}
		conn.DeadlineRead(at)
		more, err := body.Read((*b)[:size])
		if err != nil {
			return
		}
		n += more
	}
}
