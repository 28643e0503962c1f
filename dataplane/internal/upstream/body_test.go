package upstream

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"modelgateway/dataplane/internal/provider"
)

// earlyProvider returns a client of a provider that answers each request before its body is read. It reads the body
// when the test tells it to, or closes the connection.
func earlyProvider(t *testing.T, take <-chan bool, took chan<- string) *Client {
	return raw(Limits{}, func(_ int, conn net.Conn, r *bufio.Reader) {
		readHead(t, r)
		go func() { // a pipe has no buffer, so the answer is written while the body is still unread
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		}()
		if !<-take {
			return
		}
		body, _ := io.ReadAll(io.LimitReader(r, bodySize)) // the whole body, or less if the connection breaks
		took <- string(body)
	})
}

const bodySize = 1 << 20

// trackedBody returns a body that counts how often its memory is freed. Freeing overwrites the memory, as the next
// request would.
func trackedBody() (body *provider.Body, given *atomic.Int64) {
	given = new(atomic.Int64)
	data := []byte(strings.Repeat("x", bodySize))
	parts := [][]byte{data[:10], data[10 : bodySize/2], data[bodySize/2 : bodySize-3], data[bodySize-3:]}
	return provider.NewBodyOf(parts, func() {
		given.Add(1)
		copy(data, strings.Repeat("y", bodySize))
	}), given
}

// The answer has begun, but the provider still reads the body.
func TestBodyIsNotFreedWhileItIsSentAfterTheAnswer(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, to caller) {
		take, took := make(chan bool), make(chan string, 1)
		c := earlyProvider(t, take, took)
		defer c.Close()
		call := to("")
		body, given := trackedBody()
		call.Body = body
		answer, err := c.Do(t.Context(), &call)
		if err != nil {
			t.Fatal(err)
		}
		body.Release()
		if given.Load() != 0 {
			t.Error("the memory is freed while it is sent")
		}
		take <- true
		if sent := <-took; len(sent) != bodySize || strings.Contains(sent, "y") {
			t.Errorf("of %d bytes, %d are another request's", len(sent), strings.Count(sent, "y"))
		}
		if text, err := io.ReadAll(answer.Body); string(text) != "{}" || err != nil {
			t.Fatalf("got %q, %v", text, err)
		}
		_ = answer.Body.Close()
		time.Sleep(time.Minute)
		synctest.Wait()
		if given.Load() != 1 {
			t.Errorf("in the end the memory was freed %d times; want once", given.Load())
		}
	})
}

// This happens when the client has gone or the next route is attempted.
func TestBodyIsNotFreedWhileItIsSentAfterTheCallWasCanceled(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, to caller) {
		take, took := make(chan bool), make(chan string, 2)
		c := earlyProvider(t, take, took)
		defer c.Close()
		body, given := trackedBody()
		ctx, cancel := context.WithCancel(t.Context())
		first, second := to(""), to("")
		first.Body, second.Body = body, body
		answer, err := c.Do(ctx, &first)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		_ = answer.Body.Close()
		again, err := c.Do(t.Context(), &second)
		if err != nil {
			t.Fatal(err)
		}
		body.Release()
		if given.Load() != 0 {
			t.Error("the memory is freed while the second call sends it")
		}
		take <- false
		take <- true
		if sent := <-took; strings.Contains(sent, "y") {
			t.Errorf("of %d bytes, %d are another request's", len(sent), strings.Count(sent, "y"))
		}
		_, _ = io.Copy(io.Discard, again.Body)
		_ = again.Body.Close()
		time.Sleep(time.Minute)
		synctest.Wait()
		if given.Load() != 1 {
			t.Errorf("in the end the memory was freed %d times; want once", given.Load())
		}
	})
}
