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

// hasty answers each request when it has seen its head, and takes the body when
// it is told to, or lets go of the connection.
func hasty(t *testing.T, take <-chan bool, took chan<- string) *Client {
	return raw(Limits{}, func(_ int, conn net.Conn, r *bufio.Reader) {
		readHead(t, r)
		go func() { // the pipe holds nothing: the answer must not wait for the body
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		}()
		if !<-take {
			return
		}
		body, _ := io.ReadAll(io.LimitReader(r, bodySize)) // as much as there is
		took <- string(body)
	})
}

const bodySize = 1 << 20

// prompt is a body that notes when its memory is given back, and is overwritten
// then, as by the next request.
func prompt() (body *provider.Body, given *atomic.Int64) {
	given = new(atomic.Int64)
	data := []byte(strings.Repeat("x", bodySize))
	return provider.NewBody(data, func() {
		given.Add(1)
		copy(data, strings.Repeat("y", bodySize))
	}), given
}

// A prompt's memory is not given back while a connection may still send it: the
// answer has come, its handler is done, and the provider reads on.
func TestBodyOutlivesAnEarlyAnswer(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, to caller) {
		take, took := make(chan bool), make(chan string, 1)
		c := hasty(t, take, took)
		defer c.Close()
		call := to("")
		body, given := prompt()
		call.Body = body
		answer, err := c.Do(t.Context(), call)
		if err != nil {
			t.Fatal(err)
		}
		body.Release()
		if given.Load() != 0 {
			t.Error("the memory is given back while it is sent")
		}
		if text, err := io.ReadAll(answer.Body); string(text) != "{}" || err != nil {
			t.Fatalf("got %q, %v", text, err)
		}
		take <- true
		if sent := <-took; strings.Contains(sent, "y") || !strings.HasPrefix(sent, "x") {
			t.Errorf("of %d bytes, %d are another request's", len(sent), strings.Count(sent, "y"))
		}
		_ = answer.Body.Close()
		time.Sleep(time.Minute)
		synctest.Wait()
		if given.Load() != 1 {
			t.Errorf("in the end the memory was given back %d times; want once", given.Load())
		}
	})
}

// Nor is it when the call is over for another reason: the client is gone, or
// the next route is tried.
func TestBodyOutlivesItsCall(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, to caller) {
		take, took := make(chan bool), make(chan string, 2)
		c := hasty(t, take, took)
		defer c.Close()
		body, given := prompt()
		ctx, cancel := context.WithCancel(t.Context())
		first, second := to(""), to("")
		first.Body, second.Body = body, body
		answer, err := c.Do(ctx, first)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		_ = answer.Body.Close()
		again, err := c.Do(t.Context(), second)
		if err != nil {
			t.Fatal(err)
		}
		body.Release()
		if given.Load() != 0 {
			t.Error("the memory is given back while the second call sends it")
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
			t.Errorf("in the end the memory was given back %d times; want once", given.Load())
		}
	})
}
