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

	"modelgateway/shared/event"
	"modelgateway/shared/lease/usagelog"
	"modelgateway/shared/wire"
)

// recover reads what an earlier process left, begins a new segment, and turns
// requests that never finished into events.
func (s *Spool) recover() error {
	numbers, err := segmentNumbers(s.cfg.Dir)
	if err != nil {
		return err
	}
	for _, number := range numbers {
		if err := s.replaySegment(number); err != nil {
			return err
		}
		s.nextSegment = number + 1
	}
	s.loadSkipCount()
	s.skipNumbers()
	for _, id := range s.usage.Sessions() {
		life := s.usage.Session(id)
		life.Written = life.Last
	}
	if err := s.rotate(); err != nil {
		if !isFull(err) {
			return err
		}
		s.writeErr = err
		s.log.Error("no room for the spool: nothing is admitted until there is", slog.Any("error", err))
	}
	ids := slices.Sorted(maps.Keys(s.running))
	for _, id := range ids {
		e := s.running[id].event
		if e.VideoJob != "" {
			s.dropStarted(id) // the job is still open, and whoever sees its end next bills it whole
			continue
		}
		e.FinishedMS = time.Now().UnixMilli()
		s.appendFinished(e)
	}
	sessions := s.usage.Sessions()
	for _, id := range sessions {
		for _, e := range s.usage.Session(id).Unsettled() {
			s.usage.Enqueue(e)
		}
	}
	if len(numbers) > 0 {
		s.log.Info("spool recovered", slog.Int64("unsettled", s.usage.Pending()), slog.Int("aborted", len(ids)), slog.Int("sessions", len(sessions)))
	}
	s.trim()
	s.wakePublisher()
	return nil
}

// unstart drops a started record that makes no event.
func (s *Spool) dropStarted(id string) {
	r := s.running[id]
	delete(s.running, id)
	r.segment.live--
	s.usage.Session(wire.SessionID(r.event.Session)).Running--
}

func (s *Spool) replaySegment(number int64) error {
	f, err := s.openFile(segmentPath(s.cfg.Dir, number), os.O_RDWR)
	if err != nil {
		return fmt.Errorf("spool: open segment: %w", err)
	}
	seg := &segment{number: number, file: f}
	s.segments = append(s.segments, seg)
	r := bufio.NewReaderSize(io.NewSectionReader(f, 0, math.MaxInt64), 1<<16)
	for {
		k, data, err := readRecord(r)
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, errTorn) {
			s.log.Warn("spool: the end of a segment is torn", slog.Int64("segment", number), slog.Int64("offset", seg.size))
			break
		}
		if err != nil {
			return fmt.Errorf("spool: read segment %d: %w", number, err)
		}
		if err := s.replayRecord(seg, k, data); err != nil {
			return fmt.Errorf("spool: segment %d, offset %d: %w", number, seg.size, err)
		}
		seg.size += prefixSize + int64(len(data))
	}
	s.bytes += seg.size
	return nil
}

func (s *Spool) replayRecord(seg *segment, k kind, data []byte) error {
	switch k {
	case kindHeader:
		return decodeAndApply(data, func(h *headerRecord) {
			for _, r := range h.Sessions {
				life := s.usage.Open(wire.SessionID(r.Session), r.BootID)
				life.Last = max(life.Last, r.LastNumber)
				s.replaySettled(r.Session, r.Watermark)
			}
		})
	case kindSession:
		return decodeAndApply(data, func(r *sessionRecord) { s.usage.Open(wire.SessionID(r.Session), r.BootID) })
	case kindStarted:
		return decodeAndApply(data, func(e *event.Usage) {
			seg.live++
			s.usage.Open(wire.SessionID(e.Session), "").Running++
			s.running[e.RequestID] = startedRequest{event: e, segment: seg}
		})
	case kindProgress:
		return decodeAndApply(data, func(p *progressRecord) {
			if r, ok := s.running[p.RequestID]; ok {
				r.event.Usage, r.event.Cost = p.Usage, p.Cost
				r.event.Rule, r.event.Estimated = event.RuleEstimated, true
			}
		})
	case kindFinished:
		return decodeAndApply(data, func(e *event.Usage) { s.replayFinished(seg, e, int32(len(data))) })
	case kindSettled:
		return decodeAndApply(data, func(m *event.Settled) { s.replaySettled(m.Session, m.Watermark) })
	case kindClosed:
		return decodeAndApply(data, func(r *sessionRecord) { s.usage.Drop(wire.SessionID(r.Session), s.releaseEntry) })
	default:
		return nil // kindNothing, or of a newer version: nothing that this one could lose
	}
}

func decodeAndApply[T any](data []byte, apply func(*T)) error {
	v := new(T)
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode record: %w", err)
	}
	apply(v)
	return nil
}

func (s *Spool) replayFinished(seg *segment, e *event.Usage, size int32) {
	id := wire.SessionID(e.Session)
	life := s.usage.Open(id, "")
	if r, ok := s.running[e.RequestID]; ok {
		r.segment.live--
		life.Running--
		delete(s.running, e.RequestID)
	}
	if e.Seq <= life.Last {
		return // a number is given once
	}
	seg.live++
	s.usage.Add(e.Seq, &entry{Delivery: usagelog.Delivery{Session: id}, segment: seg, offset: seg.size, size: size, finishedMS: e.FinishedMS})
}

func (s *Spool) replaySettled(session, watermark int64) {
	s.usage.MarkSettled(event.Settled{Session: session, Watermark: watermark}, s.releaseEntry)
}
