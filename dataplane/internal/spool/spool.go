// Package spool keeps usage events on local disk until the control plane
// reports them settled.
//
// A request reserves a unit of spool capacity before it is admitted: a request
// that could not be charged is not served. A started record is written before
// its provider is called. When the request ends, its usage event gets the next
// sequence number of its session, is written, and is queued for publication.
// After a restart, each request of the earlier process that had not finished
// becomes an event with the status aborted and the cost of its last progress
// record.
//
// Records are written without fsync. They survive the death of the process, but
// not of the machine. Most take no system call of their own (see writebuffer.go).
// While the directory is lost, no request is admitted (see directory.go).
//
// The sequence numbers of a session start at 1 and are never reused. After a
// crash on a full disk, the next process skips the numbers that may have been
// assigned (see skipcount.go).
//
// A Spool starts no goroutines. A Publisher takes batches of events from it,
// publishes them, and has it check its directory.
package spool

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"modelgateway/shared/lease/usagelog"
)

var (
	// ErrFull means that no spool capacity is left. No request may be admitted.
	ErrFull = errors.New("spool: full")
	// ErrNotWritable means that the last write to the disk failed. No request may be admitted.
	ErrNotWritable = errors.New("spool: cannot write")
)

// Config has the directory of a spool and its limits.
type Config struct {
	Dir string
	// MaxEvents bounds the number of running requests and unsettled events together, MaxBytes the size of all segments.
	// No request is admitted above 90 % of either.
	MaxEvents, MaxBytes int64
	// SegmentBytes is the size at which a new segment is begun. Zero means 16 MiB or MaxBytes/16, whichever is less.
	SegmentBytes int64
	// KernelBoot identifies the boot of the machine. Empty means the one that the kernel reports.
	KernelBoot string
}

// Spool is safe for concurrent use.
type Spool struct {
	cfg      Config
	log      *slog.Logger
	disk     disk
	openedAt time.Time // publication times are durations since then, on the monotonic clock
	lock     *os.File  // keeps other processes out; nil if the directory could not be made on a full disk
	locks    bool      // the directory is locked if it must be made again

	mu            sync.Mutex
	buffer        *writeBuffer
	segments      []*segment // in order; the last one is written to, if hasOwnSegment
	hasOwnSegment bool       // this process has created a segment
	// removed are the files of removed segments, which are still to be closed.
	removed     []io.Closer
	nextSegment int64 // number of the next segment
	// usage has the unsettled events of every session, with their sequence numbers and publication times.
	usage    *usagelog.Log[*entry]
	running  map[string]startedRequest // by request id
	reserved int64                     // units reserved by requests that have not started
	bytes    int64                     // size of all segments
	// runningBytes is the size of the started and progress records that recovery needs for the running requests.
	runningBytes int64
	// recoveredBoot is the kernel boot of the last segment of earlier processes.
	recoveredBoot string
	earlier       earlier
	// directory identifies the directory of the segments, nil before the first one. lost is why it, or a segment, is not
	// there any more. See directory.go.
	directory os.FileInfo
	lost      error
	// unwritten are the events that the disk has refused so far, in order. No other record is written before them.
	unwritten []*entry
	// skipCount is the skip count on disk. skippedNumbers is how many sequence numbers this process has skipped at its
	// start, and zero after its first successful write. See skipcount.go.
	skipCount, skippedNumbers int64
	cachedBytes               int64 // size of the written records that are kept in memory for publication
	writeErr                  error // of the last write
	wake                      chan struct{}
}

// entry is one unsettled event.
type entry struct {
	usagelog.Delivery
	// segment must not be removed before the event is settled: it has the event or, while that is unwritten, its started
	// record.
	segment *segment
	// offset of the event's record in the segment. Zero while it is unwritten: no event is at the start of a segment.
	offset int64
	// record is the event's record until it is written and, if the cache has room, until it is published.
	record     []byte
	finishedMS int64 // when the request finished, in Unix milliseconds
	size       int32 // of the record's body
}

