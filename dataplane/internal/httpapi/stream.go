package httpapi

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"modelgateway/dataplane/internal/answercost"
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/httpapi/buffer"
	"modelgateway/dataplane/internal/httpapi/calls"
	"modelgateway/dataplane/internal/httpapi/pace"
	"modelgateway/dataplane/internal/httpapi/refused"
	"modelgateway/dataplane/internal/httpapi/room"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/sse"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// streamRelay relays one event stream.
type streamRelay struct {
	*relay
	splitter sse.Splitter
	// cost keeps the events that the cost goes into, nil for a client that does not ask for it.
	cost   *answercost.Stream
	room   room.Event
	out    []byte
	writer pace.Writer
	// ending reports whether the last event has come without the usage, which some providers send after it. held is the output
	// from then on: a client sees the end when the outcome is recorded. It also has what comes before the first token of a route
	// with a limit for that.
	ending bool
	held   []byte
	// ended reports whether the outcome is recorded; gone, whether the client has closed the connection or stopped
	// reading.
	ended, gone bool
	// flushed reports whether output was sent; last, whether no further output follows.
	flushed, last bool
	failure       *provider.Failure
	// recorded is when the cost so far was last written to the spool.
	recorded time.Time
	// closeTimer cancels the call if the provider keeps the connection open after the end of its stream.
	closeTimer *time.Timer
	// hides reports whether the model may reason without showing it, apart from what the stream shows; hasHidden, whether it
	// has done so in an earlier answer.
	hides, hasHidden bool
}

const (
	// readSize is the most that is read of a stream at once, in bytes.
	readSize = 16 << 10
	// maxOpenAfterEnd is how long a provider may keep the connection open after the end of its stream. Some clients
	// wait until it is closed.
	maxOpenAfterEnd = 100 * time.Millisecond
	// progressInterval is how often a long stream records its cost so far.
	progressInterval = time.Second
)

// The values of the reason label of mgw_stream_ends_total and of the log attribute "end", in addition to the classes of
// provider failures.
const (
	endCompleted  = "completed"
	endClientGone = "client_gone"
	endRevoked    = "revoked"
	endBusy       = "busy"
)

var readBuffers = sync.Pool{New: func() any { return new([readSize]byte) }}

// The headers of a stream, made once.
var (
	contentEvents = []string{"text/event-stream; charset=utf-8"}
	noCache       = []string{"no-cache"}
	noBuffering   = []string{"no"}
)

// relayStream relays events when they arrive. All output of one read is sent with one write and one flush. The outcome
// is recorded before the end of the stream is sent.
func (r *relay) relayStream() error {
	s := &streamRelay{relay: r, room: r.server.Answers.Event(r.key.AccountID, r)}
	s.cost = answercost.NewStream(r.asked, r.dialect.Format())
	s.splitter.Room = &s.room
	defer s.close()
	s.hasHidden = r.server.hiding.Of(r.model.ID)
	s.hides = s.hasHidden || r.mayHideReasoning()
	s.leave.Allow(s.patience())

	for s.failure == nil && s.next() == nil {
		if s.ended && s.gone && !s.call.Provider.KeepsBilling {
			break
		}
		if (s.ended || s.ending) && s.closeTimer == nil {
			s.closeTimer = time.AfterFunc(maxOpenAfterEnd, s.leave.CancelFunc())
		}
		s.cost.Watch(s.reader.Progress().Ending, s.leave.CancelFunc())
	}

	if s.failure != nil {
		return s.failure
	}

	return nil
}

// next relays the next bytes of the stream. It waits for them without holding buffers, because streams wait for the
// model most of the time.
func (s *streamRelay) next() error {
	err := s.answer.Body.Await()
	in, out := readBuffers.Get().(*[readSize]byte), buffer.Get()
	defer readBuffers.Put(in)
	defer buffer.Put(out)
	n := 0
	if err == nil {
		n, err = s.answer.Body.Read(in[:])
	}

	s.out = (*out)[:0]
	if n > 0 {
		s.splitter.Feed(in[:n])
		s.events()
		s.leave.Allow(s.patience())
	}

	s.gone = s.gone || s.leave.Gone()
	if s.gone {
		s.readOn(n)
	}
	if err != nil {
		s.endOfInput(err)
	}

	if s.ending && !s.ended || s.first.Waits() {
		s.held, s.out = append(s.held, s.out...), s.out[:0]
	} else if len(s.held) > 0 {
		s.out, s.held = append(s.held, s.out...), nil
	}

	s.last = err != nil
	if s.failure == nil || s.x.wrote { // otherwise nothing has reached the client, and another route may serve the request
		s.write()
	}

	*out = s.out[:0]
	return err
}

