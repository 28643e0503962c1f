package spool

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/money"
)

// logged opens a real, locked spool, and returns what it logs.
func logged(t *testing.T, dir string) (*Spool, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	s, err := Open(Config{Dir: dir, MaxEvents: 100, MaxBytes: 1 << 30, SegmentBytes: 1 << 20}, slog.New(slog.NewTextHandler(&log, nil)))
	if err == nil {
		err = s.OpenSession(1, "boot")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, &log
}

func TestDeletedDirectoryEndsAdmissionUntilNothingIsLeftToLose(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "spool")
	s, log := logged(t, dir)
	before, running := start(t, s, 1, "before"), start(t, s, 1, "running")
	finish(before, 1, "before", 3)
	s.CheckDirectory()
	if err := s.Ready(); err != nil {
		t.Fatalf("with its directory: %v", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.CheckDirectory()
		publishDue(t, s, time.Now()) // probes the disk
	}
	if err := s.Ready(); !errors.Is(err, ErrNotWritable) {
		t.Errorf("without its directory: got %v; want %v", err, ErrNotWritable)
	}
	if _, err := s.Reserve(); !errors.Is(err, ErrNotWritable) {
		t.Errorf("a request is admitted without the directory: %v", err)
	}
	finish(running, 1, "running", 5)
	if diff := cmp.Diff(map[int64]money.Nano{1: 3, 2: 5}, costs(t, s, 1, later(1))); diff != "" {
		t.Errorf("published from memory (-want +got):\n%s", diff)
	}
	s.CheckDirectory()
	if s.Ready() == nil {
		t.Error("the spool begins anew while an event is unsettled")
	}
	settle(s, 1, 2)
	s.CheckDirectory()
	s.NextBatch(1, time.Now())
	if err := s.Ready(); err != nil {
		t.Fatalf("after everything was settled: %v", err)
	}
	if got := strings.Count(log.String(), "level=ERROR"); got != 1 {
		t.Errorf("the loss is logged %d times; want once:\n%s", got, log)
	}
	start(t, s, 1, "later")
	if _, err := Open(Config{Dir: dir, MaxEvents: 100, MaxBytes: 1 << 30}, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrLocked) {
		t.Errorf("the new directory is not locked: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, _ := logged(t, dir)
	for key, e := range publishDue(t, again, later(1)) {
		if key != [2]int64{1, 3} || e.RequestID != "later" {
			t.Errorf("published %v after a restart; want the request in the new directory under number 3", e)
		}
	}
}

// A directory that is moved away and back stands for an unmounted volume.
func TestDirectoryThatComesBackIsUsedAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "spool")
	s, _ := logged(t, dir)
	running := start(t, s, 1, "running")
	if err := errors.Join(os.Rename(dir, dir+".away"), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	s.CheckDirectory()
	finish(running, 1, "running", 5)
	if s.Ready() == nil {
		t.Error("ready with another directory in place of its own")
	}
	if err := errors.Join(os.Remove(dir), os.Rename(dir+".away", dir)); err != nil {
		t.Fatal(err)
	}
	s.CheckDirectory()
	s.NextBatch(1, time.Now())
	if err := s.Ready(); err != nil {
		t.Fatalf("with its directory back: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, _ := logged(t, dir)
	if diff := cmp.Diff(map[int64]money.Nano{1: 5}, costs(t, again, 1, later(1))); diff != "" {
		t.Errorf("published after a restart (-want +got):\n%s", diff)
	}
}

func TestDeletedFileIsNoticed(t *testing.T) {
	t.Parallel()
	for name, deleted := range map[string]func(t *testing.T, dir string) string{
		"segment":      func(t *testing.T, dir string) string { t.Helper(); return segmentFiles(t, dir)[0] },
		"write buffer": func(_ *testing.T, dir string) string { return filepath.Join(dir, bufferFile) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s, _ := logged(t, dir)
			if err := os.Remove(deleted(t, dir)); err != nil {
				t.Fatal(err)
			}
			s.CheckDirectory()
			if err := s.Ready(); !errors.Is(err, ErrNotWritable) {
				t.Errorf("got %v; want %v", err, ErrNotWritable)
			}
			s.CheckDirectory() // nothing runs and nothing is unsettled
			s.NextBatch(1, time.Now())
			if err := s.Ready(); err != nil {
				t.Errorf("after the spool began anew: %v", err)
			}
			if _, err := os.Stat(filepath.Join(dir, bufferFile)); err != nil {
				t.Errorf("the new write buffer: %v", err)
			}
		})
	}
}

func TestForeignSegmentsInTheDirectoryAreNotTouched(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "spool")
	s, _ := logged(t, dir)
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700), os.WriteFile(segmentPath(dir, 1), []byte("of another proxy"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.CheckDirectory()
		s.NextBatch(1, time.Now())
	}
	if s.Ready() == nil {
		t.Error("the spool has begun anew beside the segments of another process")
	}
	if data, err := os.ReadFile(segmentPath(dir, 1)); err != nil || string(data) != "of another proxy" {
		t.Errorf("the other segment is %q, %v", data, err)
	}
}
