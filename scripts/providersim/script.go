package providersim

import (
	"bytes"
	"iter"
	"net/http"
)

// event is one server-sent event.
type event struct {
	name   string // event: line, no such line if empty
	data   []byte
	words  int64 // number of output tokens in it
	last   bool  // nothing follows
	usage  any   // usage object in it, may be nil
	counts Counts
}

// script is the stream of one answer. Events are created when they are sent, so that injected
// events get the next sequence number of the format.
type script interface {
	events() iter.Seq[event]
	// keepalive returns an event without content. Without data it is a comment.
	keepalive() event
	// failure returns the events that end a failed stream.
	failure(f *fault) []event
}

func (e event) frame() []byte {
	var b bytes.Buffer
	b.Grow(len(e.name) + len(e.data) + 24)
	if e.data == nil {
		b.WriteString(": keep-alive\n\n")
		return b.Bytes()
	}
	if e.name != "" {
		b.WriteString("event: " + e.name + "\n")
	}
	b.WriteString("data: ")
	b.Write(e.data)
	b.WriteString("\n\n")
	return b.Bytes()
}

// play sends a stream with the pauses and failures of its directives.
func (x *exchange) play(s script) error {
	if err := x.pause(x.d.delay); err != nil {
		return err
	}

	x.header(http.StatusOK, "text/event-stream; charset=utf-8")
	if err := x.injectFailure(s); err != nil {
		return err
	}

	for e := range s.events() {
		if err := x.send(e); err != nil {
			return err
		}
		if e.last {
			break
		}
		// Not before the next event, because that would already have a sequence number, and
		// an injected event needs a smaller one.
		if err := x.between(s); err != nil {
			return err
		}
	}

	// A cut after the last event: the stream is complete, but its connection is aborted.
	if reached(x.d.cut, x.entry.EventsSent) {
		return x.cutHere()
	}

	return nil
}

// cutHere flushes the written bytes before the connection is closed.
func (x *exchange) cutHere() error {
	if err := x.write(nil, true); err != nil {
		return err
	}
	return errCut
}

// injectFailure ends the stream if a directive requires it at this event.
func (x *exchange) injectFailure(s script) error {
	sent := x.entry.EventsSent
	switch {
	case reached(x.d.cut, sent):
		return x.cutHere()
	case reached(x.d.stall, sent):
		if err := x.write(nil, true); err != nil {
			return err
		}
		return x.wait()
	case reached(x.d.failAfter, sent):
		return x.failStream(s)
	}
	return nil
}

func reached(mark, sent int64) bool { return mark != unset && sent >= mark }

func (x *exchange) failStream(s script) error {
	f := faultOf(http.StatusInternalServerError).override(x.d)
	x.entry.ErrorCode = f.code
	events := s.failure(f)
	for i, e := range events {
		e.last = i == len(events)-1
		if err := x.send(e); err != nil {
			return err
		}
	}
	return errFailed
}

// between is called after every event except the last. It injects failures, pauses, and
// sends a keepalive if a directive requires it.
func (x *exchange) between(s script) error {
	if err := x.injectFailure(s); err != nil {
		return err
	}
	if err := x.pause(x.d.chunk); err != nil {
		return err
	}
	if !x.d.keepalive {
		return nil
	}
	if err := x.send(s.keepalive()); err != nil {
		return err
	}
	return x.injectFailure(s) // the keepalive counts as an event
}

func (x *exchange) send(e event) error {
	frame := e.frame()
	var err error
	if e.last {
		err = x.finish(frame)
	} else {
		err = x.write(frame, true)
	}

	if err != nil {
		return err
	}
	if e.data != nil {
		x.entry.EventsSent++
	}

	x.entry.Delivered += e.words
	x.report(e.usage, e.counts)
	return nil
}
