package spool

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// An event that the disk has refused has its number all the same, and is
// published and perhaps settled under it. A later process must not give that
// number to another event: it would pass for settled and be forgotten. So the
// name of an empty file tells how many numbers beyond the last written one of
// a session may have been given, and the next process passes over these. The
// file is made when there is room: it can be given another name on a full disk.
// The gap costs that the session is closed by its time, and not by its count.
const numbersBeyond = "numbers.beyond."

func (s *Spool) noteName(beyond int64) string {
	return filepath.Join(s.cfg.Dir, numbersBeyond+strconv.FormatInt(beyond, 10))
}

// note gives the file the name that is true now. A process may be killed before
// or after that; events are published only after it.
func (s *Spool) note(beyond int64) {
	if s.beyond == beyond {
		return
	}
	if err := os.Rename(s.noteName(s.beyond), s.noteName(beyond)); err != nil {
		s.log.Warn("note how many numbers are not written", slog.Any("error", err))
		return
	}
	s.beyond = beyond
}

// noteRefused notes, when the disk refuses an event, how many numbers may be
// given before it takes one again: nothing is started until then.
func (s *Spool) noteRefused() {
	s.note(max(s.beyond, s.skipped+int64(len(s.unwritten)+len(s.running))))
}

// noteWritten notes that the disk has every number.
func (s *Spool) noteWritten() {
	s.skipped = 0
	s.note(0)
}

// findNote reads what an earlier process has noted, or begins with the file of
// one that lacks nothing.
func (s *Spool) findNote() {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return // no directory yet
	}
	for _, entry := range entries {
		if text, ok := strings.CutPrefix(entry.Name(), numbersBeyond); ok {
			if beyond, err := strconv.ParseInt(text, 10, 64); err == nil {
				s.beyond = beyond
				return
			}
		}
	}
	f, err := os.OpenFile(s.noteName(0), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return // no room: tried again with every segment
	}
	_ = f.Close() // nothing was written to it
}

// skip passes over the numbers that earlier processes may have given. This one
// may be killed before it can write any, so those that it gives count, too.
func (s *Spool) skip() {
	if s.beyond == 0 {
		return
	}
	for _, id := range s.usage.Sessions() {
		if life := s.usage.Session(id); life.Running > 0 { // these get numbers now
			life.Last += s.beyond
		}
	}
	s.skipped = s.beyond
	s.note(s.skipped + int64(len(s.running)))
}
