package clientconn

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// accepted returns a connection as the server gets it, and its client.
func accepted(t *testing.T, cfg Config) (conn *Conn, client net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	c, err := Listen(Sockets(l), cfg).Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*Conn), client
}

func TestReadDeadlineAppliesToRunningAndLaterReads(t *testing.T) {
	c, client := accepted(t, Config{})
	read := make(chan error)
	go func() {
		_, err := c.Read(make([]byte, 1))
		read <- err
	}()
	for ended := false; !ended; { // the deadline may be set before the read begins, or while it runs
		_ = c.SetReadDeadline(time.Unix(1, 0))
		select {
		case err := <-read:
			if ended = true; !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		default:
		}
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a later read: got %v", err)
	}
	_ = c.SetReadDeadline(time.Time{})
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("without a deadline: got %d bytes and %v", n, err)
	}
}

// net/http removes the write deadline after each answer.
func TestEveryAnswerHasAWriteDeadline(t *testing.T) {
	c, _ := accepted(t, Config{StallTimeout: 50 * time.Millisecond})
	c.BeginAnswer(time.Now())
	_ = c.SetWriteDeadline(time.Time{})
	c.BeginAnswer(time.Now())
	for piece := make([]byte, 1<<20); ; {
		if _, err := c.Write(piece); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			return
		}
	}
}
