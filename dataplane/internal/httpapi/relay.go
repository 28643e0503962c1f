package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/route"
	"modelgateway/dataplane/internal/sse"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// attempted is an answer with a good status on its way to the client.
type attempted struct {
	*job
	call   *provider.Call
	answer *provider.Answer
	try    *route.Attempt
	format format.Answer
}

// maxAnswer bounds an answer in one piece: pictures come in it.
const maxAnswer = 256 << 20

func (a *attempted) relay(cancel context.CancelFunc) error {
	contentType := a.answer.Header.Get("Content-Type")
	if a.request.Stream && strings.HasPrefix(contentType, "text/event-stream") {
		return a.relayStream(cancel)
	}
	return a.relayJSON()
}

// relayJSON relays an answer in one piece. It is recorded before it is
// written.
func (a *attempted) relayJSON() error {
	b, rewritten := getBuffer(), getBuffer()
	defer putBuffer(b)
	defer putBuffer(rewritten)
	reading := time.Now()
	body, err := readAll((*b)[:0], a.answer.Body, a.answer.Length, maxAnswer)
	*b = body
	a.x.upstream += time.Since(reading)
	if err != nil {
		return provider.Broken(a.call, err)
	}
	out, ok := a.format.JSON((*rewritten)[:0], body)
	if len(out) > 0 && &out[0] != &body[0] {
		*rewritten = out // grown, perhaps
	}
	if !ok {
		return provider.Judge(a.call.Format, a.answer.Status, a.answer.Header, a.format.Failure(), true, a.cleaner(a.call.Choice))
	}
	usage, reported := a.format.Usage()
	if !reported {
		usage = a.estimate(usage)
	}
	a.finish(outcome{status: event.Completed, rule: rule(reported), usage: usage, providerID: a.format.ProviderID(), answered: http.StatusOK})
	a.x.writeJSON(http.StatusOK, out)
	return nil
}

func rule(reported bool) string {
	if reported {
		return event.RuleReported
	}
	return event.RuleEstimated
}

// estimate fills in what a provider did not report: the input as it was
// estimated for the reserve, the output from what was delivered.
func (a *attempted) estimate(u price.Usage) price.Usage {
	if u.TotalInput() == 0 {
		u.Input = a.input
	}
	u.Output = max(u.Output, a.format.DeliveredTokens())
	u.Size, u.Quality = a.request.Size, a.request.Quality
	return u
}

// stream is the state of one relayed stream.
type stream struct {
	*attempted
	splitter sse.Splitter
	out      []byte
	// ended: the outcome is recorded; gone: nobody reads any more.
	ended, gone bool
	failure     *provider.Failure
	// noted is when the cost so far was last put on disk.
	noted   time.Time
	control *http.ResponseController
	conn    *gathered
	// movedDeadline is when the limit of writing was last moved; linger runs from the end of the stream.
	movedDeadline time.Time
	linger        *time.Timer
}

// readSize is how much of a stream is read at once, and readBuffers are what it
// is read through.
const readSize = 16 << 10

var readBuffers = sync.Pool{New: func() any { return new([readSize]byte) }}

var contentEvents = []string{"text/event-stream; charset=utf-8"}

// relayStream passes events on as they come: what one read brings leaves with
// one write and one flush. The end of a stream is recorded before it is
// written.
func (a *attempted) relayStream(cancel context.CancelFunc) error {
	s := &stream{attempted: a, control: http.NewResponseController(a.x.ResponseWriter), conn: connOf(a.r.Context())}
	defer s.close()
	for {
		if err := s.next(cancel); err != nil || s.failure != nil {
			return s.result()
		}
		if s.ended && s.linger == nil {
			s.linger = time.AfterFunc(maxLinger, cancel)
		}
	}
}

// next passes on what comes next. It takes buffers when it has come: most
// streams wait for their model most of the time.
func (s *stream) next(cancel context.CancelFunc) error {
	err := await(s.answer.Body)
	in, out := readBuffers.Get().(*[readSize]byte), getBuffer()
	defer readBuffers.Put(in)
	defer putBuffer(out)
	n := 0
	if err == nil {
		n, err = s.answer.Body.Read(in[:])
	}
	s.out = (*out)[:0]
	if n > 0 {
		s.splitter.Feed(in[:n])
		s.events()
	}
	if err != nil {
		s.finishRead(err)
	}
	if s.failure == nil || s.x.wrote { // else nothing has reached the client: another route may do better
		s.write(cancel)
	}
	*out = s.out[:0]
	return err
}

// await waits until a body has something to read, if it can tell.
func await(body io.Reader) error {
	if b, ok := body.(interface{ Await() error }); ok {
		return b.Await()
	}
	return nil
}

// maxLinger is how long a provider may keep the connection open behind the end
// of its stream. Some clients wait for it to be closed.
const maxLinger = 100 * time.Millisecond

func (s *stream) close() {
	s.splitter.Close()
	if s.linger != nil {
		s.linger.Stop()
	}
	if !s.movedDeadline.IsZero() && !s.gone { // behind a write that failed, so must what the server adds: the answer is not whole
		_ = s.control.SetWriteDeadline(time.Time{}) // the connection is used again
	}
}

