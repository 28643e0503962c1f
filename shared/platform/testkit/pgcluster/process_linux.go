package pgcluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// serverProcesses returns the processes of a server in the data directory. All of them
// have it as their working directory. The pid file is less reliable: after a crash another
// process may have its number.
func serverProcesses(data string) ([]int, error) {
	data, err := filepath.EvalSymlinks(data)
	if err != nil {
		return nil, nil //nolint:nilerr // no such directory: nothing runs in it
	}

	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("pgcluster: %w", err)
	}

	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		dir, err := os.Readlink(filepath.Join("/proc", entry.Name(), "cwd"))
		if err != nil || dir != data {
			continue
		}
		// An ending process has no program any more, but still holds the shared memory.
		exe, err := os.Readlink(filepath.Join("/proc", entry.Name(), "exe"))
		if err != nil || filepath.Base(exe) == "postgres" {
			found = append(found, pid)
		}
	}

	return found, nil
}