// releaseEntry frees what the spool keeps for an event that was settled.
func (s *Spool) releaseEntry(e *entry) {
	s.dropRecord(e)
	e.segment.live--
}

// Open opens the spool in a directory, creates the directory if necessary, and
// recovers the records of an earlier process. It returns ErrLocked while another
// process has the directory open. It succeeds on a full disk, too: the recovered
// events are published, and no request is admitted until there is room.
func Open(cfg Config, log *slog.Logger) (*Spool, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil && !isFull(err) {
		return nil, fmt.Errorf("spool: create directory: %w", err)
	}

	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if cfg.KernelBoot == "" {
		cfg.KernelBoot = kernelBoot()
	}

	s, err := open(cfg, log, osDisk{})
	if err != nil {
		_ = lock.Close() // only unlocks; lock may be nil, for which Close returns an error
		return nil, err
	}

	s.lock, s.locks = lock, true
	return s, nil
}

func open(cfg Config, log *slog.Logger, d disk) (*Spool, error) {
	if cfg.SegmentBytes == 0 {
		// Space is freed by whole segments and never by the last one, so there must be many of them.
		cfg.SegmentBytes = min(16<<20, cfg.MaxBytes/16)
	}

	s := &Spool{
		cfg:         cfg,
		log:         log,
		disk:        d,
		openedAt:    time.Now(),
		nextSegment: 1,
		buffer:      newWriteBuffer(cfg.Dir, d, log),
		usage:       usagelog.New[*entry](),
		running:     map[string]startedRequest{},
		wake:        make(chan struct{}, 1),
	}
	if err := s.recover(); err != nil {
		_ = s.Close() // the first error matters more
		return nil, err
	}

	return s, nil
}

// Close writes what is in the write buffer to its segment, and closes the files.
func (s *Spool) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{s.buffer.close()}
	for _, seg := range s.segments {
		errs = append(errs, seg.file.Close())
	}
	for _, f := range s.removed {
		errs = append(errs, f.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// Capacity returns the spool capacity in units.
func (s *Spool) Capacity() int64 { return s.cfg.MaxEvents }

// Bytes returns the size of all segments.
func (s *Spool) Bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// UsedCapacity returns how many units of spool capacity are in use.
func (s *Spool) UsedCapacity() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usedCapacity()
}

func (s *Spool) usedCapacity() int64 {
	return s.reserved + int64(len(s.running)) + s.usage.Pending()
}

// WriteError returns the error of the last write to the disk, or nil.
func (s *Spool) WriteError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeErr
}

// Ready returns nil if requests may be admitted, otherwise ErrFull or ErrNotWritable.
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

// write appends a record after the events that the disk has refused so far. So
// the events of a session are on disk in the order of their sequence numbers,
// without a gap.
func (s *Spool) write(record []byte) (place, error) {
	if err := s.flush(); err != nil {
		return place{}, err
	}
	return s.append(record)
}

// flush writes the events that the disk has refused so far.
func (s *Spool) flush() error {
	done := 0
	defer func() { s.unwritten = slices.Delete(s.unwritten, 0, done) }()

	for _, e := range s.unwritten {
		if sess := s.usage.Session(e.Session); sess != nil { // nil if the session was dropped after all was settled
			at, err := s.append(e.record)
			if err != nil {
				return err
			}
			sess.Written++
			if !e.Settled() {
				e.segment.live--
				at.segment.live++
			}
			e.segment, e.offset = at.segment, at.offset
			s.cacheRecord(e)
		}
		done++
	}

	s.clearSkipCount()
	return nil
}

// maxCachedBytes bounds the memory for the records of written events. An event
// that is not in the cache is read from the disk when it is published.
const maxCachedBytes = 8 << 20

// cacheRecord keeps the record of a written event until it is published, if the
// cache has room.
func (s *Spool) cacheRecord(e *entry) {
	if e.Settled() || s.cachedBytes+int64(len(e.record)) > maxCachedBytes {
		e.record = nil
		return
	}
	s.cachedBytes += int64(len(e.record))
}