// events handles the complete events of a read.
func (s *stream) events() {
	for s.failure == nil {
		ev, ok := s.splitter.Next()
		if !ok {
			break
		}
		s.event(ev)
	}
	if err := s.splitter.Err(); err != nil && !s.ended {
		s.fail(provider.Broken(s.call, err))
	}
}

func (s *stream) event(ev sse.Event) {
	var kind format.Kind
	s.out, kind = s.format.Event(s.out, ev)
	switch kind {
	case format.Failure:
		if s.ended {
			return // whatever comes after the end is nobody's business
		}
		s.fail(provider.Judge(s.call.Format, s.answer.Status, s.answer.Header, s.format.Failure(), true, s.cleaner(s.call.Choice)))
	case format.Terminal:
		s.end("completed", event.Completed)
	case format.Content, format.Other:
	}
}

// finishRead handles the end of the provider's bytes: a whole stream, one that
// lacks its last words, or one that broke.
func (s *stream) finishRead(err error) {
	if ev, ok := s.splitter.Flush(); ok && s.failure == nil {
		s.event(ev)
	}
	switch {
	case s.ended || s.failure != nil:
	case errors.Is(err, io.EOF):
		var whole bool
		if s.out, whole = s.format.Finish(s.out); whole {
			s.end("completed", event.Completed)
			return
		}
		s.fail(provider.Broken(s.call, io.ErrUnexpectedEOF))
	case s.hold.Revoked():
		s.fail(&provider.Failure{Client: errInvalidKey, Class: "revoked", Answered: true})
	case s.gone || s.r.Context().Err() != nil:
		s.gone = true
		s.end("client_gone", event.ClientGone)
	default:
		s.fail(provider.Broken(s.call, err))
	}
}

// fail ends the stream with an error. Before the first byte, that is an answer
// like any other, of another route perhaps. Once output has begun, the error
// goes out as an event of the format, and what was delivered is billed.
func (s *stream) fail(f *provider.Failure) {
	s.failure = f
	if !s.x.wrote {
		s.out = s.out[:0] // held back so far: as if nothing had come
		return
	}
	status := event.Failed
	if f.Class == "revoked" {
		status = event.Revoked
	}
	s.end(f.Class, status)
	s.out = s.dialect.ErrorEvent(s.out, f.Client, s.x.id, s.format)
}

// end records the outcome of the stream.
func (s *stream) end(why string, status event.Status) {
	if s.ended {
		return
	}
	if status == event.Completed && (s.gone || s.r.Context().Err() != nil) {
		why, status = "client_gone", event.ClientGone // read to its end for the provider's bill
	}
	s.ended, s.x.end = true, why
	usage, reported := s.format.Usage()
	known := reported || usage.TotalInput() > 0 || usage.Output > 0 || s.format.DeliveredTokens() > 0
	if !reported {
		usage = s.estimate(usage)
	}
	o := outcome{status: status, rule: rule(reported), usage: usage, providerID: s.format.ProviderID(), answered: http.StatusOK}
	if !known && status != event.Completed {
		o.rule, o.usage = event.RuleNone, price.Usage{} // nothing came that could be billed
	}
	s.finish(o)
}

// write sends what a read has brought. When the client is gone the call is
// cancelled, unless its provider bills it to the end.
func (s *stream) write(cancel context.CancelFunc) {
	if len(s.out) == 0 || s.gone {
		return
	}
	if s.x.Header()["Content-Type"] == nil {
		h := s.x.Header()
		h["Content-Type"] = contentEvents
		h["Cache-Control"] = []string{"no-cache"}
		h["X-Accel-Buffering"] = []string{"no"}
		s.x.WriteHeader(http.StatusOK)
		s.try.Succeeded() // a stream can take minutes, and others wait to hear of the route
		s.s.Metrics.firstToken(time.Since(s.x.started))
	}
	now := time.Now()
	s.progress(now)
	s.moveDeadline(now)
	if err := s.conn.together(s.send); err != nil {
		s.gone = true
		if !s.call.Provider.KeepsBilling {
			cancel()
		}
	}
}

// send writes and flushes.
func (s *stream) send() error {
	if _, err := s.x.Write(s.out); err != nil {
		return err
	}
	return s.control.Flush() //nolint:wrapcheck // nobody looks into it
}

// progressEvery is how often a long stream notes what it has cost so far.
const progressEvery = time.Second

// moveDeadline gives the client its time again, not at every write: a client
// that takes nothing must not hold money and a slot for ever.
func (s *stream) moveDeadline(now time.Time) {
	limit := s.s.cfg.StallTimeout
	if now.Sub(s.movedDeadline) < limit/4 {
		return
	}
	s.movedDeadline = now
	_ = s.control.SetWriteDeadline(now.Add(limit)) // without deadlines, the client is trusted
}

// progress notes the cost of what was delivered, in case this process dies.
func (s *stream) progress(now time.Time) {
	if s.noted.IsZero() {
		s.noted = now
	}
	if s.ended || now.Sub(s.noted) < progressEvery {
		return
	}
	s.noted = now
	usage, reported := s.format.Usage()
	if !reported {
		usage = s.estimate(usage)
	}
	if cost, err := price.Cost(&usage, s.sheet); err == nil {
		s.hold.Progress(usage, cost)
	}
}

// result is what the handler returns for the log.
func (s *stream) result() error {
	if s.failure != nil {
		return s.failure
	}
	return nil
}
