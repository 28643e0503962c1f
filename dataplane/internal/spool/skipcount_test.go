package spool

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An event that the disk refused is published from memory and settled, and then
// the process is killed. The next process must not assign its sequence number to
// a request that was running: the event of that request would be taken for
// settled and never be charged.
func TestSequenceNumbersAreNotReusedAfterFullDisk(t *testing.T) {
	t.Parallel()
	for name, stillFull := range map[string]bool{"the disk has room after the restart": false, "the disk is still full after the restart": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEachDisk(t, func(t *testing.T, d *fakeDisk) { playSequenceNumbersAfterFullDisk(t, d, stillFull) })
		})
	}
}

func playSequenceNumbersAfterFullDisk(t *testing.T, d *fakeDisk, stillFull bool) {
	t.Helper()
	s, cfg := setupOn(t, d)
	finish(start(t, s, 1, "written"), 1, "written", 5)
	start(t, s, 1, "a running")
	u := start(t, s, 1, "settled")
	start(t, s, 1, "z running")
	d.fill(s)
	finish(u, 1, "settled", 7)
	assigned := publishDue(t, s, time.Now())
	if len(assigned) != 2 {
		t.Fatalf("published %v; want the written and the unwritten event", assigned)
	}

	d.full = stillFull
	for restart := range 20 {
		s = mustOpen(t, cfg, d)
		settle(s, 1, 0, [2]int64{2, 2}) // the earlier process got it, or this one gets it again
		now := publishDue(t, s, time.Now())
		count := map[string]int{}
		for number, e := range now {
			count[e.RequestID]++
			if before, known := assigned[number]; known && before.RequestID != e.RequestID {
				t.Errorf("restart %d: requests %q and %q both have number %d", restart, before.RequestID, e.RequestID, number[1])
			}
		}
		for _, id := range []string{"a running", "z running"} {
			if count[id] != 1 {
				t.Errorf("restart %d: request %q is published %d times; want once. All: %v", restart, id, count[id], count)
			}
		}
		maps.Copy(assigned, now)
	}
	d.full = false
	s.NextBatch(1, time.Now())
	for number := range publishDue(t, s, later(1)) {
		settle(s, 1, 1, [2]int64{number[1], number[1]})
	}
	if used := s.UsedCapacity(); used != 0 {
		t.Errorf("%d units of capacity are in use after every event was settled; want 0", used)
	}
}

// If every event was written before the process is killed, no number is skipped:
// the session can be closed by its final count.
func TestNoNumberIsSkippedIfAllWereWritten(t *testing.T) {
	t.Parallel()
	onEachDisk(t, func(t *testing.T, d *fakeDisk) {
		s, cfg := setupOn(t, d)
		u := start(t, s, 1, "refused first")
		start(t, s, 1, "running")
		d.fill(s)
		finish(u, 1, "refused first", 5)
		d.full = false
		s.NextBatch(1, time.Now()) // probes the disk and writes the event
		s = mustOpen(t, cfg, d)
		if got := publishDue(t, s, time.Now()); len(got) != 2 || got[[2]int64{1, 2}].RequestID != "running" {
			t.Errorf("published %v; want numbers 1 and 2", got)
		}
	})
}

// The skip count could not be cleared after a full disk. When the disk is full
// again while more requests run, the skip count includes all of them.
func TestSkipCountGrowsIfItCouldNotBeCleared(t *testing.T) {
	t.Parallel()
	onEachDisk(t, func(t *testing.T, d *fakeDisk) {
		s, cfg := setupOn(t, d)
		hasSkipCount := func(count string) bool {
			_, err := os.Stat(filepath.Join(cfg.Dir, skipFilePrefix+count))
			return err == nil
		}
		u := start(t, s, 1, "refused")
		d.fill(s)
		finish(u, 1, "refused", 1)
		if !hasSkipCount("1") {
			t.Fatal("the skip count is not 1")
		}
		elsewhere := filepath.Join(t.TempDir(), "elsewhere")
		move := func(from, to string) {
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
		}
		move(s.skipFilePath(1), elsewhere)
		d.full = false
		s.NextBatch(1, time.Now())          // probes the disk
		u = start(t, s, 1, "refused again") // cannot clear the skip count
		start(t, s, 1, "running")
		move(elsewhere, s.skipFilePath(1))
		d.fill(s)
		finish(u, 1, "refused again", 1)
		if !hasSkipCount("2") {
			t.Error("the skip count is not 2")
		}
	})
}

// The machine loses power: the end of the spool was not on disk. The lost end had
// an event that was published and settled. The event of the request that was
// running must not get its number.
func TestSequenceNumbersAreNotReusedAfterPowerLoss(t *testing.T) {
	t.Parallel()
	d, cfg := &fakeDisk{}, Config{Dir: t.TempDir(), MaxEvents: 100, MaxBytes: 1 << 30, SegmentBytes: 1 << 20, KernelBoot: "first"}
	s := mustOpen(t, cfg, d)
	if err := s.OpenSession(1, "boot"); err != nil {
		t.Fatal(err)
	}
	finish(start(t, s, 1, "on disk"), 1, "on disk", 1)
	start(t, s, 1, "running")
	file := segmentFiles(t, cfg.Dir)[0]
	onDisk, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	finish(start(t, s, 1, "lost"), 1, "lost", 1)
	if err := os.Truncate(file, onDisk.Size()); err != nil {
		t.Fatal(err)
	}
	cfg.KernelBoot = "second"
	for restart := range 3 {
		s = mustOpen(t, cfg, d)
		settle(s, 1, 2) // of the earlier process; it arrives before the first publication
		got := publishDue(t, s, later(1))
		if len(got) != 1 {
			t.Fatalf("restart %d: published %v; want the event of the running request", restart, got)
		}
		for key, e := range got {
			if e.RequestID != "running" || key[1] <= 2 || key[1] > 2*skippedAfterBoot {
				t.Errorf("restart %d: published %s with number %d", restart, e.RequestID, key[1])
			}
		}
	}
}

func TestNoNumberIsSkippedInTheSameBootOfTheMachine(t *testing.T) {
	t.Parallel()
	d, cfg := &fakeDisk{}, Config{Dir: t.TempDir(), MaxEvents: 100, MaxBytes: 1 << 30, SegmentBytes: 1 << 20, KernelBoot: "first"}
	s := mustOpen(t, cfg, d)
	if err := s.OpenSession(1, "boot"); err != nil {
		t.Fatal(err)
	}
	start(t, s, 1, "running")
	if got := publishDue(t, mustOpen(t, cfg, d), later(0)); got[[2]int64{1, 1}].RequestID != "running" {
		t.Errorf("published %v; want the running request with number 1", got)
	}
}
