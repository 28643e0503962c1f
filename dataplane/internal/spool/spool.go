// Package spool owns usage on its way out: every admitted request is noted on
// disk before it is sent to a provider, every finished one becomes an event
// that is kept until the control plane reports it settled.
//
// Records are written by plain writes, which survive the death of the process
// but not of the machine. A place is reserved at admission, so that what could
// not be billed is not served. After a restart, requests that never finished
// become events of the status aborted, with the cost of their last progress.
//
// The spool numbers events 1, 2, 3… within their session. It does not
// publish: the publisher asks it for what is due.
package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"modelgateway/dataplane/internal/session"
	"modelgateway/shared/event"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

var (
	// ErrFull: no place is left, and nothing may be admitted.
	ErrFull = errors.New("spool: full")
	// ErrBroken: the disk refuses writes, and nothing may be admitted.
	ErrBroken = errors.New("spool: cannot write")
)

// Config says where the spool is and what it may hold.
type Config struct {
	Dir string
	// MaxEvents bounds running requests and unsettled events, MaxBytes the files. Admission stops at 90 % of either.
	MaxEvents, MaxBytes int64
	// SegmentBytes is the size at which a new file is begun; zero means 16 MiB.
	SegmentBytes int64
}

// resendAfter is how long a published event may stay unsettled before it is
// published again.
const resendAfter = 2500 * time.Millisecond

// Spool is safe for concurrent use.
type Spool struct {
	cfg Config
	log *slog.Logger

	mu       sync.Mutex
	segments []*segment // the last one is written to
	sessions map[int64]*numbers
	running  map[string]*running
	reserved int64 // places that are promised to requests not yet started
	pending  int64 // unsettled events
	bytes    int64
	queue    []*entry // to be published, in order
	sent     []*entry // published and not known to be settled, by time
	broken   error
	wake     chan struct{}
}

// numbers is what is known of one session.
type numbers struct {
	boot string
	last int64
	// first is the number of entries[0]; all below are settled.
	first   int64
	entries []*entry
	running int
}

// entry is one unsettled event.
type entry struct {
	session int64
	segment *segment
	offset  int64
	size    int32
	settled bool
	queued  bool
	sentAt  time.Time
	memory  []byte // the event itself, if the disk refused it
}

// Open opens the spool in a directory, which it makes, and recovers what an
// earlier process left there.
func Open(cfg Config, log *slog.Logger) (*Spool, error) {
	if cfg.SegmentBytes == 0 {
		cfg.SegmentBytes = 16 << 20
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("spool: make directory: %w", err)
	}
	s := &Spool{cfg: cfg, log: log, sessions: map[int64]*numbers{}, running: map[string]*running{}, wake: make(chan struct{}, 1)}
	if err := s.recover(); err != nil {
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
	return errors.Join(errs...)
}

// Wake receives whenever there may be something to publish.
func (s *Spool) Wake() <-chan struct{} { return s.wake }

func (s *Spool) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Capacity is the number of places.
func (s *Spool) Capacity() int64 { return s.cfg.MaxEvents }

// Used is the number of places taken.
func (s *Spool) Used() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used()
}

func (s *Spool) used() int64 { return s.reserved + int64(len(s.running)) + s.pending }

// Ready returns why nothing may be admitted, or nil.
func (s *Spool) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready()
}

func (s *Spool) ready() error {
	switch {
	case s.broken != nil:
		return fmt.Errorf("%w: %w", ErrBroken, s.broken)
	case s.used() >= s.cfg.MaxEvents/10*9, s.bytes >= s.cfg.MaxBytes/10*9:
		return ErrFull
	}
	return nil
}

// Place is a reserved place for one request: Start it, then Finish it; or
// Release it when the request is not admitted.
type Place struct {
	s *Spool
	// state: 0 reserved, 1 started, 2 done
	state int
	id    string
}

// Reserve takes a place, or returns ErrFull or ErrBroken.
func (s *Spool) Reserve() (*Place, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(); err != nil {
		return nil, err
	}
	s.reserved++
	return &Place{s: s}, nil
}

// Release gives a place back that was not started.
func (p *Place) Release() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.state == 0 {
		p.s.reserved--
		p.state = 2
	}
}

// Start notes the request on disk. The event is what will be reported should
// the process die: its status is set to aborted and its cost to nothing.
func (p *Place) Start(e *event.Usage) error {
	aborted := *e
	aborted.Status, aborted.Cost, aborted.Rule = event.Aborted, 0, event.RuleNone
	record, err := encode(kindStarted, &aborted)
	if err != nil {
		return err
	}
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	session := s.sessions[e.Session]
	if session == nil {
		return fmt.Errorf("spool: session %d is not open", e.Session)
	}
	seg, _, err := s.write(record)
	if err != nil {
		return err
	}
	seg.live++
	session.running++
	s.running[e.RequestID] = &running{event: aborted, segment: seg}
	s.reserved--
	p.state, p.id = 1, e.RequestID
	return nil
}

