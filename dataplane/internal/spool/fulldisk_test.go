package spool

import (
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/money"
)

// On a full disk, the events of an earlier process are recovered and published,
// and no request is admitted. Once there is room, the spool works as usual, also
// after another restart.
func TestOpenRecoversOnFullDisk(t *testing.T) {
	t.Parallel()
	onEachDisk(t, func(t *testing.T, d *fakeDisk) {
		s, cfg := setupOn(t, d)
		finish(start(t, s, 1, "finished"), 1, "finished", 5)
		start(t, s, 1, "running")
		d.fill(s)
		s = mustOpen(t, cfg, d)
		if err := s.Ready(); !errors.Is(err, ErrNotWritable) {
			t.Errorf("Ready: got %v; want %v", err, ErrNotWritable)
		}
		if _, err := s.Reserve(); !errors.Is(err, ErrNotWritable) || s.WriteError() == nil {
			t.Errorf("Reserve: got %v; want %v", err, ErrNotWritable)
		}
		now := time.Now()
		if got := publishDue(t, s, now); len(got) != 2 || got[[2]int64{1, 1}].Cost != 5 || got[[2]int64{1, 2}].RequestID != "running" {
			t.Errorf("published %v; want both requests, the second one as aborted", got)
		}
		d.full = false
		s.NextBatch(1, now) // probes the disk
		if err := errors.Join(s.Ready(), s.WriteError(), s.OpenSession(2, "second")); err != nil {
			t.Fatal(err)
		}
		finish(start(t, s, 2, "later"), 2, "later", 7)

		s = mustOpen(t, cfg, d)
		got := publishDue(t, s, time.Now())
		if len(got) != 3 || got[[2]int64{1, 2}].RequestID != "running" || got[[2]int64{2, 1}].Cost != 7 {
			t.Errorf("published after a restart: %v; want all three requests", got)
		}
		settle(s, 1, 2)
		settle(s, 2, 1)
		if used := s.UsedCapacity(); used != 0 {
			t.Errorf("%d units of capacity are in use after every event was settled; want 0", used)
		}
	})
}

func TestOpenCreatesSpoolOnFullDisk(t *testing.T) {
	t.Parallel()
	d := &fakeDisk{full: true}
	cfg := Config{Dir: filepath.Join(t.TempDir(), "new"), MaxEvents: 100, MaxBytes: 1 << 30, SegmentBytes: 1 << 20}
	s := mustOpen(t, cfg, d)
	if err := s.Ready(); !errors.Is(err, ErrNotWritable) {
		t.Errorf("Ready: got %v; want %v", err, ErrNotWritable)
	}
	d.full = false
	s.NextBatch(1, time.Now())
	if err := errors.Join(s.Ready(), s.OpenSession(1, "boot")); err != nil {
		t.Error(err)
	}
}

func TestOpenFailsIfDirectoryCannotBeCreated(t *testing.T) {
	t.Parallel()
	if _, err := Open(Config{Dir: "/dev/null/spool", MaxEvents: 100, MaxBytes: 1 << 30}, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("got no error")
	}
}

