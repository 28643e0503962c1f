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

// cpuTime returns the CPU time of all threads of a process. It does not include threads
// that have ended, but a Go process keeps its threads.
func cpuTime(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("no process %d: %w", pid, errors.Join(err, os.ErrNotExist))
	}

	var total time.Duration
	for _, name := range files {
		text, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // the thread has ended
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

// familyTime returns the CPU time of a process and of its child processes, those included
// that have ended.
func familyTime(pid int) (time.Duration, error) {
	total, err := cpuTime(pid)
	if err != nil {
		return 0, err
	}

	_, ended, err := processStat(pid)
	if err != nil {
		return 0, err
	}

	total += ended
	all, err := children(pid)
	for _, child := range all {
		if own, err := cpuTime(child); err == nil { // else it has ended
			total += own
		}
	}

	return total, err
}

// children returns the child processes of a process.
func children(pid int) (all []int, err error) {
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}

	for _, folder := range folders {
		child, _ := strconv.Atoi(filepath.Base(folder))
		if parent, _, err := processStat(child); err == nil && parent == pid { // else it is of others, or has ended
			all = append(all, child)
		}
	}

	return all, nil
}

// tick is the unit of the times of /proc/PID/stat.
const tick = 10 * time.Millisecond

// statFields returns the fields of /proc/PID/stat that follow the name.
func statFields(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, fmt.Errorf("read process: %w", err)
	}
	_, after, _ := strings.Cut(string(text), ") ") // the name before may contain anything
	fields := strings.Fields(after)
	if len(fields) < 20 {
		return nil, fmt.Errorf("the state of process %d has %d fields", pid, len(fields))
	}
	return fields, nil
}

// processStat returns the parent of a process and the CPU time of its ended children.
func processStat(pid int) (parent int, ended time.Duration, err error) {
	fields, err := statFields(pid)
	if err != nil {
		return 0, 0, err
	}
	parent, err = strconv.Atoi(fields[1])
	for _, field := range fields[13:15] {
		ticks, parseErr := strconv.ParseInt(field, 10, 64)
		ended, err = ended+time.Duration(ticks)*tick, errors.Join(err, parseErr)
	}
	return parent, ended, err
}

// resetPeak resets the kernel's record of the peak memory of a process.
func resetPeak(pid int) error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("reset peak memory: %w", err)
	}
	return nil
}

// peakMemory returns the peak memory of a process since the last resetPeak, in bytes.
func peakMemory(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read peak memory: %w", err)
	}
	for line := range bytes.Lines(text) {
		var kib int64
		if n, _ := fmt.Sscanf(string(line), "VmHWM: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("the status of process %d has no peak memory", pid)
}

// resetPeak resets the peak memory of the processes of the target.
func (t *Target) resetPeak() error {
	all, err := t.children()
	for _, child := range all {
		_ = resetPeak(child) // it may have ended
	}
	return errors.Join(err, resetPeak(t.PID))
}

// peakMemory returns the sum of the peak memory of the processes of the target. Pages that they share count for each of them.
func (t *Target) peakMemory() (int64, error) {
	all, err := t.children()
	if err != nil {
		return 0, err
	}
	total, err := peakMemory(t.PID)
	for _, child := range all {
		if own, err := peakMemory(child); err == nil { // else it has ended
			total += own
		}
	}
	return total, err
}

// children returns the child processes that belong to the target.
func (t *Target) children() ([]int, error) {
	if !t.Children {
		return nil, nil
	}
	return children(t.PID)
}

// CPUTime returns the CPU time of processes and of the children of those that have Children set.
func CPUTime(parts []Part) (total time.Duration, err error) {
	for _, part := range parts {
		measure := cpuTime
		if part.Children {
			measure = familyTime
		}
		own, err := measure(part.PID)
		if err != nil {
			return 0, err
		}
		total += own
	}
	return total, nil
}

// Age returns for how long a process has run, with a resolution of 10 ms.
func Age(pid int) (time.Duration, error) {
	fields, err := statFields(pid)
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, fmt.Errorf("read uptime: %w", err)
	}
	up, _, _ := strings.Cut(string(text), " ")
	now, err := time.ParseDuration(up + "s")
	began, parseErr := strconv.ParseInt(fields[19], 10, 64)
	return now - time.Duration(began)*tick, errors.Join(err, parseErr)
}
