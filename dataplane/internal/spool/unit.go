package spool

import (
	"fmt"
	"log/slog"
	"sync"

	"modelgateway/shared/event"
	"modelgateway/shared/lease/usagelog"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

// Unit is one unit of spool capacity, reserved for one request. Call AppendStarted
// when the request is admitted and AppendFinished when it ends, or Release if it is
// not admitted.
type Unit struct {
	s     *Spool
	state unitState
	id    string // of the request, once started
}

type unitState int

const (
	unitReserved unitState = iota
	unitStarted
	unitDone
)

// Reserve reserves a unit of spool capacity, or returns ErrFull or
// ErrNotWritable.
func (s *Spool) Reserve() (*Unit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(); err != nil {
		return nil, err
	}
	s.reserved++
	return &Unit{s: s}, nil
}

// Release releases the unit. It has no effect after AppendStarted.
func (u *Unit) Release() {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	if u.state == unitReserved {
		u.s.reserved--
		u.state = unitDone
	}
}

// AppendStarted writes the started record of the request. It has the event that
// is reported if the process dies before the request ends: e with the status
// aborted and without a cost. It fails if the session of the event is unknown or
// listed as finished, or if the disk refuses the write.
func (u *Unit) AppendStarted(e *event.Usage) error {
	aborted := *e
	aborted.Status, aborted.Cost, aborted.Rule = event.Aborted, 0, event.RuleNone
	buffer := startedBuffers.Get().(*[]byte)
	defer startedBuffers.Put(buffer)
	*buffer = appendEventRecord(*buffer, kindStarted, &aborted)
	s := u.s
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.usage.Session(wire.SessionID(e.Session))
	if !sess.AcceptsRequests() {
		return fmt.Errorf("spool: session %d has ended", e.Session)
	}

	at, err := s.write(*buffer)
	if err != nil {
		return err
	}

	sess.Running++
	s.addRunning(e.RequestID, startedRequest{started: at})
	s.reserved--
	u.state, u.id = unitStarted, e.RequestID

	return nil
}

var startedBuffers = sync.Pool{New: func() any { b := make([]byte, 0, eventBufferBytes); return &b }}

// AppendProgress writes the cost of a started request so far. It is best effort:
// if the disk refuses the write, only the spool's state changes.
func (u *Unit) AppendProgress(usage price.Usage, cost money.Nano) {
	record, err := encodeRecord(kindProgress, progressRecord{u.id, usage, cost})
	if err != nil {
		return
	}
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	if u.state != unitStarted {
		return
	}
	if at, err := u.s.write(record); err == nil { // write sets writeErr
		u.s.setProgress(u.id, at)
	}
}

// AppendFinished sets the sequence number of the event of a started request,
// writes the event and queues it for publication. The event is never lost: if the disk
// refuses it, it is kept in memory, and no request is admitted until it is
// written. stored reports whether it was written: only then does it outlive a
// kill of the process.
func (u *Unit) AppendFinished(e *event.Usage) (stored bool) {
	s := u.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.state != unitStarted {
		return false
	}
	u.state = unitDone
	stored = s.appendFinished(e)
	s.wakePublisher()
	return stored
}

func (s *Spool) appendFinished(e *event.Usage) (stored bool) {
	id := wire.SessionID(e.Session)
	sess, started := s.usage.Open(id, ""), s.removeRunning(e.RequestID)
	sess.Running--
	e.Seq = sess.Last + 1
	record := appendEventRecord(make([]byte, 0, eventBufferBytes), kindFinished, e)
	entry := &entry{
		Delivery:   usagelog.Delivery{Session: id},
		segment:    started.started.segment,
		record:     record,
		size:       int32(len(record) - prefixBytes),
		finishedMS: e.FinishedMS,
	}
	s.usage.Add(e.Seq, entry)
	s.usage.Enqueue(entry)
	s.unwritten = append(s.unwritten, entry)
	err := s.flush()
	if err != nil && s.lost == nil { // the loss of the directory has been logged
		s.raiseSkipCount()
		s.log.Error("usage event cannot be written to the spool and is kept in memory",
			slog.String("request_id", e.RequestID), slog.Any("error", err))
	}

	s.trim()
	return err == nil
}
