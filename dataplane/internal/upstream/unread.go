package upstream

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"syscall"
)

// inputAsker is a connection that is no socket but can say whether it has input.
type inputAsker interface {
	// hasInput reports whether bytes or the end have come that nobody has read.
	hasInput() bool
}

// inputProbe returns a function that reports whether a connection has bytes to read or has reached its end, without
// reading them. It returns nil if the connection cannot say that. The function allocates nothing; one goroutine at a time
// may call it.
func inputProbe(plain net.Conn) func() bool {
	if a, ok := plain.(inputAsker); ok {
		return a.hasInput
	}

	s, ok := plain.(syscall.Conn)
	if !ok {
		return nil
	}

	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}

	there := false
	var one [1]byte
	look := func(fd uintptr) {
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		there = !errors.Is(err, syscall.EAGAIN)
	}
	// Control instead of Read, which waits for a read in another goroutine and fails after a deadline.
	return func() bool { return raw.Control(look) != nil || there }
}

// recordHeaderSize is the size of the header of a TLS record: its type, version and length.
const recordHeaderSize = 5

// recordConn is the connection below TLS. It follows in what comes where records begin and end, because crypto/tls reads ahead and
// does not tell.
type recordConn struct {
	net.Conn
	// header has the headerSize bytes that have come of the header of a record; left counts the bytes that are missing of
	// the record itself.
	header           [recordHeaderSize]byte
	headerSize, left int
	// sent counts the bytes that were written.
	sent uint64
	// paused makes Read return at once as after a deadline.
	paused bool
	one    [1]byte
}

func (r *recordConn) Read(p []byte) (int, error) {
	if r.paused {
		return 0, os.ErrDeadlineExceeded // crypto/tls continues after this error
	}
	n, err := r.Conn.Read(p)
	r.follow(p[:n])
	return n, err
}

func (r *recordConn) Write(p []byte) (int, error) {
	n, err := r.Conn.Write(p)
	r.sent += uint64(n)
	return n, err
}

// follow follows the records in bytes that have come.
func (r *recordConn) follow(data []byte) {
	for len(data) > 0 {
		if r.left > 0 {
			n := min(r.left, len(data))
			r.left -= n
			data = data[n:]
			continue
		}
		n := copy(r.header[r.headerSize:], data)
		r.headerSize += n
		data = data[n:]
		if r.headerSize == recordHeaderSize {
			r.headerSize, r.left = 0, int(binary.BigEndian.Uint16(r.header[3:]))
		}
	}
}

// isDrained reports whether the TLS connection above r holds nothing that has not been read: no data of a record, no
// further record, and no part of one. It reads nothing from the network.
func (r *recordConn) isDrained(secured net.Conn) bool {
	r.paused = true
	n, err := secured.Read(r.one[:])
	r.paused = false
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && r.headerSize == 0 && r.left == 0
}
