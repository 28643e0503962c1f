// Package spool owns usage on its way out: every admitted request is noted on
// disk before it is sent to a provider, every finished one becomes an event
// that is kept until the control plane reports it settled.
//
// Records are written by plain writes, which survive the death of the process
// but not of the machine. A place is reserved at admission, so that what could
// not be billed is not served. After a restart, requests that never finished
// become events of the status aborted, with the cost of their last progress.
//
// The spool numbers events 1, 2, 3… within their session. A number is given
// once: where a process was killed that could not write, the next one leaves
// some out (see note). The spool does not publish: the publisher asks it for
// what is due.
package spool

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"modelgateway/dataplane/internal/session"
	"modelgateway/shared/event"
	"modelgateway/shared/lease/usagelog"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

var (
	// ErrFull says that no place is left, and nothing may be admitted.
	ErrFull = errors.New("spool: full")
	// ErrBroken says that the disk refuses writes, and nothing may be admitted.
	ErrNotWritable = errors.New("spool: cannot write")
)

// Config says where the spool is and what it may hold.
type Config struct {
	Dir string
	// MaxEvents bounds running requests and unsettled events, MaxBytes the files. Admission stops at 90 % of either.
	MaxEvents, MaxBytes int64
	// SegmentBytes is the size at which a new file is begun; zero means 16 MiB, or less if MaxBytes is small.
	SegmentBytes int64
}

// Spool is safe for concurrent use.
type Spool struct {
	cfg      Config
	log      *slog.Logger
	openFile openFile
	openedAt time.Time // what sending times count from, on the monotonic clock
	lock     *os.File  // keeps other processes away; nil if there was no room for the directory

	mu            sync.Mutex
	segments      []*segment // the last one is written to, once begun
	hasOwnSegment bool       // this process has made a segment of its own
	nextSegment   int64      // number of the next segment
	// usage is what is not settled, with its numbers and when it is to be published.
	usage    *usagelog.Log[*entry]
	running  map[string]startedRequest
	reserved int64 // places that are promised to requests not yet started
	bytes    int64
	// unwritten are events that the disk has refused so far, in order. Nothing is written before them.
	unwritten []*entry
	// beyond is what the directory says of their numbers: see note. skipped is how many of these this process has passed over.
	skipCount, skippedNumbers int64
	cachedBytes               int64 // bytes of written records that are kept for publishing
	writeErr                  error
	wake                      chan struct{}
}

// entry is one unsettled event.
type entry struct {
	usagelog.Delivery
	// segment is kept for the event's sake: the one that holds it or, while it is unwritten, its started record.
	segment    *segment
	offset     int64  // zero until it is written: a segment begins with a header
	record     []byte // with the event itself: until it is written, and as long as there is room, published
	finishedMS int64  // when it was finished, in Unix milliseconds
	size       int32
}

// release lets a settled event go.
func (s *Spool) releaseEntry(e *entry) {
	s.dropRecord(e)
	e.segment.live--
}

// Open opens the spool in a directory, which it makes, and recovers what an
// earlier process left there; it is ErrTaken while that one runs. On a full disk it does so too: what is there is
// published, nothing is admitted, and that changes when there is room.
func Open(cfg Config, log *slog.Logger) (*Spool, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil && !isFull(err) {
		return nil, fmt.Errorf("spool: make directory: %w", err)
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	s, err := open(cfg, log, openOS)
	if err != nil {
		_ = lock.Close() // an error for a nil file, which it may be
		return nil, err
	}
	s.lock = lock
	return s, nil
}

func open(cfg Config, log *slog.Logger, openFile openFile) (*Spool, error) {
	if cfg.SegmentBytes == 0 {
		// Segments go whole, and the last one never: many of them must fit.
		cfg.SegmentBytes = min(16<<20, cfg.MaxBytes/16)
	}
	s := &Spool{
		cfg: cfg, log: log, openFile: openFile, openedAt: time.Now(), nextSegment: 1,
		usage: usagelog.New[*entry](), running: map[string]startedRequest{}, wake: make(chan struct{}, 1),
	}
	if err := s.recover(); err != nil {
		_ = s.Close() // what was opened so far; nothing was written to it
		return nil, err
	}
	return s, nil
}

// Close closes the files.
func (s *Spool) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, seg := range s.segments {
		errs = append(errs, seg.file.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// Wake receives whenever there may be something to publish.
func (s *Spool) Wake() <-chan struct{} { return s.wake }

func (s *Spool) wakePublisher() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Capacity is the number of places.
func (s *Spool) Capacity() int64 { return s.cfg.MaxEvents }

// Used is the number of places taken.
func (s *Spool) UsedCapacity() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usedCapacity()
}

func (s *Spool) usedCapacity() int64 { return s.reserved + int64(len(s.running)) + s.usage.Pending() }

// Broken returns why the disk refuses writes, or nil.
func (s *Spool) WriteError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeErr
}

// Ready returns why nothing may be admitted, or nil.
func (s *Spool) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready()
}

