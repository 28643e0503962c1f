package upstream

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
)

// strangeAnswers are answers that a provider sends to a call of a customer, with good and bad HTTP. %s stands for the
// customer. Those that end with the connection are marked with endMark.
var strangeAnswers = map[string]string{
	"proper":                        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfor %s",
	"error":                         "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 9\r\n\r\nfor %s",
	"empty":                         "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	"no content":                    "HTTP/1.1 204 No Content\r\n\r\n",
	"no content, with a length":     "HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n",
	"no content, with a body":       "HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\nfor %s",
	"not modified, with a length":   "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
	"reset content, with a body":    "HTTP/1.1 205 Reset Content\r\nContent-Length: 9\r\n\r\nfor %s",
	"only newlines":                 "HTTP/1.1 200 OK\nContent-Length: 9\n\nfor %s",
	"no reason":                     "HTTP/1.1 200\r\nContent-Length: 9\r\n\r\nfor %s",
	"status 0":                      "HTTP/1.1 000 Zero\r\nContent-Length: 9\r\n\r\nfor %s",
	"short status":                  "HTTP/1.1 20 OK\r\nContent-Length: 9\r\n\r\nfor %s",
	"long status":                   "HTTP/1.1 2000 OK\r\nContent-Length: 9\r\n\r\nfor %s",
	"negative status":               "HTTP/1.1 -20 OK\r\nContent-Length: 9\r\n\r\nfor %s",
	"unknown status":                "HTTP/1.1 999 Strange\r\nContent-Length: 9\r\n\r\nfor %s",
	"version 2":                     "HTTP/2.0 200 OK\r\nContent-Length: 9\r\n\r\nfor %s",
	"version 1.0":                   "HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\nfor %s",
	"version 1.0, kept alive":       "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 9\r\n\r\nfor %s",
	"version 1.0, chunked":          "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nfor %s\r\n0\r\n\r\n" + endMark,
	"version 0.9":                   "for %s" + endMark,
	"newline before the answer":     "\r\nHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfor %s",
	"folded header":                 "HTTP/1.1 200 OK\r\nX-Long: a\r\n b\r\nContent-Length: 9\r\n\r\nfor %s",
	"space before the colon":        "HTTP/1.1 200 OK\r\nContent-Length : 9\r\n\r\nfor %s" + endMark,
	"space before the header":       "HTTP/1.1 200 OK\r\n Content-Length: 9\r\n\r\nfor %s" + endMark,
	"header without a colon":        "HTTP/1.1 200 OK\r\nContent-Length 9\r\n\r\nfor %s" + endMark,
	"zero byte in a header":         "HTTP/1.1 200 OK\r\nX-Zero: a\x00b\r\nContent-Length: 9\r\n\r\nfor %s" + endMark,
	"carriage return in a header":   "HTTP/1.1 200 OK\r\nX-Return: a\rContent-Length: 2\r\nContent-Length: 9\r\n\r\nfor %s" + endMark,
	"no length":                     "HTTP/1.1 200 OK\r\n\r\nfor %s" + endMark,
	"no length, kept alive":         "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\nfor %s" + endMark,
	"length too long":               "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfor %s" + endMark,
	"equal lengths":                 "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nContent-Length: 9\r\n\r\nfor %s",
	"two lengths":                   "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nContent-Length: 2\r\n\r\nfor %s",
	"list of lengths":               "HTTP/1.1 200 OK\r\nContent-Length: 9, 9\r\n\r\nfor %s",
	"negative length":               "HTTP/1.1 200 OK\r\nContent-Length: -9\r\n\r\nfor %s",
	"signed length":                 "HTTP/1.1 200 OK\r\nContent-Length: +9\r\n\r\nfor %s",
	"hexadecimal length":            "HTTP/1.1 200 OK\r\nContent-Length: 0x9\r\n\r\nfor %s",
	"empty length":                  "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nfor %s" + endMark,
	"length of 20 digits":           "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nfor %s" + endMark,
	"chunks":                        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfor \r\n5\r\n%s\r\n0\r\n\r\n",
	"chunks and a length":           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n9\r\nfor %s\r\n0\r\n\r\n",
	"chunk extensions":              "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9;name=\"value\"\r\nfor %s\r\n0;last\r\n\r\n",
	"chunk length in capitals":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\n\r\n0009\r\nfor %s\r\n000\r\n\r\n",
	"chunk length of 17 digits":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n00000000000000009\r\nfor %s\r\n0\r\n\r\n",
	"negative chunk length":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-9\r\nfor %s\r\n0\r\n\r\n",
	"chunk longer than its length":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nfor %s\r\n0\r\n\r\n",
	"chunk shorter than its length": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nfor %s\r\n0\r\n\r\n" + endMark,
	"chunks with newlines only":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\nfor %s\n0\n\n",
	"no last chunk":                 "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nfor %s\r\n" + endMark,
	"unknown encoding":              "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nfor %s" + endMark,
	"two encodings":                 "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n9\r\nfor %s\r\n0\r\n\r\n",
	"encoding twice":                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nfor %s\r\n0\r\n\r\n",
	"trailers":                      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n9\r\nfor %s\r\n0\r\nX-Sum: 1\r\n\r\n",
	"forbidden trailers":            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n9\r\nfor %s\r\n0\r\nContent-Length: 1\r\n\r\n",
	"undeclared trailers":           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nfor %s\r\n0\r\nX-Sum: 1\r\n\r\n",
	"invalid trailers":              "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nfor %s\r\n0\r\nX Sum\r\n\r\n",
	"trailers without an end":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nfor %s\r\n0\r\nX-Sum: 1\r\n" + endMark,
	"interim answers":               "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfor %s",
	"interim answer with a length":  "HTTP/1.1 103 Early Hints\r\nContent-Length: 9\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfor %s",
	"30 interim answers":            strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 30) + "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfor %s",
	"another protocol":              "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nfor %s",
	"interim answer, then the end":  "HTTP/1.1 100 Continue\r\n\r\n" + endMark,
	"close":                         "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\nfor %s" + endMark,
	"announced close that is none":  "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\nfor %s",
	"close among other options":     "HTTP/1.1 200 OK\r\nConnection: keep-alive, Close\r\nContent-Length: 9\r\n\r\nfor %s",
	"unannounced close":             "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: timeout=60, max=1000\r\nContent-Length: 9\r\n\r\nfor %s" + endMark,
	"nothing":                       endMark,
	"a further answer":              "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfor %sHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nalien",
	"a further line":                "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfor %s\r\n",
	"bytes after the last chunk":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nfor %s\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nalien",
}

