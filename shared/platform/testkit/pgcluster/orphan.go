package pgcluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// linkSuffix is appended to the name of a data directory below sharedRoot for the file that has the path of the link to it.
const linkSuffix = ".link"

// lockShared lets one process at a time link data below sharedRoot or remove what nothing links to.
func lockShared() (unlock func(), err error) {
	if err := os.MkdirAll(sharedRoot, 0o755); err != nil { //nolint:gosec // G301: the owner must be able to enter it
		return nil, fmt.Errorf("pgcluster: %w", err)
	}
	dir, err := os.Open(sharedRoot)
	if err != nil {
		return nil, fmt.Errorf("pgcluster: %w", err)
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("pgcluster: lock %s: %w", sharedRoot, err), dir.Close())
	}
	return func() { _ = dir.Close() }, nil
}

// removeOrphans removes the data below sharedRoot of clusters whose link is gone: its clone was deleted, or the temporary
// directory of a test that was killed. Data in which a server runs is kept.
func removeOrphans() error {
	unlock, err := lockShared()
	if err != nil {
		return err
	}
	defer unlock()

	links, err := filepath.Glob(filepath.Join(sharedRoot, "*"+linkSuffix))
	if err != nil {
		return fmt.Errorf("pgcluster: %w", err)
	}

	for _, file := range links {
		data := strings.TrimSuffix(file, linkSuffix)
		link, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("pgcluster: %w", err)
		}

		target, err := os.Readlink(string(link))
		if target == data || err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.EINVAL) {
			continue
		}
		if running, err := serverProcesses(data); err != nil || len(running) > 0 {
			continue
		}

		for _, name := range []string{data, file} {
			if err := os.RemoveAll(name); err != nil {
				return fmt.Errorf("pgcluster: %w", err)
			}
		}
	}

	return nil
}