func (s *Spool) ready() error {
	switch {
	case s.writeErr != nil:
		return fmt.Errorf("%w: %w", ErrNotWritable, s.writeErr)
	case s.usedCapacity() >= s.cfg.MaxEvents/10*9, s.bytes >= s.cfg.MaxBytes/10*9:
		return ErrFull
	}
	return nil
}

// Place is a reserved place for one request: Start it, then Finish it; or
// Release it when the request is not admitted.
type Unit struct {
	s *Spool
	// state: 0 reserved, 1 started, 2 done
	state int
	id    string
}

// Reserve takes a place, or returns ErrFull or ErrBroken.
func (s *Spool) Reserve() (*Unit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(); err != nil {
		return nil, err
	}
	s.reserved++
	return &Unit{s: s}, nil
}

// Release gives a place back that was not started.
func (p *Unit) Release() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.state == 0 {
		p.s.reserved--
		p.state = 2
	}
}

// Start notes the request on disk. The event is what will be reported should
// the process die: its status is set to aborted and its cost to nothing.
func (p *Unit) AppendStarted(e *event.Usage) error {
	aborted := *e
	aborted.Status, aborted.Cost, aborted.Rule = event.Aborted, 0, event.RuleNone
	buffer := startBuffers.Get().(*[]byte)
	defer startBuffers.Put(buffer)
	*buffer = appendEventRecord(*buffer, kindStarted, &aborted)
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	life := s.usage.Session(wire.SessionID(e.Session))
	if !life.AcceptsRequests() {
		return fmt.Errorf("spool: session %d is over", e.Session)
	}
	seg, err := s.write(*buffer)
	if err != nil {
		return err
	}
	seg.live++
	life.Running++
	s.running[e.RequestID] = startedRequest{segment: seg}
	s.reserved--
	p.state, p.id = 1, e.RequestID
	return nil
}

var startBuffers = sync.Pool{New: func() any { b := make([]byte, 0, eventBufferBytes); return &b }}

