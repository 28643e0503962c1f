package sse

import (
	"bytes"
	"cmp"
	"errors"
	"sync"
)

// DefaultMaxEventBytes is the default of Splitter.MaxEventBytes. It is large because an image comes in one event, in
// base64.
const DefaultMaxEventBytes = 32 << 20

// ErrEventTooLarge is the error for an event that is larger than MaxEventBytes.
var ErrEventTooLarge = errors.New("sse: event too large")

// Splitter splits a stream into events. Call Feed with every read, and then Next until it returns false; at the end
// of the stream call Flush, and finally Close. The zero value is ready for a stream. It is not safe for concurrent
// use.
type Splitter struct {
	// MaxEventBytes is the maximum size of an event in bytes, including line ends; zero means DefaultMaxEventBytes.
	// It must not change during a stream.
	MaxEventBytes int
	// Room, unless nil, is asked for the memory of events of more than 64 KiB that come in several reads. Its error ends
	// the stream. It must not change during a stream.
	Room Room

	in    []byte // the read that was fed last
	start int    // in[start:pos] is the current block, or its part after carry
	pos   int    // in[:pos] has been read
	// nextLF and nextCR are the positions of the next such bytes of in, len(in) if there is none; if they are below
	// pos they are out of date.
	nextLF, nextCR int

	carry *buffer // the block's bytes of earlier reads, nil if it has none
	taken bool    // carry is part of the event that Next returned last
	block block

	end       lineEnd // line end of the previous line
	pendingCR bool    // the block ends in a CR that may have its LF in the next read
	skipLF    bool    // an LF here belongs to the CR that ended the line before
	begun     bool    // a line has been read: no byte order mark can follow
	err       error
}

// Room is the room for the buffer of an event.
type Room interface {
	// Grow asks for this number of bytes in total.
	Grow(to int64) error
	// Release gives all bytes back.
	Release()
}

type lineEnd uint8

const (
	endNone lineEnd = iota
	endLF
	endCRLF
	endCR
)

// buffer is the type in the pool: a pointer to it can be put back without an allocation.
type buffer struct{ b []byte }

// maxPooledBytes is the capacity up to which a buffer is kept for another event.
const maxPooledBytes = 64 << 10

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// Feed takes the bytes of one read, which must not change until Next has returned false. Events of an earlier read
// that were not taken are kept by copying them.
func (s *Splitter) Feed(p []byte) {
	s.release()
	s.saveCarry()
	if s.pos < len(s.in) {
		p = append(bytes.Clone(s.in[s.pos:]), p...)
	}
	s.in, s.start, s.pos, s.nextLF, s.nextCR = p, 0, 0, -1, -1
}

// Next returns the next complete event. ok is false if the bytes fed so far contain no further event, or after an
// error, see Err.
func (s *Splitter) Next() (event Event, ok bool) {
	s.release()
	for s.pos < len(s.in) && s.err == nil {
		stop, found := s.readLine()
		if found && s.endLine(stop) {
			return s.take(), true
		}
	}
	s.saveCarry()
	return Event{}, false
}

// Flush ends the stream and returns its rest as a last event; ok is false if there is none. Next must have returned
// false before.
func (s *Splitter) Flush() (event Event, ok bool) {
	s.release()
	if s.err != nil {
		return Event{}, false
	}

	raw := s.bytes()
	if len(raw) == 0 {
		return Event{}, false
	}

	if s.pendingCR {
		s.pendingCR = false
		if s.endLine(1) {
			return s.take(), true
		}
	}

	line := s.trimByteOrderMark(raw[s.block.line:])
	comment := !s.block.fields && len(line) > 0 && line[0] == ':'
	partial := s.block.fields || len(line) > 0
	s.block.read(raw, len(raw)-len(line), len(raw))
	event = s.take()
	event.Comment, event.Partial = comment, partial

	return event, true
}

// Err returns ErrEventTooLarge after an event was too large, the error of Room if that had none for it, otherwise nil. No
// events follow the error, and the bytes of the event are dropped.
func (s *Splitter) Err() error { return s.err }

// Close returns the buffers and makes the Splitter ready for another stream. No event may be used afterwards.
func (s *Splitter) Close() {
	s.taken = true
	s.release()
	*s = Splitter{MaxEventBytes: s.MaxEventBytes, Room: s.Room}
}

