// Package upload reads request bodies: within a limit and a byte budget, at a least rate, and decompressed. It also
// discards the rest of a body whose request is refused.
package upload

import (
	"errors"
	"io"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"modelgateway/dataplane/internal/bytebudget"
	"modelgateway/dataplane/internal/httpapi/buffer"
	"modelgateway/dataplane/internal/httpapi/clientconn"
	"modelgateway/dataplane/internal/turns"
)

// Large is the size in bytes from which on a body needs the consent of its Gate.
const Large = 1 << 20

// Gate decides whether a large body may be read. Its errors are those of Read.
type Gate interface {
	// AdmitLarge is called once, before the body takes the room of a large one.
	AdmitLarge() error
	// LargeDone is called when a large body has been read or given up.
	LargeDone()
}

// Limits bound the reading of all bodies.
type Limits struct {
	// Timeout is how long a client may take to send a body.
	Timeout time.Duration
	// Rate is the least rate in bytes per second, measured after Grace.
	Rate int64
}

// Grace is how long a client may send nothing before its rate is measured.
const Grace = 10 * time.Second

// deadline returns the time by which more bytes than those received must have come.
func (l *Limits) deadline(began time.Time, received int64) time.Time {
	return began.Add(min(Grace+time.Duration(received)*time.Second/time.Duration(l.Rate), l.Timeout))
}

// Begin sets the first deadline of a request with a body. A handler that does not call Read leaves it in force.
func (l *Limits) Begin(conn *clientconn.Conn, began time.Time) {
	conn.DeadlineRead(l.deadline(began, 0))
}

// Request describes a body to read.
type Request struct {
	HTTP  *http.Request
	Conn  *clientconn.Conn
	Gate  Gate
	Grant bytebudget.Grant
	// Turn is taken for a body that is not small. It runs when Read returns without an error.
	Turn *turns.Turn
	// Slots is how many requests the account may run at the same time, zero: any number. While so many of its bodies and
	// some more wait for their turns, the body is refused: not all of them could be admitted.
	Slots int64
	// Began is when the headers had come, Limit the limit of the decompressed body in bytes.
	Began time.Time
	Limit int64
}

// Body is a request body in memory, with a reference count: a provider's connection may still be sending it after the
// handler has read the answer. When nobody uses it, its buffer and its part of the budget are free.
type Body struct {
	buffer.Pooled
	buffer *[]byte
	grant  bytebudget.Grant
	turn   *turns.Turn
	slots  int64
	gate   Gate
	large  bool
	done   bool
	// refused says that the gate has refused the body, or that its account is crowded.
	refused bool
	users   atomic.Int32
	source  source
}

// Read reads the body. The caller calls Done. The error is for the client, or one of the budget
// or of the gate.
func (l *Limits) Read(q Request) (*Body, error) {
	if q.HTTP.ContentLength > q.Limit {
		return nil, (&Body{}).refusal(buffer.ErrTooLarge, q.Limit)
	}

	b := &Body{
		grant: q.Grant,
		turn:  q.Turn,
		slots: q.Slots,
		gate:  q.Gate,
		source: source{
			limits: l,
			turn:   q.Turn,
			conn:   q.Conn,
			body:   q.HTTP.Body,
			began:  q.Began,
		},
	}
	b.users.Store(1)
	b.source.aside = !q.Conn.ReadInTurn(q.Turn)
	err := b.read(&q)
	q.Conn.ReadInTurn(nil)
	if b.large {
		b.gate.LargeDone()
	}

	if err != nil {
		b.grant.Release()
		return nil, b.refusal(err, q.Limit)
	}

	q.Conn.DeadlineRead(time.Time{}) // otherwise net/http would take a missed deadline for a client that has gone
	return b, nil
}

func (b *Body) read(q *Request) (err error) {
	encoding := encodingOf(q.HTTP.Header)
	if encoding == "" {
		b.buffer, err = buffer.ReadAll(&b.source, q.HTTP.ContentLength, q.Limit, b)
		return err
	}
	plain, err := b.decoder(encoding)
	if err != nil {
		return err
	}
	defer plain.close()
	b.buffer, err = buffer.ReadAll(plain, -1, q.Limit, b)
	return err
}

func (b *Body) Grow(to int64) error {
	if to > Large && !b.large {
		if err := b.gate.AdmitLarge(); err != nil {
			b.refused = true
			return err
		}
		b.large = true
	}
	if to > bytebudget.Small && !b.turn.Running() && !b.turn.BeginWithin(mostTurns(b.slots)) {
		b.refused = true
		return ErrCrowded
	}
	return b.grant.Grow(to)
}

// spareTurns is how many bodies of an account may wait for their turns beyond the number of its slots.
const spareTurns = 8

func mostTurns(slots int64) int {
	if slots <= 0 || slots > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(slots) + spareTurns
}

// Hold adds memory that the body's content needs to the body's part of the budget, in bytes, unless it is little. The error
// is one of the budget.
func (b *Body) Hold(more int) error {
	if more <= minHeld {
		return nil
	}
	return b.grant.Grow(int64(len(*b.buffer)) + int64(more))
}

// minHeld is the size in bytes up to which memory beside a body is not counted. What pools keep for ordinary requests is less.
const minHeld = 256 << 10

// Bytes returns the body. It must not be read without a reference.
func (b *Body) Bytes() []byte { return *b.buffer }

// Done drops the handler's reference. A second call has no effect.
func (b *Body) Done() {
	if !b.done {
		b.done = true
		b.Release()
	}
}

// Gone reports whether the handler has dropped its reference: it must not read the body or what was parsed of it, or send it
// again, because its memory may hold another request.
func (b *Body) Gone() bool { return b.done }

// Retain adds a reference.
func (b *Body) Retain() { b.users.Add(1) }

// Release drops a reference.
func (b *Body) Release() {
	if b.users.Add(-1) == 0 {
		buffer.Put(b.buffer)
		b.grant.Release()
	}
}

// source reads a body at a least rate.
type source struct {
	limits   *Limits
	conn     *clientconn.Conn
	body     io.Reader
	turn     *turns.Turn
	began    time.Time
	received int64
	// extended is the value of received when the deadline was last moved.
	extended int64
	// failed reports whether the connection, not the decompression, has failed.
	failed bool
	// aside says that the connection cannot read in the turn, which must not run while the client sends nothing.
	aside bool
}

// step is the number of bytes after which the deadline is moved: those of half of the grace, so that a client at the
// least rate is not late before the next move.
func (l *Limits) step() int64 { return l.Rate * int64(Grace/time.Second) / 2 }

func (s *source) Read(p []byte) (int, error) {
	if s.aside && s.turn.Running() {
		s.turn.End()
		defer s.turn.Begin()
	}
	n, err := s.body.Read(p)
	if s.received += int64(n); s.received-s.extended >= s.limits.step() {
		s.extended = s.received
		s.conn.DeadlineRead(s.limits.deadline(s.began, s.received))
	}
	s.failed = s.failed || err != nil && !errors.Is(err, io.EOF)
	return n, err
}
