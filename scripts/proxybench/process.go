package proxybench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cpuTime is what the scheduler has given to all threads of a process. One that
// has ended takes its time along: a Go process keeps its threads.
func cpuTime(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("no process %d: %w", pid, errors.Join(err, os.ErrNotExist))
	}
	var total time.Duration
	for _, name := range files {
		text, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has ended meanwhile
		}
		first, _, _ := strings.Cut(string(text), " ")
		n, parseErr := strconv.ParseInt(first, 10, 64)
		if err := errors.Join(err, parseErr); err != nil {
			return 0, fmt.Errorf("read CPU time: %w", err)
		}
		total += time.Duration(n)
	}
	return total, nil
}

// forgetPeak has the kernel begin anew with the peak of a process's memory.
func forgetPeak(pid int) error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("reset the peak of the memory: %w", err)
	}
	return nil
}

// peakMemory is the peak since then, in bytes.
func peakMemory(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read the peak of the memory: %w", err)
	}
	for line := range bytes.Lines(text) {
		var kib int64
		if n, _ := fmt.Sscanf(string(line), "VmHWM: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("no peak of the memory in the status of process %d", pid)
}
