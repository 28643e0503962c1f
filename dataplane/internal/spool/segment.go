package spool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// segment is one file of the spool. Records are appended to it until it is
// large. It is removed when neither it nor a segment before it has a live
// record.
type segment struct {
	number int64
	file   file
	size   int64 // of the complete records, in bytes
	// live counts the live records: those of running requests and unsettled events. running counts those of running
	// requests alone.
	live, running int
	// info identifies the file.
	info os.FileInfo
	// damaged means that a started record could not be read back, torn that the segment ended with an incomplete record when
	// it was recovered.
	damaged, torn bool
}

// inode returns that of the file.
func (s *segment) inode() uint64 {
	if info, ok := s.info.Sys().(*syscall.Stat_t); ok {
		return info.Ino
	}
	return 0
}

const segmentSuffix = ".spool"

func segmentPath(dir string, number int64) string {
	return filepath.Join(dir, fmt.Sprintf("%012d%s", number, segmentSuffix))
}

// segmentNumbers returns the numbers of the segments in a directory, sorted.
func segmentNumbers(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the directory could not be made on a full disk
	}
	if err != nil {
		return nil, fmt.Errorf("spool: list segments: %w", err)
	}

	var numbers []int64
	for _, e := range entries {
		digits, ok := strings.CutSuffix(e.Name(), segmentSuffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			continue // not a file of the spool
		}
		numbers = append(numbers, n)
	}

	slices.Sort(numbers)
	return numbers, nil
}

// createSegmentFile creates the file of the next segment. Each number is used
// once: the file of a failed attempt may still exist.
func (s *Spool) createSegmentFile() (*segment, error) {
	number := s.nextSegment
	if err := os.MkdirAll(s.cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("spool: create directory: %w", err)
	}

	if s.locks && s.lock == nil { // the directory could not be made before, because the disk was full
		lock, err := lockDir(s.cfg.Dir)
		if err != nil {
			return nil, err
		}
		s.lock = lock
	}

	f, err := s.disk.open(segmentPath(s.cfg.Dir, number), os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, fmt.Errorf("spool: create segment: %w", err)
	}

	s.nextSegment++
	return newSegment(number, f)
}

func newSegment(number int64, f file) (*segment, error) {
	info, err := f.Stat()
	if err != nil {
		_ = f.Close() // nothing was written to it
		return nil, fmt.Errorf("spool: identify segment: %w", err)
	}
	return &segment{number: number, file: f, info: info}, nil
}

// append appends records and returns the offset of the first one. After a failed
// write it truncates the file, so that no incomplete record is left.
func (s *segment) append(records []byte) (offset int64, err error) {
	offset = s.size
	n, err := s.file.WriteAt(records, offset)
	if err != nil {
		if n > 0 {
			_ = s.file.Truncate(offset) // should this fail, too, recovery detects the torn record
		}
		return 0, fmt.Errorf("spool: write: %w", err)
	}
	s.size += int64(n)
	return offset, nil
}

// readBody reads the body of the record at an offset.
func (s *segment) readBody(offset int64, size int32) ([]byte, error) {
	data := make([]byte, size)
	if _, err := s.file.ReadAt(data, offset+prefixBytes); err != nil {
		return nil, fmt.Errorf("spool: read event: %w", err)
	}
	return data, nil
}

// closer returns what closes the file. The caller holds the lock of the spool; closing needs no lock.
func (s *segment) closer() io.Closer {
	if f, ok := s.file.(bufferedFile); ok {
		return f.unbuffered()
	}
	return s.file
}

// remove removes the file from its directory. Its blocks are free when it is closed, too, which is left to the caller: that takes
// a disk up to tens of milliseconds for a large file.
func (s *segment) remove() error {
	if err := os.Remove(s.file.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("spool: remove segment: %w", err)
	}
	return nil
}
