package providersim

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The reasons for an incomplete answer.
var (
	errClientGone = errors.New("client gone")
	errReleased   = errors.New("released")
	errCut        = errors.New("cut")
	errFailed     = errors.New("stream failed") // the stream ended with an error event
)

// exchange is one request to the provider and its answer.
type exchange struct {
	sim     *Sim
	w       http.ResponseWriter
	r       *http.Request
	ctx     context.Context // ends with the client or with Close
	waiting context.Context // ends with Close
	entry   Entry
	body    []byte
	members members
	d       *directives
}

// provide answers as a provider and writes the journal. It aborts the connection if the
// answer is incomplete.
func (s *Sim) provide(w http.ResponseWriter, r *http.Request) {
	s.stats.begin()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	waiting := s.open()
	stop := context.AfterFunc(waiting, cancel)
	defer stop()

	x := &exchange{
		sim:     s,
		w:       w,
		r:       r,
		ctx:     ctx,
		waiting: waiting,
		d:       newDirectives(s.cfg),
	}
	err := x.receive()
	if err == nil {
		err = x.answer()
	}

	x.end(err)
	if err != nil && !errors.Is(err, errFailed) {
		x.abort()
	}
}

// receive reads the body and begins the journal entry. An incomplete upload gets an entry but
// no answer.
func (x *exchange) receive() error {
	e := &x.entry
	e.Time, e.Method, e.Path, e.Query = x.sim.cfg.Now(), x.r.Method, x.r.URL.Path, x.r.URL.RawQuery
	e.Format = formatOf(e.Path)
	e.APIKey = credential(x.r.Header)
	e.Headers = make(map[string][]string, len(x.r.Header))
	for name, values := range x.r.Header {
		e.Headers[strings.ToLower(name)] = values
	}

	body, err := io.ReadAll(io.LimitReader(x.r.Body, x.sim.cfg.MaxBodyBytes+1))
	x.body = body
	e.BodyBytes = int64(len(body))
	e.Body = string(body)
	if !utf8.Valid(body) {
		e.Body, e.BodyBase64 = base64.StdEncoding.EncodeToString(body), true
	}

	x.sim.journal.begin(e)
	e.RequestID = x.id("req_")
	if err != nil {
		return errClientGone
	}

	return nil
}

// id returns a unique id of this simulator.
func (x *exchange) id(kind string) string {
	return fmt.Sprintf("%s%s%06d", kind, x.sim.cfg.IDPrefix, x.entry.Seq)
}

// end completes the journal entry. It is called before the last byte of the answer is sent,
// see finish.
func (x *exchange) end(err error) {
	e := &x.entry
	switch {
	case err == nil:
		e.Outcome, e.Finished = OutcomeFinished, true
	case errors.Is(err, errFailed):
		e.Outcome = OutcomeFailed
	case errors.Is(err, errCut):
		e.Outcome = OutcomeCut
	case errors.Is(err, errReleased):
		e.Outcome = OutcomeReleased
	default:
		e.Outcome, e.ClientGone = OutcomeClientGone, true
	}

	e.Done = true
	e.DurationMS = x.sim.cfg.Now().Sub(e.Time).Milliseconds()
	x.sim.journal.end(e)
	x.sim.stats.end(e)
}

// abort closes the connection without completing the answer.
func (x *exchange) abort() {
	if x.d.reset {
		if conn, _, err := http.NewResponseController(x.w).Hijack(); err == nil {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // closing then sends RST
			}
			_ = conn.Close()
			return
		}
	}
	panic(http.ErrAbortHandler)
}

// gone returns an error if the client has disconnected or Close was called.
func (x *exchange) gone() error {
	switch {
	case x.waiting.Err() != nil:
		return errReleased
	case x.ctx.Err() != nil:
		return errClientGone
	}
	return nil
}

func (x *exchange) pause(d time.Duration) error {
	if d > 0 {
		x.sim.cfg.SleepFunc(x.ctx, d)
	}
	return x.gone()
}

// wait waits until the client disconnects or Close is called.
func (x *exchange) wait() error {
	<-x.ctx.Done()
	return x.gone()
}

