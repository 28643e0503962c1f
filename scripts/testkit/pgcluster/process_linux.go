package pgcluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// serverProcesses returns the processes of a server in the data directory.
// Every one of them has it as its working directory, which is a surer sign than
// the pid file: after a crash its number may belong to a stranger.
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
		// One that is ending has no program any more, while it still holds the memory that it shared.
		exe, err := os.Readlink(filepath.Join("/proc", entry.Name(), "exe"))
		if err != nil || filepath.Base(exe) == "postgres" {
			found = append(found, pid)
		}
	}
	return found, nil
}
