package spool

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/money"
)

func bufferPath(cfg Config) string { return filepath.Join(cfg.Dir, bufferFile) }

// readFile returns the content of a file, nothing if there is none.
func readFile(t interface{ Fatal(args ...any) }, path string) []byte {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return data
}

// fillDirVariable names the directory in which a process of the test writes records until it is killed.
const fillDirVariable = "SPOOL_TEST_FILL_DIR"

// Each record that a process has written before it is killed is there afterwards.
func TestRecordsSurviveSIGKILL(t *testing.T) {
	if dir := os.Getenv(fillDirVariable); dir != "" {
		writeUntilKilled(t, dir)
		return
	}
	t.Parallel()
	for _, lines := range []int{1, 2, 3, 100, 101, 1000} {
		cfg := Config{Dir: t.TempDir(), MaxEvents: 1 << 30, MaxBytes: 1 << 30}
		want := recordsOfAKilledProcess(t, cfg.Dir, lines)
		s, err := Open(cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]money.Nano{}
		for _, e := range publishDue(t, s, later(0)) {
			got[e.RequestID] = e.Cost
		}
		for id, cost := range want {
			if found, ok := got[id]; !ok || found < cost {
				t.Errorf("killed after %d of %d records: request %s is published %v with cost %d; want cost %d", lines, len(want), id, ok, found, cost)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// writeUntilKilled writes records and, after each, a line with the request and its cost so far.
func writeUntilKilled(t *testing.T, dir string) {
	s, err := Open(Config{Dir: dir, MaxEvents: 1 << 30, MaxBytes: 1 << 30}, slog.New(slog.DiscardHandler))
	if err == nil {
		err = s.OpenSession(1, "boot")
	}
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; ; n++ {
		id := fmt.Sprint("r", n)
		u := start(t, s, 1, id)
		_, _ = fmt.Fprintln(os.Stdout, id, 0)
		if n%3 == 0 {
			continue // it runs on
		}
		finish(u, 1, id, money.Nano(n))
		_, _ = fmt.Fprintln(os.Stdout, id, n)
	}
}

// recordsOfAKilledProcess kills a process when it has written some lines, and
// returns the costs of all requests that it has reported until then.
func recordsOfAKilledProcess(t *testing.T, dir string, lines int) map[string]money.Nano {
	t.Helper()
	process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRecordsSurviveSIGKILL$")
	process.Env = append(os.Environ(), fillDirVariable+"="+dir)
	output, err := process.StdoutPipe()
	if err == nil {
		err = process.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	costs := map[string]money.Nano{}
	scanner := bufio.NewScanner(output)
	for n := 1; scanner.Scan(); n++ {
		var id string
		var cost money.Nano
		if _, err := fmt.Sscan(scanner.Text(), &id, &cost); err == nil { // the last line may be torn
			costs[id] = cost
		}
		if n == lines {
			if err := process.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := process.Wait(); err == nil || len(costs) == 0 {
		t.Fatalf("the process has ended with %v after the records of %d requests; want it killed", err, len(costs))
	}
	return costs
}

// A clean stop leaves the files of a version without a write buffer.
func TestStoppedSpoolHasAllRecordsInItsSegments(t *testing.T) {
	t.Parallel()
	d := &fakeDisk{buffer: bufferBytes}
	s, cfg := setupOn(t, d)
	finish(start(t, s, 1, "a"), 1, "a", 5)
	running := start(t, s, 1, "b")
	progress(running, 7)
	if got := len(readFile(t, segmentFiles(t, cfg.Dir)[0])); int64(got) >= s.Bytes() {
		t.Fatalf("the segment has %d of %d bytes while the spool is open; want less", got, s.Bytes())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bufferPath(cfg)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of the write buffer after a stop: %v; want none", err)
	}
	if diff := cmp.Diff(map[int64]money.Nano{1: 5, 2: 7}, costs(t, mustOpen(t, cfg, &fakeDisk{}), 1, later(0))); diff != "" {
		t.Errorf("published after a restart (-want +got):\n%s", diff)
	}
}

func TestStopOnAFullDiskKeepsTheWriteBuffer(t *testing.T) {
	t.Parallel()
	d := &fakeDisk{buffer: bufferBytes}
	s, cfg := setupOn(t, d)
	finish(start(t, s, 1, "a"), 1, "a", 5)
	d.full = true
	if err := s.Close(); err == nil {
		t.Error("no error of a stop that could not write")
	}
	for _, full := range []bool{true, false} {
		d.full = full
		again := mustOpen(t, cfg, d)
		if diff := cmp.Diff(map[int64]money.Nano{1: 5}, costs(t, again, 1, later(0))); diff != "" {
			t.Errorf("published after a restart, disk full: %v (-want +got):\n%s", full, diff)
		}
	}
}

// A full disk is noticed although the write buffer has room, so that no request is admitted.
func TestFlushNoticesAFullDisk(t *testing.T) {
	t.Parallel()
	d := &fakeDisk{buffer: bufferBytes}
	s, _ := setupOn(t, d)
	d.fill(s)
	if err := s.Ready(); !errors.Is(err, ErrNotWritable) {
		t.Errorf("Ready: got %v; want %v", err, ErrNotWritable)
	}
	for range 3 {
		s.NextBatch(1, time.Now()) // probes the disk
	}
	if err := s.Ready(); !errors.Is(err, ErrNotWritable) {
		t.Errorf("Ready after the disk was probed: got %v; want %v", err, ErrNotWritable)
	}
	d.full = false
	s.NextBatch(1, time.Now())
	if err := s.Ready(); err != nil {
		t.Errorf("Ready after there is room: %v", err)
	}
}

// When the memory cannot be written to, the records are written to the segment.
func TestFaultOfTheMappedFileLosesNothing(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(t *testing.T, d *fakeDisk, cfg Config){
		"the store fails half way": func(_ *testing.T, d *fakeDisk, _ Config) { d.faulty = true },
		"the file was truncated": func(t *testing.T, _ *fakeDisk, cfg Config) {
			t.Helper()
			if err := os.Truncate(bufferPath(cfg), 0); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			d := &fakeDisk{buffer: bufferBytes}
			s, cfg := setupOn(t, d)
			s.buffer.log = slog.New(slog.NewTextHandler(&log, nil))
			running := start(t, s, 1, "a")
			fail(t, d, cfg)
			finish(running, 1, "a", 5)
			finish(start(t, s, 1, "b"), 1, "b", 7)
			if err := s.Ready(); err != nil {
				t.Errorf("Ready after the fault: %v", err)
			}
			if got := strings.Count(log.String(), "level=ERROR"); got != 1 {
				t.Errorf("the fault is logged %d times; want once:\n%s", got, &log)
			}
			want := map[int64]money.Nano{1: 5, 2: 7}
			if diff := cmp.Diff(want, costs(t, mustOpen(t, cfg, d), 1, later(0))); diff != "" {
				t.Errorf("published after a restart (-want +got):\n%s", diff)
			}
			d.faulty = false
			s = mustOpen(t, cfg, d)
			writes := d.writes
			if start(t, s, 1, "c"); d.writes != writes {
				t.Error("the next process does not use the write buffer")
			}
		})
	}
}

func TestFaultOnAFullDiskKeepsTheRecordsInMemory(t *testing.T) {
	t.Parallel()
	d := &fakeDisk{buffer: bufferBytes}
	s, cfg := setupOn(t, d)
	finish(start(t, s, 1, "a"), 1, "a", 5)
	running := start(t, s, 1, "b")
	d.full, d.faulty = true, true
	finish(running, 1, "b", 7)
	if err := s.Ready(); !errors.Is(err, ErrNotWritable) {
		t.Errorf("Ready: got %v; want %v", err, ErrNotWritable)
	}
	want := map[int64]money.Nano{1: 5, 2: 7}
	if diff := cmp.Diff(want, costs(t, s, 1, later(0))); diff != "" {
		t.Errorf("published from memory (-want +got):\n%s", diff)
	}
	d.full = false
	s.NextBatch(1, time.Now())
	if err := s.Ready(); err != nil {
		t.Errorf("Ready after there is room: %v", err)
	}
	if diff := cmp.Diff(want, costs(t, mustOpen(t, cfg, d), 1, later(0))); diff != "" {
		t.Errorf("published after a restart (-want +got):\n%s", diff)
	}
}

// The records of a buffer whose segment was removed are of no use: everything before the next segment was settled.
func TestWriteBufferOfARemovedSegmentIsLeftOut(t *testing.T) {
	t.Parallel()
	d := &fakeDisk{buffer: bufferBytes}
	s, cfg := setupOn(t, d)
	finish(start(t, s, 1, "a"), 1, "a", 5)
	chunks := readFile(t, bufferPath(cfg))
	s = mustOpen(t, cfg, d)
	settle(s, 1, 1)
	if err := errors.Join(s.Close(), os.WriteFile(bufferPath(cfg), chunks, 0o600)); err != nil {
		t.Fatal(err)
	}
	again := mustOpen(t, cfg, d)
	if got := costs(t, again, 1, later(0)); len(got) != 0 {
		t.Errorf("published %v; want nothing", got)
	}
	finish(start(t, again, 1, "b"), 1, "b", 7)
	if diff := cmp.Diff(map[int64]money.Nano{2: 7}, costs(t, mustOpen(t, cfg, d), 1, later(0))); diff != "" {
		t.Errorf("published after another restart (-want +got):\n%s", diff)
	}
}

// snapshot is the content of the files at one time, and the costs of the requests that were written until then.
type snapshot struct {
	segments, buffer map[string][]byte
	written          map[string]money.Nano
}

// After a crash of the machine, segments and write buffer may be of different age. What the segments alone have is
// recovered at least, and nothing that never was.
func TestPowerLossLeavesAtLeastTheRecordsOfTheSegments(t *testing.T) {
	t.Parallel()
	d := &fakeDisk{buffer: 1500}
	s, cfg := setupOn(t, d)
	s.cfg.SegmentBytes = 3000
	written := map[string]money.Nano{}
	var all []snapshot
	for n := range 15 {
		id := fmt.Sprint("r", n)
		finish(start(t, s, 1, id), 1, id, money.Nano(n+1))
		written[id] = money.Nano(n + 1)
		now := snapshot{map[string][]byte{}, map[string][]byte{bufferFile: readFile(t, bufferPath(cfg))}, maps.Clone(written)}
		for _, path := range segmentFiles(t, cfg.Dir) {
			now.segments[filepath.Base(path)] = readFile(t, path)
		}
		all = append(all, now)
	}
	recovered := func(files ...map[string][]byte) map[string]money.Nano {
		crashed := cfg
		crashed.Dir = t.TempDir()
		for _, some := range files {
			for name, data := range some {
				if err := os.WriteFile(filepath.Join(crashed.Dir, name), data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		return recoveredCosts(t, crashed)
	}
	for i, segments := range all {
		alone := recovered(segments.segments)
		for j, buffer := range all {
			got := recovered(segments.segments, buffer.buffer)
			for id, cost := range alone {
				if got[id] < cost {
					t.Errorf("segments of step %d and buffer of step %d: request %s costs %d; want %d at least", i, j, id, got[id], cost)
				}
			}
			for id, cost := range got {
				if cost != 0 && cost != written[id] {
					t.Errorf("segments of step %d and buffer of step %d: request %s costs %d; want %d", i, j, id, cost, written[id])
				}
			}
			if i == j && !maps.Equal(got, segments.written) {
				t.Errorf("step %d: recovered %v; want %v", i, got, segments.written)
			}
		}
	}
}

func TestBufferedSegmentIsReadAsOneFile(t *testing.T) {
	t.Parallel()
	d := &fakeDisk{buffer: 300}
	s := mustOpen(t, Config{Dir: t.TempDir(), MaxEvents: 100, MaxBytes: 1 << 30, SegmentBytes: 1 << 20}, d)
	seg := s.segments[0]
	var want []byte
	for n := range 60 {
		records := bytes.Repeat([]byte{byte(n)}, 1+37*n%400)
		if n%7 == 0 {
			s.FlushBuffer()
		}
		if _, err := seg.append(records); err != nil {
			t.Fatal(err)
		}
		want = append(want, records...)
		got, err := io.ReadAll(io.NewSectionReader(seg.file, seg.size-int64(len(want)), 1<<20))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("after %d writes: read %d bytes, %v; want the %d bytes written", n+1, len(got), err, len(want))
		}
		for _, size := range []int{1, 50, 350, len(want)} {
			part := make([]byte, min(size, len(want)))
			at := len(want) - len(part)
			if _, err := seg.file.ReadAt(part, seg.size-int64(len(part))); err != nil || !bytes.Equal(part, want[at:]) {
				t.Fatalf("after %d writes: the last %d bytes are read as %v, %v", n+1, len(part), part, err)
			}
		}
	}
}

// FuzzDamagedWriteBuffer opens a spool with a damaged write buffer. Either the chunks before the damage are recovered, and
// nothing else, or the chunks have valid checksums for other records.
func FuzzDamagedWriteBuffer(f *testing.F) {
	whole, files := fuzzedSpool(f)
	for _, cut := range []int{0, 1, chunkPrefixBytes, len(whole) / 2, len(whole)} {
		f.Add(cut, 0, byte(0), []byte{})
	}
	f.Add(len(whole), 5, byte(1), []byte{})
	f.Add(len(whole), 400, byte(128), bytes.Repeat([]byte{255}, 30))
	f.Fuzz(func(t *testing.T, cut, at int, change byte, more []byte) {
		damaged := slices.Clone(whole[:max(0, min(cut, len(whole)))])
		if at >= 0 && at < len(damaged) {
			damaged[at] ^= change
		}
		damaged = append(damaged, more...)
		number, offset, records := readChunks(damaged)
		wholeNumber, wholeOffset, wholeRecords := readChunks(whole)
		if len(records) > 0 && (number != wholeNumber || offset != wholeOffset || !bytes.HasPrefix(wholeRecords, records)) {
			t.Skip("the fuzzer has made a valid chunk")
		}
		cfg := Config{Dir: t.TempDir(), MaxEvents: 100, MaxBytes: 1 << 30, SegmentBytes: 1 << 20}
		if err := os.WriteFile(bufferPath(cfg), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		for name, data := range files {
			if err := os.WriteFile(filepath.Join(cfg.Dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got := recoveredCosts(t, cfg)
		if got["in the segment"] != 1 {
			t.Errorf("recovered %v; want the event in the segment at least", got)
		}
		for id, cost := range got {
			if cost > map[string]money.Nano{"in the segment": 1, "in the buffer": 2, "last": 3}[id] {
				t.Errorf("request %s costs %d", id, cost)
			}
		}
		if len(records) == len(wholeRecords) && (got["in the buffer"] != 2 || got["last"] != 3) {
			t.Errorf("recovered %v; want all events of the buffer", got)
		}
	})
}

// fuzzedSpool returns the write buffer of a killed process, and its other files.
func fuzzedSpool(f *testing.F) (buffer []byte, files map[string][]byte) {
	f.Helper()
	d, cfg := &fakeDisk{buffer: 4000}, Config{Dir: f.TempDir(), MaxEvents: 100, MaxBytes: 1 << 30, SegmentBytes: 1 << 20}
	s, err := open(cfg, slog.New(slog.DiscardHandler), d)
	if err == nil {
		err = s.OpenSession(1, "boot")
	}
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(d.close)
	finish(start(f, s, 1, "in the segment"), 1, "in the segment", 1)
	s.FlushBuffer()
	finish(start(f, s, 1, "in the buffer"), 1, "in the buffer", 2)
	finish(start(f, s, 1, "last"), 1, "last", 3)
	files = map[string][]byte{}
	for _, path := range segmentFiles(f, cfg.Dir) {
		files[filepath.Base(path)] = readFile(f, path)
	}
	return readFile(f, bufferPath(cfg)), files
}