// readOn handles a read without the client. Once the usage has come, the stream has ended, but for a provider that charges
// for the whole of it: that one is read to its end.
func (s *streamRelay) readOn(n int) {
	s.leave.Read(n)
	if s.hasUsage() && s.failure == nil && !s.call.Provider.KeepsBilling {
		s.end(endClientGone, event.ClientGone)
	}
	s.recordProgress(time.Now())
}

func (s *streamRelay) close() {
	s.splitter.Close()
	s.room.Release()
	s.cost.Watch(false, nil)
	s.writer.End()
	if s.closeTimer != nil {
		s.closeTimer.Stop()
	}
}

// events handles the complete events of a read.
func (s *streamRelay) events() {
	for s.failure == nil {
		ev, ok := s.splitter.Next()
		if !ok {
			break
		}
		s.event(ev)
	}
	switch err := s.splitter.Err(); {
	case err == nil || s.ended || s.ending:
	case refused.IsBusy(err):
		if usage, _ := s.usage(false); usage.Output == 0 { // the provider has been paid for the event
			_ = s.lost(err)
		}
		s.fail(&provider.Failure{Client: errBusy.WithCause(err), Class: endBusy, Answered: true})
	default:
		s.fail(provider.TruncatedFailure(s.call, err))
	}
}

func (s *streamRelay) event(ev sse.Event) {
	switch {
	case s.ended:
		return // nothing follows the end, such as a second one
	case s.ending:
		s.lateUsage(ev)
		return
	}

	from := len(s.out)
	out, kind := s.reader.Event(s.out, ev)
	s.out = s.cost.Event(out, from, kind, s.reader.Progress().Ending)
	switch kind {
	case format.Failure:
		s.fail(s.reportedFailure())
	case format.Terminal:
		if s.begin(); s.failure != nil {
			return
		}
		if s.ending = true; s.hasUsage() {
			s.end(endCompleted, event.Completed)
		}
	case format.Content:
		s.begin()
	case format.Other:
	}
}

// begin notes that the output begins. If that is too late, the call has been ended for the next route.
func (s *streamRelay) begin() {
	if !s.first.Begin() {
		s.fail(provider.TruncatedFailure(s.call, provider.ErrFirstTokenTimeout))
	}
}

// lateUsage reads the usage from an event after the last one. Nothing of it reaches the client.
func (s *streamRelay) lateUsage(ev sse.Event) {
	if !bytes.Contains(ev.Data, []byte(`"usage"`)) {
		return
	}
	s.reader.Event(nil, ev)
	if s.hasUsage() {
		s.end(endCompleted, event.Completed)
	}
}

func (s *streamRelay) hasUsage() bool {
	_, reported := s.reader.Usage()
	return reported
}

// endOfInput handles the end of the provider's bytes. The stream is complete, is complete except for its last event, or
// is truncated.
func (s *streamRelay) endOfInput(err error) {
	if ev, ok := s.splitter.Flush(); ok && s.failure == nil {
		s.event(ev)
	}
	if s.failure == nil && errors.Is(err, io.EOF) {
		s.begin() // it has all come
	}
	switch {
	case s.ended || s.failure != nil:
	case s.ending: // without usage, by itself or because the provider has kept the connection open
		s.end(endCompleted, event.Completed)
	case errors.Is(err, io.EOF), s.cost.Overdue():
		from := len(s.out)
		if out, complete := s.reader.Finish(s.out); complete {
			s.out = s.cost.Added(out, from)
			s.end(endCompleted, event.Completed)
			return
		}
		if s.gone {
			s.end(endClientGone, event.ClientGone)
			return
		}
		s.fail(provider.TruncatedFailure(s.call, io.ErrUnexpectedEOF))
	case s.reservation.Revoked():
		s.fail(&provider.Failure{Client: errRevoked, Class: endRevoked, Answered: true})
	case s.gone || s.x.client.Gone():
		s.gone = true
		s.end(endClientGone, event.ClientGone)
	default:
		s.fail(provider.TruncatedFailure(s.call, err))
	}
}

// fail ends the stream with an error. Before the first byte has been sent only this attempt fails, and another route
// may serve the request. Afterwards the client gets the error as an event of its format, and the delivered output is
// charged.
func (s *streamRelay) fail(f *provider.Failure) {
	s.failure = f
	if !s.x.wrote {
		s.out = s.out[:0] // no output of this read has been sent
		return
	}
	status := event.Failed
	if f.Class == endRevoked {
		status = event.Revoked
	}
	s.end(f.Class, status)
	s.out = s.reader.AppendError(s.out, f.Client, s.x.id)
}

