package spool

import (
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// An event that the disk has refused has its number all the same, and is
// published and perhaps settled under it. A later process must not give that
// number to another event: it would pass for settled and be forgotten. So the
// name of an empty file tells whether there may be such numbers. It is made
// when there is room: a file can be given another name on a full disk.
const (
	numbersWritten   = "numbers.written"
	numbersUnwritten = "numbers.unwritten"
)

// note gives the file the name that is true now. Who sees it is killed before
// or after that, and events are published only after it.
func (s *Spool) note(unwritten bool) {
	if s.unwrittenNumbers == unwritten {
		return
	}
	from, to := numbersWritten, numbersUnwritten
	if !unwritten {
		from, to = to, from
	}
	if err := os.Rename(filepath.Join(s.cfg.Dir, from), filepath.Join(s.cfg.Dir, to)); err != nil {
		s.log.Warn("note whether all numbers are written", slog.Any("error", err))
		return
	}
	s.unwrittenNumbers = unwritten
}

// findNote reads what an earlier process has noted, or begins with the file of
// one that lacks nothing.
func (s *Spool) findNote() {
	if s.unwrittenNumbers = s.has(numbersUnwritten); s.unwrittenNumbers || s.has(numbersWritten) {
		return
	}
	f, err := os.OpenFile(filepath.Join(s.cfg.Dir, numbersWritten), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return // no room, or no directory yet: tried again with every segment
	}
	_ = f.Close() // nothing was written to it
}

func (s *Spool) has(name string) bool {
	_, err := os.Stat(filepath.Join(s.cfg.Dir, name))
	return err == nil
}

// skip is how many numbers of a session are passed over that an earlier process
// may have given: no more than there are places, and another range each time,
// since this process may be killed before it can write either. The gap costs
// that the session is closed by its time, and not by its count.
func (s *Spool) skip() int64 {
	if !s.unwrittenNumbers {
		return 0
	}
	return s.cfg.MaxEvents + rand.Int64N(max(s.cfg.MaxEvents, 1))
}
