package providersim

import (
	"bytes"
	"iter"
	"net/http"
)

// event is one server-sent event.
type event struct {
	name   string // event: line, none when empty
	data   []byte
	words  int64 // output tokens whose text it carries
	last   bool  // nothing follows
	usage  any   // usage object it carries, nil without
	counts Counts
}

// script is the stream of one answer. Events are made while they are sent, so
// injected ones take part in the numbering of the format.
type script interface {
	events() iter.Seq[event]
	// keepalive returns an event without meaning; no data makes it a comment.
	keepalive() event
	// failure returns the events that end a stream that went wrong.
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

// play sends a stream, with its pauses and with the accidents that were asked for.
func (x *exchange) play(s script) error {
	if err := x.pause(x.d.delay); err != nil {
		return err
	}
	x.header(http.StatusOK, "text/event-stream; charset=utf-8")
	if err := x.accident(s); err != nil {
		return err
	}
	for e := range s.events() {
		if err := x.send(e); err != nil {
			return err
		}
		if e.last {
			break
		}
		// Here and not in front of the next event: that one would have its
		// number already, and what is injected needs a smaller one.
		if err := x.between(s); err != nil {
			return err
		}
	}
	// Only a cut behind the last event is left: the stream is complete but its
	// connection does not end properly.
	if reached(x.d.cut, x.entry.EventsSent) {
		return x.cutHere()
	}
	return nil
}

// cutHere lets everything written so far out before the connection is closed.
func (x *exchange) cutHere() error {
	if err := x.write(nil, true); err != nil {
		return err
	}
	return errCut
}

// accident ends the stream when its time has come.
func (x *exchange) accident(s script) error {
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

// between comes after every event but the last: accidents, the pause, and what
// keeps the client entertained when asked to.
func (x *exchange) between(s script) error {
	if err := x.accident(s); err != nil {
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
	return x.accident(s) // the keepalive may have been the last that was allowed
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
