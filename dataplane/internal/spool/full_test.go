package spool

import (
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"
)

// TestOpenOnFullDisk: what an earlier process left is recovered and published
// although nothing can be written; nothing is admitted until there is room, and
// then everything goes on, also over another restart.
func TestOpenOnFullDisk(t *testing.T) {
	t.Parallel()
	s, d, cfg := setup(t)
	finish(start(t, s, 1, "done"), 1, "done", 5)
	start(t, s, 1, "running")
	d.full = true
	s = mustOpen(t, cfg, d)
	if err := s.Ready(); !errors.Is(err, ErrNotWritable) {
		t.Errorf("ready: got %v; want %v", err, ErrNotWritable)
	}
	if _, err := s.Reserve(); !errors.Is(err, ErrNotWritable) || s.WriteError() == nil {
		t.Errorf("reserve: got %v; want %v", err, ErrNotWritable)
	}
	now := time.Now()
	if got := published(t, s, now); len(got) != 2 || got[[2]int64{1, 1}].Cost != 5 || got[[2]int64{1, 2}].RequestID != "running" {
		t.Errorf("published: %v; want both, the second one as aborted", got)
	}
	d.full = false
	s.NextBatch(1, now) // looks whether there is room
	if err := errors.Join(s.Ready(), s.WriteError(), s.OpenSession(2, "second")); err != nil {
		t.Fatal(err)
	}
	finish(start(t, s, 2, "later"), 2, "later", 7)

	s = mustOpen(t, cfg, d)
	got := published(t, s, time.Now())
	if len(got) != 3 || got[[2]int64{1, 2}].RequestID != "running" || got[[2]int64{2, 1}].Cost != 7 {
		t.Errorf("published after a restart: %v; want all three", got)
	}
	settle(s, 1, 2)
	settle(s, 2, 1)
	if used := s.UsedCapacity(); used != 0 {
		t.Errorf("%d places are used after all is settled", used)
	}
}

// TestOpenNewOnFullDisk: a new spool can be opened on a full disk, but not in a
// place where there never can be one.
func TestOpenNewOnFullDisk(t *testing.T) {
	t.Parallel()
	d := &fakeDisk{full: true}
	cfg := Config{Dir: filepath.Join(t.TempDir(), "new"), MaxEvents: 100, MaxBytes: 1 << 30, SegmentBytes: 1 << 20}
	s := mustOpen(t, cfg, d)
	if err := s.Ready(); !errors.Is(err, ErrNotWritable) {
		t.Errorf("ready: got %v; want %v", err, ErrNotWritable)
	}
	d.full = false
	s.NextBatch(1, time.Now())
	if err := errors.Join(s.Ready(), s.OpenSession(1, "boot")); err != nil {
		t.Error(err)
	}
	cfg.Dir = "/dev/null/spool"
	if _, err := Open(cfg, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("no error for a directory that cannot be made")
	}
}
