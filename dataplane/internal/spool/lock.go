package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ErrLocked means that another running process has the directory open.
var ErrLocked = errors.New("spool: the directory is in use by another process")

// lockDir locks a directory until the returned file is closed or the process is
// dead. Without the lock, a second process would take the running requests of
// the first one for unfinished ones, and charge them as aborted. It returns nil if
// the directory does not exist because there was no room to make it.
func lockDir(dir string) (*os.File, error) {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // documented; there is nothing to lock
	}
	if err != nil {
		return nil, fmt.Errorf("spool: open directory: %w", err)
	}
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = d.Close() // nothing was written to it
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s", ErrLocked, dir)
		}
		return nil, fmt.Errorf("spool: lock directory: %w", err)
	}
	return d, nil
}
