//go:build !linux

package pgcluster

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// serverProcesses returns the process of the pid file if it is a Postgres server.
func serverProcesses(data string) ([]int, error) {
	pid := recordedPID(data)
	if pid == 0 {
		return nil, nil
	}
	out, err := exec.Command("ps", "-o", "comm=", "-p", strconv.Itoa(pid)).Output()
	if err != nil || filepath.Base(strings.TrimSpace(string(out))) != "postgres" {
		return nil, nil //nolint:nilerr // ps fails when there is no such process
	}
	return []int{pid}, nil
}