// Progress notes what a started request has cost so far. It is best effort: a
// refused write is noted as the spool's state.
func (p *Place) Progress(u price.Usage, cost money.Nano) {
	record, err := encode(kindProgress, progressRecord{p.id, u, cost})
	if err != nil {
		return
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.state == 1 {
		_, _, _ = p.s.write(record) // the spool is marked broken by it
	}
}

// Finish turns a started request into an event, numbers it and has it
// published. It never loses the event: if the disk refuses it, the event is
// kept in memory and the spool admits nothing more.
func (p *Place) Finish(e *event.Usage) {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.state != 1 {
		return
	}
	p.state = 2
	s.finish(e)
	s.signal()
}

func (s *Spool) finish(e *event.Usage) {
	session := s.sessions[e.Session]
	started := s.running[e.RequestID]
	delete(s.running, e.RequestID)
	session.last++
	e.N = session.last
	entry := &entry{session: e.Session, queued: true}
	data, err := json.Marshal(e)
	if err != nil { // an event holds strings and numbers only
		panic("spool: encode event: " + err.Error())
	}
	seg, offset, err := s.write(frame(kindFinished, data))
	if err != nil {
		s.log.Error("usage event kept in memory only", slog.String("request_id", e.RequestID), slog.Any("error", err))
		seg, entry.memory = s.segments[len(s.segments)-1], data
	}
	entry.segment, entry.offset, entry.size = seg, offset, int32(len(data))
	seg.live++
	session.entries = append(session.entries, entry)
	session.running--
	s.pending++
	s.queue = append(s.queue, entry)
	started.segment.live--
	s.trim()
}

// write appends a record to the last segment, beginning a new one when it is
// large.
func (s *Spool) write(record []byte) (*segment, int64, error) {
	seg := s.segments[len(s.segments)-1]
	if seg.size >= s.cfg.SegmentBytes {
		next, err := s.rotate(seg.number + 1)
		if err != nil {
			s.broken = err
			return nil, 0, err
		}
		seg = next
	}
	offset, err := seg.append(record)
	if s.broken = err; err != nil {
		return nil, 0, err
	}
	s.bytes += int64(len(record))
	return seg, offset, nil
}

// rotate begins a segment with what is known of every session, so that the
// segments before it can go.
func (s *Spool) rotate(number int64) (*segment, error) {
	var header headerRecord
	for id, n := range s.sessions {
		header.Sessions = append(header.Sessions, sessionRecord{Session: id, Boot: n.boot, Last: n.last, Watermark: n.first - 1})
	}
	slices.SortFunc(header.Sessions, func(a, b sessionRecord) int { return int(a.Session - b.Session) })
	record, err := encode(kindHeader, header)
	if err != nil {
		return nil, err
	}
	seg, err := createSegment(s.cfg.Dir, number)
	if err != nil {
		return nil, err
	}
	if _, err := seg.append(record); err != nil {
		_ = seg.remove() // nothing of worth is in it
		return nil, err
	}
	s.bytes += seg.size
	s.segments = append(s.segments, seg)
	return seg, nil
}

// trim removes the segments at the front that hold nothing live. Only the
// front: a later segment tells what became of what an earlier one holds.
func (s *Spool) trim() {
	for len(s.segments) > 1 && s.segments[0].live == 0 {
		seg := s.segments[0]
		if err := seg.remove(); err != nil {
			s.log.Warn("trim spool", slog.Any("error", err))
		}
		s.bytes -= seg.size
		s.segments = s.segments[1:]
	}
}

// Open notes a new session, under which requests can be started.
func (s *Spool) Open(id int64, boot string) error {
	record, err := encode(kindSession, sessionRecord{Session: id, Boot: boot})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[id] != nil {
		return nil
	}
	if _, _, err := s.write(record); err != nil {
		return err
	}
	s.sessions[id] = &numbers{boot: boot, first: 1}
	return nil
}

// Ended implements session.Usage: the sessions other than the current one in
// which nothing runs.
func (s *Spool) Ended(current int64) []session.Ended {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ended []session.Ended
	for id, n := range s.sessions {
		if id != current && n.running == 0 {
			ended = append(ended, session.Ended{Session: id, Boot: n.boot, FinalCount: n.last})
		}
	}
	slices.SortFunc(ended, func(a, b session.Ended) int { return int(a.Session - b.Session) })
	return ended
}

// Closed forgets a session, all events of which are settled.
func (s *Spool) Closed(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.sessions[id]
	if n == nil {
		return
	}
	if record, err := encode(kindClosed, sessionRecord{Session: id}); err == nil {
		_, _, _ = s.write(record) // without it, closing is asked for once more after a restart
	}
	for _, e := range n.entries {
		s.drop(e)
	}
	delete(s.sessions, id)
	s.trim()
}

// drop counts an entry as settled.
func (s *Spool) drop(e *entry) {
	if e.settled {
		return
	}
	e.settled, e.memory = true, nil
	e.segment.live--
	s.pending--
}

// Settled takes in a watermark.
func (s *Spool) Settled(m event.Settled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.sessions[m.Session]
	if n == nil {
		return
	}
	n.mark(s, n.first, m.Watermark)
	for _, span := range m.Beyond {
		n.mark(s, span[0], span[1])
	}
	before := n.first
	for len(n.entries) > 0 && n.entries[0].settled {
		n.entries = n.entries[1:]
		n.first++
	}
	if n.first > before {
		if record, err := encode(kindSettled, m); err == nil {
			_, _, _ = s.write(record) // without it, the events are published once more after a restart
		}
	}
	s.trim()
}

// mark drops the entries numbered from low to high.
func (n *numbers) mark(s *Spool, low, high int64) {
	for i := max(low, n.first); i <= min(high, n.first+int64(len(n.entries))-1); i++ {
		s.drop(n.entries[i-n.first])
	}
}