// Progress notes what a started request has cost so far. It is best effort: a
// refused write is noted as the spool's state.
func (p *Unit) AppendProgress(u price.Usage, cost money.Nano) {
	record, err := encodeRecord(kindProgress, progressRecord{p.id, u, cost})
	if err != nil {
		return
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.state == 1 {
		_, _ = p.s.write(record) // the spool is marked broken by it
	}
}

// Finish turns a started request into an event, numbers it and has it
// published. It never loses the event: if the disk refuses it, the event is
// kept in memory and the spool admits nothing more.
func (p *Unit) AppendFinished(e *event.Usage) {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.state != 1 {
		return
	}
	p.state = 2
	s.appendFinished(e)
	s.wakePublisher()
}

func (s *Spool) appendFinished(e *event.Usage) {
	id := wire.SessionID(e.Session)
	life, started := s.usage.Open(id, ""), s.running[e.RequestID]
	delete(s.running, e.RequestID)
	life.Running--
	e.Seq = life.Last + 1
	record := appendEventRecord(make([]byte, 0, eventBufferBytes), kindFinished, e)
	entry := &entry{Delivery: usagelog.Delivery{Session: id}, segment: started.segment, record: record, size: int32(len(record) - prefixSize), finishedMS: e.FinishedMS}
	s.usage.Add(e.Seq, entry)
	s.usage.Enqueue(entry)
	s.unwritten = append(s.unwritten, entry)
	if err := s.flush(); err != nil {
		s.raiseSkipCount()
		s.log.Error("usage event kept in memory only", slog.String("request_id", e.RequestID), slog.Any("error", err))
	}
	s.trim()
}

// write appends a record, after the events that the disk has refused so far:
// on disk, the events of a session stand without gaps in the order of their
// numbers.
func (s *Spool) write(record []byte) (*segment, error) {
	if err := s.flush(); err != nil {
		return nil, err
	}
	seg, _, err := s.append(record)
	return seg, err
}

// flush writes the events that the disk has refused so far.
func (s *Spool) flush() error {
	done := 0
	defer func() { s.unwritten = slices.Delete(s.unwritten, 0, done) }()
	for _, e := range s.unwritten {
		if life := s.usage.Session(e.Session); life != nil { // else settled and forgotten meanwhile
			seg, offset, err := s.append(e.record)
			if err != nil {
				return err
			}
			life.Written++
			if !e.Settled() {
				e.segment.live--
				seg.live++
			}
			e.segment, e.offset = seg, offset
			s.cacheRecord(e)
		}
		done++
	}
	s.clearSkipCount()
	return nil
}

// maxKept bounds the memory for events that are written and about to be
// published: what is beyond is read back.
const maxCachedBytes = 8 << 20

// keep keeps the record of a written event for publishing, if there is room.
func (s *Spool) cacheRecord(e *entry) {
	if e.Settled() || s.cachedBytes+int64(len(e.record)) > maxCachedBytes {
		e.record = nil
		return
	}
	s.cachedBytes += int64(len(e.record))
}

// drop forgets the record of an event that is written.
func (s *Spool) dropRecord(e *entry) {
	if e.record != nil && e.offset > 0 {
		s.cachedBytes -= int64(len(e.record))
		e.record = nil
	}
}

// append appends a record to the last segment, beginning a new one when it is
// large. It notes whether the disk takes anything.
func (s *Spool) append(record []byte) (*segment, int64, error) {
	if !s.hasOwnSegment || s.segments[len(s.segments)-1].size >= s.cfg.SegmentBytes {
		if err := s.rotate(); err != nil {
			s.writeErr = err
			return nil, 0, err
		}
	}
	seg := s.segments[len(s.segments)-1]
	offset, err := seg.append(record)
	if s.writeErr = err; err != nil {
		return nil, 0, err
	}
	s.bytes += int64(len(record))
	return seg, offset, nil
}

// probe finds out whether the disk takes writes again: while it is thought not
// to, nothing is admitted that would try.
func (s *Spool) probeDisk() {
	if _, err := s.write(frame(kindProbe, nil)); err == nil {
		s.log.Info("spool can be written again")
	}
}

// rotate begins a segment with what is known of every session, so that the
// segments before it can go.
func (s *Spool) rotate() error {
	var header headerRecord
	for _, id := range s.usage.Sessions() {
		life := s.usage.Session(id)
		header.Sessions = append(header.Sessions, sessionRecord{
			Session: int64(id), BootID: life.BootID, LastNumber: life.Written, Watermark: min(life.Watermark(), life.Written),
		})
	}
	record, err := encodeRecord(kindHeader, header)
	if err != nil {
		return err
	}
	seg, err := s.createSegmentFile()
	if err != nil {
		return err
	}
	if _, err := seg.append(record); err != nil {
		_ = seg.remove() // nothing of worth is in it
		return err
	}
	s.bytes += seg.size
	s.segments, s.hasOwnSegment = append(s.segments, seg), true
	s.loadSkipCount()
	return nil
}

// trim removes the segments at the front that hold nothing live. Only the
// front: a later segment tells what became of what an earlier one holds.
func (s *Spool) trim() {
	for len(s.segments) > 1 && s.segments[0].live == 0 {
		seg := s.segments[0]
		if err := seg.remove(); err != nil {
			s.log.Warn("trim spool", slog.Any("error", err)) // tried again next time
			return
		}
		s.bytes -= seg.size
		s.segments = s.segments[1:]
	}
}

// Open notes a new session, under which requests can be started.
func (s *Spool) OpenSession(id int64, boot string) error {
	record, err := encodeRecord(kindSession, sessionRecord{Session: id, BootID: boot})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usage.Session(wire.SessionID(id)) != nil {
		return nil
	}
	if _, err := s.write(record); err != nil {
		return err
	}
	s.usage.Open(wire.SessionID(id), boot)
	return nil
}

// Ended implements session.Usage: the sessions other than the current one in
// which nothing runs. Nothing can be started in them from then on, so that
// their counts are final.
func (s *Spool) FinishedSessions(current int64) []session.FinishedSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ended []session.FinishedSession
	for _, c := range s.usage.FinishedSessions(wire.SessionID(current)) {
		ended = append(ended, session.FinishedSession{Session: int64(c.Session), BootID: c.BootID, FinalCount: c.FinalCount})
	}
	return ended
}

// maxEarlier bounds the sessions that a registration names.
const maxEarlierSessions = 64

// Earlier implements session.Usage.
func (s *Spool) EarlierSessions() []wire.EarlierSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	var earlier []wire.EarlierSession
	for _, id := range slices.Backward(s.usage.Sessions()) {
		if len(earlier) < maxEarlierSessions {
			earlier = append(earlier, wire.EarlierSession{Session: id, BootID: s.usage.Session(id).BootID})
		}
	}
	return earlier
}

// Closed notes that the control plane has closed an ended session.
func (s *Spool) MarkClosed(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trimSession(id, s.usage.MarkClosed(wire.SessionID(id)))
}

// forget notes that a session is forgotten.
func (s *Spool) trimSession(id int64, forgotten bool) {
	if forgotten {
		if record, err := encodeRecord(kindClosed, sessionRecord{Session: id}); err == nil {
			_, _ = s.write(record) // without it, closing is asked for once more after a restart
		}
	}
	s.trim()
}

// Settled takes in a watermark.
func (s *Spool) Acknowledge(m event.Settled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := wire.SessionID(m.Session)
	life := s.usage.Session(id)
	moved, forgotten := s.usage.MarkSettled(m, s.releaseEntry)
	if moved {
		if record, err := encodeRecord(kindSettled, event.Settled{V: event.Version, Session: m.Session, Watermark: life.Watermark()}); err == nil {
			_, _ = s.write(record) // without it, the events are published once more after a restart
		}
	}
	s.trimSession(m.Session, forgotten)
}
