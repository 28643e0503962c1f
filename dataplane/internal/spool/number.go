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
const skipFilePrefix = "numbers.beyond."

func (s *Spool) skipFilePath(beyond int64) string {
	return filepath.Join(s.cfg.Dir, skipFilePrefix+strconv.FormatInt(beyond, 10))
}

// note gives the file the name that is true now. A process may be killed before
// or after that; events are published only after it.
func (s *Spool) setSkipCount(beyond int64) {
	if s.skipCount == beyond {
		return
	}
	if err := os.Rename(s.skipFilePath(s.skipCount), s.skipFilePath(beyond)); err != nil {
		s.log.Warn("note how many numbers are not written", slog.Any("error", err))
		return
	}
	s.skipCount = beyond
}

// noteRefused notes, when the disk refuses an event, how many numbers may be
// given before it takes one again: nothing is started until then.
func (s *Spool) raiseSkipCount() {
	s.setSkipCount(max(s.skipCount, s.skippedNumbers+int64(len(s.unwritten)+len(s.running))))
}

// noteWritten notes that the disk has every number.
func (s *Spool) clearSkipCount() {
	s.skippedNumbers = 0
	s.setSkipCount(0)
}

// findNote reads what an earlier process has noted, or begins with the file of
// one that lacks nothing.
func (s *Spool) loadSkipCount() {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return // no directory yet
	}
	for _, entry := range entries {
		if text, ok := strings.CutPrefix(entry.Name(), skipFilePrefix); ok {
			if beyond, err := strconv.ParseInt(text, 10, 64); err == nil {
				s.skipCount = beyond
				return
			}
		}
	}
	f, err := os.OpenFile(s.skipFilePath(0), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return // no room: tried again with every segment
	}
	_ = f.Close() // nothing was written to it
}

// skip passes over the numbers that earlier processes may have given. This one
// may be killed before it can write any, so those that it gives count, too.
func (s *Spool) skipNumbers() {
	if s.skipCount == 0 {
		return
	}
	for _, id := range s.usage.Sessions() {
		if life := s.usage.Session(id); life.Running > 0 { // these get numbers now
			life.Last += s.skipCount
		}
	}
	s.skippedNumbers = s.skipCount
	s.setSkipCount(s.skippedNumbers + int64(len(s.running)))
}
