package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// A deleted or unmounted directory accepts writes: they go to files that nobody
// can open again. So the directory, its segments and the write buffer are compared
// with those that were opened, about once a second and not in the way of requests.
//
// From then on the spool refuses writes, as on a full disk: no request is
// admitted, and the events of running ones are published from memory. It works
// again when the same directory is back, or, if the directory was deleted, in a
// new one as soon as no request runs and every event is settled.

// errLost means that the directory or a file in it is not the one that was opened.
var errLost = errors.New("the directory of the spool, or a file in it, was deleted or unmounted")

// identifyDirectory remembers the directory of the first segment.
func (s *Spool) identifyDirectory() error {
	if s.directory != nil {
		return nil
	}
	info, err := os.Stat(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("spool: identify directory: %w", err)
	}
	s.directory = info
	return nil
}

// CheckDirectory finds out whether the directory and the segments are still
// there. Call it regularly.
func (s *Spool) CheckDirectory() {
	s.mu.Lock()
	directory, segments, buffer := s.directory, slices.Clone(s.segments), s.buffer.info
	s.mu.Unlock()
	if directory == nil {
		return // the disk was full when the spool was opened
	}

	err := sameFile(s.cfg.Dir, directory)
	var missing *segment
	for i := 0; i < len(segments) && err == nil; i++ {
		missing = segments[i]
		err = sameFile(segmentPath(s.cfg.Dir, missing.number), missing.info)
	}

	if err == nil && buffer != nil {
		missing, err = nil, sameFile(s.buffer.path, buffer)
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	switch {
	case err != nil && (missing != nil && !slices.Contains(s.segments, missing) || buffer != s.buffer.info):
		// The file was removed or replaced in the meantime. The next check looks at the others.
	case err != nil && s.lost == nil:
		s.lost = err
		s.writeErr = err
		s.log.Error("directory of the spool is lost; no request is admitted, and events are published from memory", slog.Any("error", err))
	case err != nil:
		s.beginAnew()
	case s.lost != nil:
		s.lost = nil // the next batch probes the disk
		s.log.Info("directory of the spool is back")
	}
}

func sameFile(path string, opened os.FileInfo) error {
	found, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%w: %w", errLost, err)
	}
	if !os.SameFile(found, opened) {
		return fmt.Errorf("%w: %s is another file than the one that was opened", errLost, path)
	}
	return nil
}

// beginAnew makes the directory again, if nothing of the lost one is needed: no
// request runs, and every event is settled. It does nothing if the path is on
// another file system, because the volume of the spool may come back, or if it
// has segments that are not of this process.
func (s *Spool) beginAnew() {
	if len(s.running) > 0 || s.usage.Pending() > 0 || !s.sameDevice() {
		return
	}

	for _, seg := range s.segments {
		if sameFile(segmentPath(s.cfg.Dir, seg.number), seg.info) == nil {
			_ = os.Remove(segmentPath(s.cfg.Dir, seg.number)) // found below, should this fail
		}
	}

	if numbers, err := segmentNumbers(s.cfg.Dir); err != nil || len(numbers) > 0 {
		return
	}
	if s.relock() != nil {
		return // tried again at the next check
	}

	s.buffer.remove()
	for _, seg := range s.segments {
		_ = seg.file.Close() // its file was deleted
	}

	for _, id := range s.usage.Sessions() {
		sess := s.usage.Session(id)
		sess.Written = sess.Last
	}

	s.segments, s.hasOwnSegment, s.bytes, s.unwritten = nil, false, 0, nil
	s.directory, s.lost, s.skipCount = nil, nil, 0
	s.log.Warn("spool starts again in an empty directory")
}

// sameDevice reports whether the directory is, or would be made, on the file
// system of the lost one.
func (s *Spool) sameDevice() bool {
	found, err := os.Stat(s.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return true // a mount point does not vanish with its volume
	}
	if err != nil {
		return false
	}
	was, ok := s.directory.Sys().(*syscall.Stat_t)
	is, also := found.Sys().(*syscall.Stat_t)
	return ok && also && was.Dev == is.Dev
}

// relock makes the directory and locks it.
func (s *Spool) relock() error {
	if err := os.MkdirAll(s.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("spool: create directory: %w", err)
	}
	if !s.locks || sameFile(s.cfg.Dir, s.directory) == nil {
		return nil
	}
	lock, err := lockDir(s.cfg.Dir)
	if err != nil {
		return err
	}
	if s.lock != nil {
		_ = s.lock.Close() // only unlocks
	}
	s.lock = lock
	return nil
}

// freeDisk returns how many bytes the process can still write to the file system of the spool.
func (s *Spool) freeDisk() float64 {
	var fs unix.Statfs_t
	if unix.Statfs(s.cfg.Dir, &fs) != nil {
		return math.NaN()
	}
	return float64(fs.Bavail) * float64(fs.Bsize)
}
