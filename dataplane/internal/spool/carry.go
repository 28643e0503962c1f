package spool

import "log/slog"

// The started record of a running request keeps its segment, and so all segments
// behind it, although everything else in them may be settled. One long request
// would fill the spool. So when nothing but running requests keeps the front
// segment, their started records and last progress records are copied to the end
// of the log, and the front segment is removed.
//
// A process that is killed in between leaves both copies. Recovery takes the
// later one as the place of the started record, and the request as one request.

const (
	// keptSegments is how many segments the log has at least before records are carried over.
	keptSegments = 4
	// maxCarried bounds the requests whose records are copied at once, since Reserve waits meanwhile.
	maxCarried = 256
)

// worthCarrying reports whether the records of running requests are to be copied
// out of the front segment. At least half of the log must be of no use: then the
// copies of one pass over the log are smaller than what they free.
func (s *Spool) worthCarrying(front *segment) bool {
	return front.live == front.running && !front.damaged && s.writeErr == nil &&
		len(s.segments) > keptSegments && s.bytes >= 2*s.runningBytes
}

// carryOver copies the records of at most limit running requests from the front
// segment to the end of the log, and returns how many requests these are.
func (s *Spool) carryOver(front *segment, limit int) int {
	var records []byte
	var carried []string
	for id, r := range s.running {
		if len(carried) == min(limit, front.running) {
			break
		}
		if r.started.segment != front {
			continue
		}

		longer, err := appendFrom(records, r.started)
		if err == nil && r.progress.segment != nil {
			longer, err = appendFrom(longer, r.progress)
		}

		if err != nil {
			s.log.Warn("record of a running request cannot be read from the spool", slog.String("request_id", id), slog.Any("error", err))
			front.damaged = true // it stays until its requests have ended
			break
		}

		records, carried = longer, append(carried, id)
	}

	if len(carried) == 0 {
		return 0
	}

	at, err := s.write(records)
	if err != nil {
		return 0 // tried again when the disk accepts writes
	}

	offset := at.offset
	for _, id := range carried {
		r := s.running[id]
		s.moveStarted(id, place{at.segment, offset, r.started.size})
		offset += r.started.bytes()
		if r.progress.segment != nil {
			s.setProgress(id, place{at.segment, offset, r.progress.size})
			offset += r.progress.bytes()
		}
	}

	return len(carried)
}

// addRunning adds a request that has started.
func (s *Spool) addRunning(id string, r startedRequest) {
	r.started.segment.live++
	r.started.segment.running++
	s.runningBytes += r.bytes()
	s.running[id] = r
}

// removeRunning removes a request. Its started record stays live.
func (s *Spool) removeRunning(id string) startedRequest {
	r := s.running[id]
	delete(s.running, id)
	r.started.segment.running--
	s.runningBytes -= r.bytes()
	return r
}

// moveStarted sets the place of the started record of a running request.
func (s *Spool) moveStarted(id string, to place) {
	r := s.removeRunning(id)
	r.started.segment.live--
	r.started = to
	s.addRunning(id, r)
}

// setProgress sets the place of the last progress record of a running request.
func (s *Spool) setProgress(id string, to place) {
	r := s.running[id]
	s.runningBytes += to.bytes() - r.progress.bytes()
	r.progress = to
	s.running[id] = r
}