// dropRecord removes the record of an event from the cache. It has no effect on
// an unwritten event.
func (s *Spool) dropRecord(e *entry) {
	if e.record != nil && e.offset > 0 {
		s.cachedBytes -= int64(len(e.record))
		e.record = nil
	}
}

// append appends a record to the last segment, or to a new one if that is large
// enough. It sets writeErr.
func (s *Spool) append(record []byte) (place, error) {
	if s.lost != nil {
		s.writeErr = s.lost
		return place{}, s.lost
	}

	if !s.hasOwnSegment || s.segments[len(s.segments)-1].size >= s.cfg.SegmentBytes {
		if err := s.rotate(); err != nil {
			s.writeErr = err
			return place{}, err
		}
	}

	seg := s.segments[len(s.segments)-1]
	offset, err := seg.append(record)
	if s.writeErr = err; err != nil {
		return place{}, err
	}

	s.bytes += int64(len(record))
	return place{seg, offset, int32(len(record) - prefixBytes)}, nil
}

// FlushBuffer writes the records in the write buffer to their segment. Call it some
// times a second: a crash of the machine loses hardly more than it would without the
// buffer then, and a full disk is noticed although no record needs room.
func (s *Spool) FlushBuffer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writeErr != nil {
		return // the next batch probes the disk
	}
	if err := s.buffer.flush(); err != nil {
		s.writeErr = err
		s.log.Error("records cannot be written to the spool; no request is admitted until the disk accepts writes", slog.Any("error", err))
	}
}

// CloseRemoved closes the files of removed segments, which frees their blocks. Call it some times a second. Requests do not wait for
// it: a disk takes up to tens of milliseconds for a file.
func (s *Spool) CloseRemoved() {
	s.mu.Lock()
	removed := s.removed
	s.removed = nil
	s.mu.Unlock()

	for _, f := range removed {
		_ = f.Close() // nothing is read from it any more
	}
}

// probeDisk writes a record after a failed write, to find out whether the disk
// accepts writes again. Requests cannot find it out: none is admitted until then.
func (s *Spool) probeDisk() {
	if _, err := s.write(frame(kindProbe, nil)); err == nil {
		s.log.Info("spool accepts writes again")
	}
}

// rotate begins a segment. Its first record has the state of every session, so
// that the segments before it can be removed.
func (s *Spool) rotate() error {
	header := headerRecord{KernelBoot: s.cfg.KernelBoot}
	for _, id := range s.usage.Sessions() {
		sess := s.usage.Session(id)
		header.Sessions = append(header.Sessions, sessionRecord{
			Session:   id,
			BootID:    sess.BootID,
			LastSeq:   sess.Written,
			Watermark: min(sess.Watermark(), sess.Written),
		})
	}

	record, err := encodeRecord(kindHeader, header)
	if err != nil {
		return err
	}
	if err := s.buffer.flush(); err != nil {
		return err
	}

	seg, err := s.createSegmentFile()
	if err != nil {
		return err
	}

	if _, err := seg.append(record); err != nil {
		_ = seg.remove() // it has no complete record, and recovery accepts it, should it remain
		_ = seg.file.Close()
		return err
	}

	s.bytes += seg.size
	s.segments, s.hasOwnSegment = append(s.segments, seg), true
	s.buffer.attach(seg)
	s.loadSkipCount()

	return s.identifyDirectory()
}

// trim removes the segments at the front that have no live record. A segment
// behind a live one must stay: it may have the finished, settled or closed
// records of requests that the live one has as started. A front segment that only
// running requests keep is emptied first, see carry.go.
func (s *Spool) trim() {
	for budget := maxCarried; len(s.segments) > 1; {
		seg := s.segments[0]
		if seg.live > 0 && s.worthCarrying(seg) {
			budget -= s.carryOver(seg, budget)
		}
		if seg.live > 0 {
			return
		}
		if err := seg.remove(); err != nil {
			s.log.Warn("removal of a settled spool segment failed", slog.Int64("segment", seg.number), slog.Any("error", err))
			return // the next trim tries again
		}
		s.removed = append(s.removed, seg.closer())
		s.bytes -= seg.size
		s.segments = s.segments[1:]
	}
}
