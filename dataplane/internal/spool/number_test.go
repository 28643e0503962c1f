package spool

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestNumbersAreGivenOnce: an event that the disk has refused is published from
// memory, and settled; then the process is killed. What ran beside it must not
// get its number from the next process: it would pass for settled, and be
// forgotten without ever having been billed.
func TestNumbersAreGivenOnce(t *testing.T) {
	t.Parallel()
	for name, still := range map[string]bool{"there is room again": false, "there is no room yet": true} {
		s, d, cfg := setup(t)
		finish(start(t, s, 1, "written"), 1, "written", 5)
		start(t, s, 1, "a running one")
		p := start(t, s, 1, "the settled one")
		start(t, s, 1, "z running one")
		d.full = true
		finish(p, 1, "the settled one", 7)
		given := published(t, s, time.Now())
		if len(given) != 2 {
			t.Fatalf("%s: published %v; want what is written and what is not", name, given)
		}

		d.full = still
		for life := range 20 {
			s = mustOpen(t, cfg, d)
			settle(s, 1, 0, [2]int64{2, 2}) // said to the process before, or again to this one
			now := published(t, s, time.Now())
			found := map[string]int{}
			for number, e := range now {
				found[e.RequestID]++
				if before, known := given[number]; known && before.RequestID != e.RequestID {
					t.Errorf("%s, life %d: %d is the number of %q and of %q", name, life, number[1], before.RequestID, e.RequestID)
				}
			}
			for _, id := range []string{"a running one", "z running one"} {
				if found[id] != 1 {
					t.Errorf("%s, life %d: %q is published %d times; want once. All: %v", name, life, id, found[id], found)
				}
			}
			maps.Copy(given, now)
		}
		d.full = false
		s.NextBatch(1, time.Now())
		for number := range published(t, s, later(1)) {
			settle(s, 1, 1, [2]int64{number[1], number[1]})
		}
		if used := s.UsedCapacity(); used != 0 {
			t.Errorf("%s: %d places are used when all is settled", name, used)
		}
	}
}

// TestNumbersHaveNoGap: where the disk took every event, a kill costs no
// number: a session can be closed when all that it has numbered is settled.
func TestNumbersHaveNoGap(t *testing.T) {
	t.Parallel()
	s, d, cfg := setup(t)
	p := start(t, s, 1, "refused first")
	start(t, s, 1, "running")
	d.full = true
	finish(p, 1, "refused first", 5)
	d.full = false
	s.NextBatch(1, time.Now()) // looks whether there is room, and writes it
	s = mustOpen(t, cfg, d)
	if got := published(t, s, time.Now()); len(got) != 2 || got[[2]int64{1, 2}].RequestID != "running" {
		t.Errorf("published %v; want numbers 1 and 2", got)
	}
}

// TestMoreNumbersAreNoted: when the note of a full disk could not be taken back,
// and the disk is full again under more requests, it tells of these.
func TestMoreNumbersAreNoted(t *testing.T) {
	t.Parallel()
	s, d, cfg := setup(t)
	noted := func(name string) bool {
		_, err := os.Stat(filepath.Join(cfg.Dir, skipFilePrefix+name))
		return err == nil
	}
	p := start(t, s, 1, "refused")
	d.full = true
	finish(p, 1, "refused", 1)
	if !noted("1") {
		t.Fatal("one number is not noted")
	}
	away := filepath.Join(t.TempDir(), "away")
	move := func(from, to string) {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	move(s.skipFilePath(1), away)
	d.full = false
	s.NextBatch(1, time.Now())          // looks whether there is room
	p = start(t, s, 1, "refused again") // and finds no note to take back
	start(t, s, 1, "running")
	move(away, s.skipFilePath(1))
	d.full = true
	finish(p, 1, "refused again", 1)
	if !noted("2") {
		t.Error("the note is not of two numbers")
	}
}
