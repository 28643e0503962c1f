package room

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// file is a buffer in a file.
type file struct {
	buffer *[]byte
	memory []byte
}

// mapFile returns an empty buffer of n bytes in a file that has its blocks, and no name: it ends with the process.
func mapFile(dir string, n int) (file, error) {
	f, err := os.CreateTemp(dir, "answer-*")
	if err != nil {
		return file{}, fmt.Errorf("create file: %w", err)
	}
	defer func() { _ = f.Close() }() // the mapping keeps it
	if err := os.Remove(f.Name()); err != nil {
		return file{}, fmt.Errorf("remove name: %w", err)
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(n)); err != nil {
		return file{}, fmt.Errorf("allocate blocks: %w", err)
	}

	memory, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return file{}, fmt.Errorf("map file: %w", err)
	}

	empty := memory[:0]
	return file{&empty, memory}, nil
}

// unmap gives the file back.
func (f *file) unmap() {
	if err := unix.Munmap(f.memory); err != nil {
		panic(fmt.Errorf("room: unmap file: %w", err)) // it was mapped, so this is a fault of this package
	}
}
