package spool

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// An event that the disk refuses gets a sequence number all the same, and may
// be published and settled before it is written. If the process is then killed,
// the next one must not assign that number to another event: the other event
// would be taken for settled and never be charged.
//
// So the spool keeps a skip count on disk: how many sequence numbers after the
// last written one of a session may have been assigned. The next process skips
// that many numbers in each session in which requests were running. The skip
// count is in the name of an empty file. The file is created while there is
// room, and a file can be renamed on a full disk.
//
// A session with skipped numbers never has all its numbers settled, so it is
// closed because of its age instead of its final count.
const skipFilePrefix = "skip-count."

// skippedAfterBoot is how many numbers are skipped after the machine has booted:
// those of some minutes at several thousand requests per second.
const skippedAfterBoot = 1 << 20

// kernelBoot returns the id of the machine's boot, or an empty string if the
// kernel does not tell it.
func kernelBoot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

func (s *Spool) skipFilePath(count int64) string {
	return filepath.Join(s.cfg.Dir, skipFilePrefix+strconv.FormatInt(count, 10))
}

// setSkipCount renames the skip count file. When an event is refused, this is done
// before the event is published.
func (s *Spool) setSkipCount(count int64) {
	if s.skipCount == count {
		return
	}
	if err := os.Rename(s.skipFilePath(s.skipCount), s.skipFilePath(count)); err != nil {
		s.log.Warn("skip count of the spool cannot be recorded", slog.Int64("skip_count", count), slog.Any("error", err))
		return
	}
	s.skipCount = count
}

// raiseSkipCount sets the skip count after the disk has refused an event. It
// includes the requests that are running: their events may be refused, too. No
// request starts until the disk accepts an event again.
func (s *Spool) raiseSkipCount() {
	s.setSkipCount(max(s.skipCount, s.skippedNumbers+int64(len(s.unwritten)+len(s.running))))
}

// clearSkipCount sets the skip count to zero after every assigned number was
// written.
func (s *Spool) clearSkipCount() {
	s.skippedNumbers = 0
	s.setSkipCount(0)
}

// loadSkipCount reads the skip count of an earlier process, or creates the file
// with a skip count of zero.
func (s *Spool) loadSkipCount() {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return // the directory could not be made on a full disk
	}

	for _, entry := range entries {
		if digits, ok := strings.CutPrefix(entry.Name(), skipFilePrefix); ok {
			if count, err := strconv.ParseInt(digits, 10, 64); err == nil {
				s.skipCount = count
				return
			}
		}
	}

	f, err := os.OpenFile(s.skipFilePath(0), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return // no room; tried again with the next segment
	}

	_ = f.Close() // nothing was written to it
}

// skipNumbers skips the sequence numbers that earlier processes may have
// assigned. It raises the skip count by the numbers that this process will
// assign to the requests it aborts: it may be killed before it can write them.
//
// If the machine has booted since, the end of the log may be missing, with
// numbers that were assigned, published and settled. Then more numbers are
// skipped than a proxy can assign while the kernel keeps writes in memory.
func (s *Spool) skipNumbers() {
	skip := s.skipCount
	if s.recoveredBoot != s.cfg.KernelBoot && len(s.running) > 0 {
		skip = max(skip, skippedAfterBoot)
		s.log.Warn("the machine has booted since the spool was written: the end of the spool may be missing",
			slog.Int("unfinished_requests", len(s.running)))
	}

	if skip == 0 {
		return
	}

	for _, id := range s.usage.Sessions() {
		if sess := s.usage.Session(id); sess.Running > 0 {
			sess.Last += skip
		}
	}

	s.skippedNumbers = skip
	s.setSkipCount(s.skippedNumbers + int64(len(s.running)))
}