// endMark marks the end of the connection in an answer.
const endMark = "<end>"

// strangely serves the first request of a connection with an answer, in writes of at most size bytes; 0: one write.
func strangely(answer string, size int, sent chan<- struct{}) func(c *strangeConn) {
	return func(c *strangeConn) {
		text, ends := strings.CutSuffix(strings.ReplaceAll(answer, "%s", c.request()), endMark)
		if size == 0 {
			size = len(text)
		}
		for len(text) > 0 {
			n := min(size, len(text))
			c.send(text[:n])
			text = text[n:]
		}
		close(sent)
		if !ends {
			c.serveProperly()
		}
	}
}

// callStrangeProvider makes the calls of three customers to a provider that answers the first one strangely. It returns
// the outcome of that one.
func callStrangeProvider(t *testing.T, secure, library bool, answer string, size int) outcome {
	t.Helper()
	sent := make(chan struct{})
	p := newStrangeProvider(t, secure, strangely(answer, size, sent))
	c, to, conns := p.client(t, library)
	first := callAs(t.Context(), c, to, "alice", 2)
	<-sent
	if strings.HasSuffix(answer, endMark) {
		<-p.ended // which the client may not have noticed
	}
	for _, who := range []string{"bob", "carol"} {
		got := callAs(t.Context(), c, to, who, 2)
		if want := (outcome{http.StatusOK, "for " + who, ""}); got != want && !library { // net/http may be late to see what is left
			t.Errorf("writes of %d: %s got %+v over %d connections; want %+v", size, who, got, conns(), want)
		}
	}
	return first
}

// The outcomes do not depend on how the answer is split.
func TestStrangeAnswersHaveTheSameOutcomeAsWithTheTransportOfNetHTTP(t *testing.T) {
	t.Parallel()
	for name, answer := range strangeAnswers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachWire(t, func(t *testing.T, secure bool) {
				want := callStrangeProvider(t, secure, true, answer, 0)
				for _, size := range []int{0, 1, 7} {
					if got := callStrangeProvider(t, secure, false, answer, size); got != want {
						t.Errorf("writes of %d: got %+v; net/http: %+v", size, got, want)
					}
				}
			})
		})
	}
}

func TestConnectionThatEndsAtAnyByteHasTheSameOutcomeAsWithTheTransportOfNetHTTP(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"trailers", "interim answers"} {
		answer := strings.ReplaceAll(strangeAnswers[name], "%s", "alice")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachWire(t, func(t *testing.T, secure bool) {
				for end := range len(answer) {
					cut := answer[:end] + endMark
					want := callStrangeProvider(t, secure, true, cut, 0)
					if got := callStrangeProvider(t, secure, false, cut, 0); got != want {
						t.Errorf("end after %q: got %+v; net/http: %+v", answer[:end], got, want)
					}
				}
			})
		})
	}
}

// splittingConn returns at most size bytes from each read; 0: no limit.
type splittingConn struct {
	nearEnd
	size int
}

func (c splittingConn) Read(p []byte) (int, error) {
	if c.size > 0 && c.size < len(p) {
		p = p[:c.size]
	}
	return c.nearEnd.Read(p)
}

// The provider sends the answer on the first connection and ends it. The second call shows whether bytes were left.
func FuzzAnswerHasTheSameOutcomeAsWithTheTransportOfNetHTTP(f *testing.F) {
	for _, answer := range strangeAnswers {
		f.Add(strings.ReplaceAll(strings.TrimSuffix(answer, endMark), "%s", "alice"), 0)
		f.Add(strings.ReplaceAll(strings.TrimSuffix(answer, endMark), "%s", "alice"), 3)
	}
	f.Fuzz(func(t *testing.T, answer string, size int) {
		var outcomes [2]outcome
		for i, library := range []bool{false, true} {
			c := raw(Limits{}, func(n int, conn net.Conn, r *bufio.Reader) {
				stranger := &strangeConn{Conn: conn, in: r}
				if n > 1 {
					stranger.serveProperly()
					return
				}
				strangely(answer+endMark, 0, make(chan struct{}))(stranger)
			})
			dial := c.dial
			c.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				near, err := dial(ctx, network, address)
				return splittingConn{near.(nearEnd), size}, err
			}
			to := call("")
			to.Provider.HTTP2 = library
			outcomes[i] = callAs(t.Context(), c, to, "alice", 2)
			if !library {
				if got, want := callAs(t.Context(), c, to, "bob", 2), (outcome{http.StatusOK, "for bob", ""}); got != want {
					t.Errorf("after %q: got %+v; want %+v", answer, got, want)
				}
			}
			c.Close()
		}
		if outcomes[0] != outcomes[1] {
			t.Errorf("%q: got %+v; net/http: %+v", answer, outcomes[0], outcomes[1])
		}
	})
}