// readLine reads up to the end of a line or of the read. If found is true, the line has ended before pos with a line
// end of stop bytes.
func (s *Splitter) readLine() (stop int, found bool) {
	if s.pendingCR {
		s.pendingCR, s.end = false, endCR
		if s.in[s.pos] == '\n' {
			s.pos++
			s.end = endCRLF
			return 2, true
		}
		return 1, true
	}

	if s.skipLF {
		s.skipLF = false
		if s.in[s.pos] == '\n' {
			s.pos++
			s.end = endCRLF
			s.block.line++
			return 0, false
		}
	}

	if s.nextLF < s.pos {
		s.nextLF = indexFrom(s.in, s.pos, '\n')
	}
	if s.nextCR < s.pos {
		s.nextCR = indexFrom(s.in, s.pos, '\r')
	}

	switch {
	case s.nextLF < s.nextCR:
		s.pos = s.nextLF + 1
		s.end = endLF
		return 1, true
	case s.nextCR < s.nextLF:
		s.pos = s.nextCR + 1
		return s.readCR()
	}

	s.pos = len(s.in)
	return 0, false
}

// readCR decides which line end the CR before pos belongs to. If the stream uses CRLF, the LF has to be sent with its
// event, so the splitter waits for it. In a stream that uses CR alone, waiting would hold back each event until the
// next, so there a CR ends a line at once, and an LF that follows after all is part of the next block. The result
// does not depend on how the stream was split into reads.
func (s *Splitter) readCR() (stop int, found bool) {
	switch {
	case s.end == endCR:
		s.skipLF = true
		return 1, true
	case s.pos == len(s.in):
		s.pendingCR = true
		return 0, false
	case s.in[s.pos] == '\n':
		s.pos++
		s.end = endCRLF
		return 2, true
	}
	s.end = endCR
	return 1, true
}

// endLine handles the line that ends at pos with a line end of stop bytes. It reports whether the block is complete
// with it.
func (s *Splitter) endLine(stop int) bool {
	if s.checkSize(); s.err != nil {
		return false
	}

	raw := s.bytes()
	end := len(raw) - stop
	line := s.trimByteOrderMark(raw[s.block.line:end])
	s.begun = true
	if len(line) == 0 {
		return true
	}

	if line[0] == ':' && !s.block.fields {
		s.block.comment = true
		return true
	}

	s.block.read(raw, end-len(line), end)
	s.block.line = len(raw)
	return false
}

// trimByteOrderMark removes the byte order mark from the first line of a stream.
func (s *Splitter) trimByteOrderMark(line []byte) []byte {
	if s.begun {
		return line
	}
	return bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
}

// bytes returns the contiguous bytes of the block up to pos.
func (s *Splitter) bytes() []byte {
	if s.carry == nil {
		return s.in[s.start:s.pos:s.pos]
	}
	s.saveCarry()
	return s.carry.b
}

// saveCarry copies the block's bytes of this read to carry.
func (s *Splitter) saveCarry() {
	s.checkSize()
	if s.start == s.pos || s.err != nil {
		return
	}
	if s.carry == nil {
		s.carry = buffers.Get().(*buffer)
	}
	if !s.growCarry(len(s.carry.b) + s.pos - s.start) {
		return
	}
	s.carry.b = append(s.carry.b, s.in[s.start:s.pos]...)
	s.start = s.pos
}

// growCarry makes room in carry for size bytes. A large buffer doubles, so that it has the size that Room knows. It
// reports whether there is room.
func (s *Splitter) growCarry(size int) bool {
	if size <= cap(s.carry.b) || size <= maxPooledBytes || s.Room == nil {
		return true
	}
	to := min(max(size, 2*cap(s.carry.b)), max(size, s.maxEventBytes()))
	if err := s.Room.Grow(int64(to)); err != nil {
		s.fail(err)
		return false
	}
	s.carry.b = append(make([]byte, 0, to), s.carry.b...)
	return true
}

// fail ends the stream and drops the block.
func (s *Splitter) fail(err error) {
	s.err = err
	s.taken = true
	s.release()
}

// take returns the block as an event and starts the next block.
func (s *Splitter) take() Event {
	event := s.block.event(s.bytes())
	s.block.reset()
	s.start = s.pos
	s.taken = s.carry != nil
	return event
}

// release returns carry to the pool after its event has been used.
func (s *Splitter) release() {
	if !s.taken || s.carry == nil {
		return
	}
	if cap(s.carry.b) <= maxPooledBytes {
		s.carry.b = s.carry.b[:0]
		buffers.Put(s.carry)
	} else if s.Room != nil {
		s.Room.Release()
	}
	s.carry, s.taken = nil, false
}

// checkSize fails the stream if the block is too large.
func (s *Splitter) checkSize() {
	size := s.pos - s.start
	if s.carry != nil {
		size += len(s.carry.b)
	}
	if size > s.maxEventBytes() && s.err == nil {
		s.fail(ErrEventTooLarge)
	}
}

func (s *Splitter) maxEventBytes() int { return cmp.Or(s.MaxEventBytes, DefaultMaxEventBytes) }

// indexFrom returns the index of the first c in b at or after i, len(b) if there is none.
func indexFrom(b []byte, i int, c byte) int {
	if n := bytes.IndexByte(b[i:], c); n >= 0 {
		return i + n
	}
	return len(b)
}