// write writes bytes of the answer, and flushes them if flush is set.
func (x *exchange) write(b []byte, flush bool) error {
	if err := x.gone(); err != nil {
		return err
	}
	n, err := x.w.Write(b)
	x.entry.BytesSent += int64(n)
	if err == nil && flush {
		err = http.NewResponseController(x.w).Flush()
	}
	if err == nil || errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	if err := x.gone(); err != nil {
		return err
	}
	return errClientGone
}

// finish writes the last bytes of an answer. The last byte stays in the server's buffer until
// the handler returns, so that the journal is complete before the client has the answer.
func (x *exchange) finish(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if err := x.write(b[:len(b)-1], false); err != nil {
		return err
	}
	return x.write(b[len(b)-1:], false)
}

// header writes the status line and the headers.
func (x *exchange) header(status int, contentType string) {
	h := x.w.Header()
	if contentType != "" {
		h.Set("Content-Type", contentType)
	}
	x.providerHeaders(h)
	if name, value, ok := strings.Cut(x.d.header, ":"); ok {
		h.Set(name, strings.TrimSpace(value))
	}
	x.entry.Status = status
	x.w.WriteHeader(status)
}

// providerHeaders sets headers that a gateway must not forward to its clients.
func (x *exchange) providerHeaders(h http.Header) {
	if x.entry.Format == Messages {
		h.Set("Request-Id", x.entry.RequestID)
		h.Set("Anthropic-Organization-Id", "org-simulated")
		h.Set("Anthropic-Ratelimit-Requests-Remaining", "999")
		return
	}
	h.Set("X-Request-Id", x.entry.RequestID)
	h.Set("Openai-Organization", "org-simulated")
	h.Set("Openai-Processing-Ms", "1")
	h.Set("X-Ratelimit-Remaining-Requests", "999")
	h.Set("Set-Cookie", "sim_session=1; Path=/; HttpOnly")
}

// json sends a JSON body, truncated or delayed by directives.
func (x *exchange) json(status int, body []byte) error {
	return x.bytes(status, "application/json", body)
}

func (x *exchange) bytes(status int, contentType string, body []byte) error {
	if err := x.pause(x.d.delay); err != nil {
		return err
	}

	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.header(status, contentType)

	if x.d.cut >= 0 && x.d.cut <= int64(len(body)) {
		if err := x.write(body[:x.d.cut], true); err != nil {
			return err
		}
		return errCut
	}

	if x.d.slow {
		const piece = 64
		for len(body) > piece {
			if err := x.write(body[:piece], true); err != nil {
				return err
			}
			body = body[piece:]
			if err := x.pause(x.d.chunk); err != nil {
				return err
			}
		}
	}

	return x.finish(body)
}

// refuse answers with an error in the request's format.
func (x *exchange) refuse(f *fault) error {
	x.entry.ErrorCode = f.code
	return x.json(f.status, f.envelope(x.entry.Format, x.entry.RequestID))
}

// report records the usage object of an answer, nil without one, and its counts in the
// journal. Images and seconds are counted without a usage object too.
func (x *exchange) report(usage any, counts Counts) {
	if usage != nil {
		x.entry.Usage = mustJSON(usage)
	}
	if usage != nil || counts != (Counts{}) {
		x.entry.Counts = &counts
	}
}

func (x *exchange) authorized() bool {
	keys := x.sim.cfg.Keys
	return x.entry.APIKey != "" && (len(keys) == 0 || slices.Contains(keys, x.entry.APIKey))
}

// credential returns the key of a request, empty if it has none or two different ones.
func credential(h http.Header) string {
	bearer, _ := strings.CutPrefix(h.Get("Authorization"), "Bearer ")
	key := h.Get("X-Api-Key")
	switch {
	case key == "":
		return bearer
	case bearer == "" || bearer == key:
		return key
	}
	return ""
}

func formatOf(path string) Format {
	switch {
	case path == "/v1/responses":
		return Responses
	case path == "/v1/messages" || strings.HasPrefix(path, "/v1/messages/"):
		return Messages
	case path == "/v1/images/generations":
		return Images
	case path == "/v1/videos" || strings.HasPrefix(path, "/v1/videos/"):
		return Videos
	default:
		return Chat
	}
}

func hasMediaType(h http.Header, want string) bool {
	got, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && got == want
}
