package spool

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"time"

	"modelgateway/dataplane/internal/usagereport"
	"modelgateway/shared/event"
	"modelgateway/shared/lease/usagelog"
	"modelgateway/shared/wire"
)

// recover reads the segments of an earlier process, begins a new segment,
// turns unfinished requests into aborted events and queues every unsettled
// event for publication.
func (s *Spool) recover() error {
	numbers, err := segmentNumbers(s.cfg.Dir)
	if err != nil {
		return err
	}

	s.readCheckpoint()
	if err := s.buffer.load(); err != nil {
		return err
	}

	for _, number := range numbers {
		if err := s.replaySegment(number); err != nil {
			return err
		}
		s.nextSegment = number + 1
	}

	s.buffer.detachIfUnused()
	s.loadSkipCount()
	s.checkCheckpoint()
	s.skipNumbers()

	for _, id := range s.usage.Sessions() {
		sess := s.usage.Session(id)
		sess.Written = sess.Last
	}

	if err := s.rotate(); err != nil {
		if !isFull(err) {
			return err
		}
		s.writeErr = err
		s.log.Error("disk of the spool is full; no request is admitted until there is room", slog.Any("error", err))
	}

	aborted := s.abortUnfinished()
	sessions := s.usage.Sessions()
	for _, id := range sessions {
		for _, e := range s.usage.Session(id).Unsettled() {
			s.usage.Enqueue(e)
		}
	}

	if len(numbers) > 0 {
		s.log.Info(
			"spool recovered",
			slog.Int64("unsettled", s.usage.Pending()),
			slog.Int("aborted", aborted),
			slog.Int("sessions", len(sessions)),
		)
	}

	s.trim()
	s.wakePublisher()
	return nil
}

// abortUnfinished turns the unfinished requests of an earlier process into
// aborted events, in the order of their ids. It returns how many there were.
func (s *Spool) abortUnfinished() int {
	ids := slices.Sorted(maps.Keys(s.running))
	for _, id := range ids {
		e := s.running[id].event
		if e.VideoJob != "" {
			s.dropStarted(id) // the video job is still open and is charged when a proxy sees its end
			continue
		}
		e.FinishedMS = time.Now().UnixMilli()
		s.countConsumed(e, s.running[id].started)
		s.appendFinished(e)
	}
	return len(ids)
}

// dropStarted forgets an unfinished request without an event.
func (s *Spool) dropStarted(id string) {
	r := s.removeRunning(id)
	r.started.segment.live--
	s.usage.Session(wire.SessionID(r.event.Session)).Running--
}

// replaySegment applies the records of a segment, up to its end or a torn record.
func (s *Spool) replaySegment(number int64) error {
	f, err := s.disk.open(segmentPath(s.cfg.Dir, number), os.O_RDWR)
	if err != nil {
		return fmt.Errorf("spool: open segment: %w", err)
	}

	seg, err := newSegment(number, f)
	if err != nil {
		return err
	}

	s.buffer.attachRecovered(seg)
	s.segments = append(s.segments, seg)
	r := bufio.NewReaderSize(io.NewSectionReader(seg.file, 0, math.MaxInt64), 1<<16)
	for {
		k, body, err := readRecord(r)
		if errors.Is(err, io.EOF) {
			break
		}

		if errors.Is(err, errTorn) {
			seg.torn = true
			s.log.Warn("spool segment ends with a torn record", slog.Int64("segment", number), slog.Int64("offset", seg.size))
			break
		}

		if err != nil {
			return fmt.Errorf("spool: read segment %d: %w", number, err)
		}
		if err := s.replayRecord(seg, k, body); err != nil {
			return fmt.Errorf("spool: segment %d, offset %d: %w", number, seg.size, err)
		}

		seg.size += prefixBytes + int64(len(body))
	}

	s.bytes += seg.size
	return nil
}

func (s *Spool) replayRecord(seg *segment, k kind, body []byte) error {
	switch k {
	case kindHeader:
		return decodeAndApply(body, func(h *headerRecord) {
			s.recoveredBoot = h.KernelBoot
			for _, r := range h.Sessions {
				sess := s.usage.Open(r.Session, r.BootID)
				sess.Last = max(sess.Last, r.LastSeq)
				s.replaySettled(event.Settled{Session: int64(r.Session), Watermark: r.Watermark})
			}
		})
	case kindSession:
		return decodeAndApply(body, func(r *sessionRecord) { s.usage.Open(r.Session, r.BootID) })
	case kindStarted:
		return decodeAndApply(body, func(e *event.Usage) { s.replayStarted(e, place{seg, seg.size, int32(len(body))}) })
	case kindProgress:
		return decodeAndApply(body, func(p *progressRecord) {
			if r, ok := s.running[p.RequestID]; ok {
				r.event.Usage, r.event.Cost = p.Usage, p.Cost
				r.event.Rule, r.event.Estimated, r.event.Doubt = event.RuleEstimated, true, string(usagereport.Interrupted)
				s.setProgress(p.RequestID, place{seg, seg.size, int32(len(body))})
			}
		})
	case kindFinished:
		return decodeAndApply(body, func(e *event.Usage) { s.replayFinished(seg, e, int32(len(body))) })
	case kindSettled:
		return decodeAndApply(body, func(m *event.Settled) { s.replaySettled(*m) })
	case kindClosed:
		return decodeAndApply(body, func(r *sessionRecord) { s.usage.Drop(r.Session, s.releaseEntry) })
	default:
		return nil // kindProbe, or a kind of a newer version
	}
}

func decodeAndApply[T any](body []byte, apply func(*T)) error {
	v := new(T)
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("decode record: %w", err)
	}
	apply(v)
	return nil
}

// replayStarted applies a started record. If the request is running already, the
// earlier process has carried its record over and was killed before it removed
// the old segment.
func (s *Spool) replayStarted(e *event.Usage, at place) {
	if _, ok := s.running[e.RequestID]; ok {
		s.moveStarted(e.RequestID, at)
		return
	}
	s.usage.Open(wire.SessionID(e.Session), "").Running++
	s.addRunning(e.RequestID, startedRequest{event: e, started: at})
}

func (s *Spool) replayFinished(seg *segment, e *event.Usage, size int32) {
	id := wire.SessionID(e.Session)
	sess := s.usage.Open(id, "")
	started := place{}
	if _, ok := s.running[e.RequestID]; ok {
		r := s.removeRunning(e.RequestID)
		r.started.segment.live--
		sess.Running--
		started = r.started
	}

	if c := s.earlier.checkpoint; c != nil && isBehind(c.Mark, seg.number, seg.size) {
		s.countConsumed(e, started)
	}
	if e.Seq <= sess.Last {
		return // sequence numbers are never reused: the event is known already
	}

	seg.live++
	s.usage.Add(e.Seq, &entry{
		Delivery:   usagelog.Delivery{Session: id},
		segment:    seg,
		offset:     seg.size,
		size:       size,
		finishedMS: e.FinishedMS,
	})
}

func (s *Spool) replaySettled(m event.Settled) {
	s.usage.MarkSettled(m, s.releaseEntry)
}
