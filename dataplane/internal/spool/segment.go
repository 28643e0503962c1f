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

// segment is one file of the spool. It is appended to until it is large, and
// removed when nothing in it and in those before it is live.
type segment struct {
	number int64
	file   file
	size   int64
	// live counts the running requests and unsettled events whose records it holds.
	live int
}

// file is what is asked of the file of a segment.
type file interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	Close() error
	Name() string
}

// openFile opens a file as os.OpenFile does.
type openFile func(path string, flag int) (file, error)

func openOS(path string, flag int) (file, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err) // not f: a nil in an interface is not nil
	}
	return f, nil
}

// isFull tells whether there is no room on the disk, which may change; every
// other error is for a person to look at.
func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

const segmentSuffix = ".spool"

func segmentPath(dir string, number int64) string {
	return filepath.Join(dir, fmt.Sprintf("%012d%s", number, segmentSuffix))
}

// segmentNumbers lists the segments in a directory, in order.
func segmentNumbers(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // there was no room to make it
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
			continue // not ours
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers, nil
}

// createSegment makes the next segment's file. A number is used once, so that
// a file that could neither be filled nor removed is not in the way.
func (s *Spool) createSegmentFile() (*segment, error) {
	number := s.nextSegment
	if err := os.MkdirAll(s.cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("spool: make directory: %w", err)
	}
	f, err := s.openFile(segmentPath(s.cfg.Dir, number), os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, fmt.Errorf("spool: create segment: %w", err)
	}
	s.nextSegment++
	return &segment{number: number, file: f}, nil
}

// append writes whole records and returns where they begin. Records are
// complete or absent: what a failed write left is cut off again.
func (s *segment) append(records []byte) (offset int64, err error) {
	offset = s.size
	n, err := s.file.WriteAt(records, offset)
	if err != nil {
		if n > 0 {
			_ = s.file.Truncate(offset) // a torn rest is recognised when read, should this fail too
		}
		return 0, fmt.Errorf("spool: write: %w", err)
	}
	s.size += int64(n)
	return offset, nil
}

// body reads the body of the record at an offset.
func (s *segment) readBody(offset int64, size int32) ([]byte, error) {
	data := make([]byte, size)
	if _, err := s.file.ReadAt(data, offset+prefixSize); err != nil {
		return nil, fmt.Errorf("spool: read event back: %w", err)
	}
	return data, nil
}

func (s *segment) remove() error {
	_ = s.file.Close() // only read from by now
	if err := os.Remove(s.file.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("spool: remove segment: %w", err)
	}
	return nil
}