// end records the outcome of the stream.
func (s *streamRelay) end(reason string, status event.Status) {
	if s.ended {
		return
	}
	if status == event.Completed && s.clientLeft() {
		reason, status = endClientGone, event.ClientGone // it was read to its end because the provider charges for it
	}

	s.ended, s.x.end = true, reason
	left := status == event.ClientGone || status == event.Revoked
	reportedUsage, reported := s.reader.Usage()
	usage, doubt := s.usage(status == event.Completed)
	switch {
	case reported:
		s.noteReport(&reportedUsage)
	case left && s.hidesReasoning():
		usage.Output = max(usage.Output, s.quote.Usage.Output)
	}
	if left {
		s.setTier(&usage, true)
	}

	o := outcome{
		status:     status,
		rule:       ruleOf(doubt),
		doubt:      doubt,
		usage:      usage,
		providerID: s.reader.ProviderID(),
		answered:   http.StatusOK,
	}
	if status == event.Failed && calls.IsBare(s.reader) {
		o.rule, o.usage = event.RuleNone, price.Usage{}
	}
	if status == event.Failed {
		o.class = reason
	}
	if status == event.ClientGone {
		s.server.Metrics.RecordLeft(o.rule)
	}

	s.finish(o)
	s.out = s.cost.End(s.out, s.toldCharge())
}

// clientLeft reports whether the client has closed the connection.
func (s *streamRelay) clientLeft() bool {
	return s.gone || s.leave.Gone() || s.x.client.Err() != nil || s.call.Provider.KeepsBilling && s.x.client.Gone()
}

// write sends the output of a read, unless the client has left.
func (s *streamRelay) write() {
	if len(s.out) == 0 || s.gone {
		return
	}

	if !s.x.wrote {
		h := s.x.Header()
		h["Content-Type"] = contentEvents
		h["Cache-Control"] = noCache
		h["X-Accel-Buffering"] = noBuffering
		s.x.WriteHeader(http.StatusOK)
		s.body.Done()         // no other route can serve the request any more, and a stream may last for minutes
		s.attempt.Succeeded() // at once, because a stream can take minutes and other requests wait for the result of the probe
		s.server.Metrics.RecordFirstToken(s.call.Provider.ID, s.call.ID, time.Since(s.x.started))
	}

	now := time.Now()
	s.recordProgress(now)

	if s.last {
		s.writer.End() // net/http writes the end of the answer
	}
	first := !s.flushed
	s.writer.Lock(now)
	s.x.conn.ExtendWrite(now)
	err := s.send()
	s.writer.Unlock()
	if err != nil {
		s.gone = true
		s.leave.Leave()
		return
	}
	if first && !s.last {
		s.writer.Begin(s)
	}
}

// ShowLife implements pace.Owner.
func (s *streamRelay) ShowLife() {
	if s.leave.Gone() {
		return
	}
	s.x.conn.ExtendWrite(time.Now())
	if err := s.sendBetween(format.SignOfLife(s.dialect.Format())); err != nil {
		s.leave.Leave()
	}
}

// sendBetween sends output that is neither the first nor the last.
func (s *streamRelay) sendBetween(out []byte) error {
	if s.x.conn != nil && s.incoming.ProtoAtLeast(1, 1) {
		return s.x.conn.WriteChunk(out) // a chunk of its own needs nothing of net/http
	}
	if _, err := s.x.Write(out); err != nil {
		return err
	}
	return http.NewResponseController(s.x.ResponseWriter).Flush() //nolint:wrapcheck // only compared with nil
}

// send sends the output.
func (s *streamRelay) send() error {
	if s.flushed && !s.last && s.x.conn != nil {
		return s.sendBetween(s.out)
	}
	return s.x.conn.CoalesceWrites(s.writeAndFlush)
}

// writeAndFlush does not flush the last output: the handler returns after it, and the server then sends it in one write
// with the end of the answer. Output that is the first, too, is flushed, or the server would declare a length.
func (s *streamRelay) writeAndFlush() error {
	if _, err := s.x.Write(s.out); err != nil {
		return err
	}
	if s.last && s.flushed {
		return nil
	}
	s.flushed = true
	return http.NewResponseController(s.x.ResponseWriter).Flush() //nolint:wrapcheck // only compared with nil
}

// recordProgress records the cost of the delivered output in the spool, in case this process is killed.
func (s *streamRelay) recordProgress(now time.Time) {
	if s.recorded.IsZero() {
		s.recorded = now
	}
	if s.ended || now.Sub(s.recorded) < progressInterval {
		return
	}
	s.recorded = now
	usage, _ := s.usage(false)
	if cost, err := price.Cost(&usage, s.sheet); err == nil {
		s.reservation.Progress(usage, cost)
	}
}
