package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ErrTaken says that another process has the directory.
var ErrLocked = errors.New("spool: the directory belongs to another process that runs")

// take locks a directory for this process until the file is closed or the
// process is dead. A second one would take the requests that the first one runs
// for those of a dead one, and bill them as aborted.
func lockDir(dir string) (*os.File, error) {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there was no room to make it, and so nothing is in it
	}
	if err != nil {
		return nil, fmt.Errorf("spool: open directory: %w", err)
	}
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = d.Close() // only opened
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s", ErrLocked, dir)
		}
		return nil, fmt.Errorf("spool: lock directory: %w", err)
	}
	return d, nil
}
