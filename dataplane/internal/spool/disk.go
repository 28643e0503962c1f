package spool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"
)

// disk makes the files of a spool.
type disk interface {
	// open opens a file as os.OpenFile does.
	open(path string, flag int) (file, error)
	// mapNew creates a file for the write buffer, with its blocks, and maps it into memory.
	mapNew(path string) (mapping, error)
}

// file has the methods of os.File that a segment uses.
type file interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	Stat() (os.FileInfo, error)
	Close() error
	Name() string
}

// mapping is a file that is mapped into memory.
type mapping interface {
	// WriteAt copies bytes into the memory. It fails if the disk does not give the file the page that they go to.
	io.WriterAt
	Size() int64
	Stat() (os.FileInfo, error)
	Close() error
}

// osDisk is the disk of the machine.
type osDisk struct{}

func (osDisk) open(path string, flag int) (file, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err) // not f: an interface with a nil pointer is not nil
	}
	return f, nil
}

func (osDisk) mapNew(path string) (mapping, error) { return mapNewFile(path, bufferBytes) }

func mapNewFile(path string, size int) (mapping, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create file: %w", err)
	}
	memory, err := mapZeros(f, size)
	if err != nil {
		_ = errors.Join(f.Close(), os.Remove(path)) // it is of no use
		return nil, err
	}
	return &mappedFile{f, memory}, nil
}

// mapZeros fills a new file with zeros, so that it has all its blocks before the
// disk may be full, and maps it.
func mapZeros(f *os.File, size int) ([]byte, error) {
	if _, err := f.Write(make([]byte, size)); err != nil {
		return nil, fmt.Errorf("fill file: %w", err)
	}
	memory, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map file: %w", err)
	}
	return memory, nil
}

// mappedFile is a mapped file, which stays open: some network file systems write
// its pages when the process ends because of that.
type mappedFile struct {
	*os.File
	memory []byte
}

// WriteAt implements mapping. A page that the disk cannot provide (it fails, the file
// was truncated, or the file system needs room to change a block) is a fault, which
// would end the process.
func (m *mappedFile) WriteAt(p []byte, offset int64) (n int, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if reason := recover(); reason != nil {
			fault, ok := reason.(interface {
				error
				Addr() uintptr
			})
			if !ok {
				panic(reason)
			}
			n, err = 0, fmt.Errorf("spool: store to mapped file: %w", fault)
		}
	}()
	return copy(m.memory[offset:], p), nil
}

func (m *mappedFile) Size() int64 { return int64(len(m.memory)) }

func (m *mappedFile) Close() error {
	memory := m.memory
	m.memory = nil // the same addresses may be mapped again
	if err := errors.Join(unix.Munmap(memory), m.File.Close()); err != nil {
		return fmt.Errorf("spool: unmap file: %w", err)
	}
	return nil
}

// isFull reports whether an error means that the disk or a quota is full. That
// may change without a restart; other errors need an operator.
func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