func TestFullDiskKeepsEventsAndAdmitsNothing(t *testing.T) {
	t.Parallel()
	onEachDisk(t, func(t *testing.T, d *fakeDisk) {
		s, cfg := setupOn(t, d)
		first, second, third := start(t, s, 1, "a"), start(t, s, 1, "b"), start(t, s, 1, "c")
		fourth, err := s.Reserve()
		if err != nil {
			t.Fatal(err)
		}
		d.fill(s)
		if finish(second, 1, "b", 20) || finish(first, 1, "a", 10) {
			t.Error("an event that the disk has refused counts as stored")
		}
		if _, err := s.Reserve(); !errors.Is(err, ErrNotWritable) {
			t.Errorf("Reserve on a full disk: got %v; want %v", err, ErrNotWritable)
		}
		if err := fourth.AppendStarted(usage(1, "d")); err == nil {
			t.Error("a request started on a full disk")
		}
		fourth.Release()
		if got := s.UsedCapacity(); got != 3 {
			t.Errorf("%d units of capacity are in use; want 3", got)
		}
		// The events are published from memory.
		if diff := cmp.Diff(map[int64]money.Nano{1: 20, 2: 10}, costs(t, s, 1, later(0))); diff != "" {
			t.Errorf("published on a full disk (-want +got):\n%s", diff)
		}
		if err := s.Ready(); !errors.Is(err, ErrNotWritable) {
			t.Errorf("Ready on a full disk: got %v; want %v", err, ErrNotWritable)
		}
		// No request writes, and yet the spool finds out that the disk accepts writes again.
		d.full = false
		s.NextBatch(1, time.Now())
		if err := s.Ready(); err != nil {
			t.Errorf("Ready after the disk has room: %v", err)
		}
		if !finish(third, 1, "c", 30) {
			t.Error("an event on a disk with room does not count as stored")
		}
		want := map[int64]money.Nano{1: 20, 2: 10, 3: 30}
		if diff := cmp.Diff(want, costs(t, mustOpen(t, cfg, d), 1, later(0))); diff != "" {
			t.Errorf("published after a restart (-want +got):\n%s", diff)
		}
	})
}

// An event that the disk has refused is settled before it is written. It is
// written all the same: recovery relies on numbers without a gap.
func TestEventSettledWhileUnwrittenLeavesNoGap(t *testing.T) {
	t.Parallel()
	onEachDisk(t, func(t *testing.T, d *fakeDisk) {
		s, cfg := setupOn(t, d)
		finish(start(t, s, 1, "a"), 1, "a", 10)
		second, third := start(t, s, 1, "b"), start(t, s, 1, "c")
		d.fill(s)
		finish(second, 1, "b", 20)
		settle(s, 1, 0, [2]int64{2, 2})
		d.full = false
		finish(third, 1, "c", 30)
		restarted := mustOpen(t, cfg, d)
		settle(restarted, 1, 0, [2]int64{2, 2})
		if diff := cmp.Diff(map[int64]money.Nano{1: 10, 3: 30}, costs(t, restarted, 1, later(0))); diff != "" {
			t.Errorf("costs by sequence number (-want +got):\n%s", diff)
		}
	})
}

// A segment with a started record is kept as long as the finished record exists
// in memory only: if the process dies, the request becomes an aborted event.
func TestRequestOfUnwrittenEventIsAborted(t *testing.T) {
	t.Parallel()
	onEachDisk(t, func(t *testing.T, d *fakeDisk) {
		s, cfg := setupOn(t, d)
		s.cfg.SegmentBytes = 1
		running := start(t, s, 1, "a")
		finish(start(t, s, 1, "b"), 1, "b", 1)
		settle(s, 1, 1)
		d.fill(s)
		finish(running, 1, "a", 10)
		d.full = false
		got := costs(t, mustOpen(t, cfg, d), 1, later(0))
		for number, cost := range got {
			if number <= 2 || cost != 0 { // the unwritten event may have been published as number 2
				t.Errorf("number %d costs %v; want a number above 2 without a cost", number, cost)
			}
		}
		if len(got) != 1 {
			t.Errorf("published %v; want the aborted request alone", got)
		}
	})
}

// A new segment can be created after an earlier attempt failed half way.
func TestRotationIsRepeatedAfterFullDisk(t *testing.T) {
	t.Parallel()
	onEachDisk(t, func(t *testing.T, d *fakeDisk) {
		s, cfg := setupOn(t, d)
		s.cfg.SegmentBytes = 1
		u := start(t, s, 1, "a")
		d.fill(s)
		finish(u, 1, "a", 10)
		s.NextBatch(1, time.Now())
		d.full = false
		s.NextBatch(1, time.Now())
		if err := s.Ready(); err != nil {
			t.Fatalf("Ready after the disk has room: %v", err)
		}
		if diff := cmp.Diff(map[int64]money.Nano{1: 10}, costs(t, mustOpen(t, cfg, d), 1, later(0))); diff != "" {
			t.Errorf("costs by sequence number (-want +got):\n%s", diff)
		}
	})
}
