package spool

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/money"
)

// One request runs on while all others finish and are settled at once: the spool
// must not fill.
func TestLongRequestDoesNotFillTheSpool(t *testing.T) {
	t.Parallel()
	d, cfg := &fakeDisk{}, Config{Dir: t.TempDir(), MaxEvents: 1_500_000, MaxBytes: 2 << 20}
	s := mustOpen(t, cfg, d)
	if err := s.OpenSession(1, "boot"); err != nil {
		t.Fatal(err)
	}
	long := start(t, s, 1, "long")
	progress(long, 7)
	quiet := start(t, s, 1, "without progress")
	const requests = 20_000
	for n := int64(1); n <= requests; n++ {
		id := fmt.Sprint("r", n)
		finish(start(t, s, 1, id), 1, id, 1)
		if n%50 == 0 {
			settle(s, 1, n)
			publishDue(t, s, later(0))
		}
	}
	if limit := int64(keptSegments+2) * (cfg.MaxBytes/16 + 1000); s.bytes > limit {
		t.Errorf("the spool has %d bytes while two requests run; want at most %d", s.bytes, limit)
	}
	finish(quiet, 1, "without progress", 5)
	want := map[int64]money.Nano{requests + 1: 5, requests + 2: 7}
	if diff := cmp.Diff(want, costs(t, mustOpen(t, cfg, d), 1, later(0))); diff != "" {
		t.Errorf("published after a restart (-want +got):\n%s", diff)
	}
}

// After an outage of settlement each segment can have the started record of a
// request that still runs. No request is admitted then, so nothing is written
// that could begin another segment.
func TestFullSpoolIsEmptiedAlthoughEachSegmentHasARunningRequest(t *testing.T) {
	t.Parallel()
	d, cfg := &fakeDisk{}, Config{Dir: t.TempDir(), MaxEvents: 1_500_000, MaxBytes: 1 << 20}
	s := mustOpen(t, cfg, d)
	if err := s.OpenSession(1, "boot"); err != nil {
		t.Fatal(err)
	}
	finished, running := int64(0), 0
	for n := 0; s.Ready() == nil; n++ {
		u := start(t, s, 1, fmt.Sprint("r", n))
		if n%100 == 0 {
			running++
			continue
		}
		finish(u, 1, fmt.Sprint("r", n), 1)
		finished++
	}
	settle(s, 1, finished)
	if err := s.Ready(); err != nil || s.bytes > cfg.MaxBytes/2 {
		t.Errorf("after everything was settled and %d requests run: %v, %d bytes", running, err, s.bytes)
	}
	if got := len(costs(t, mustOpen(t, cfg, d), 1, later(0))); got != running {
		t.Errorf("%d aborted events after a restart; want %d", got, running)
	}
}

func TestDamagedRecordIsNotCarriedOver(t *testing.T) {
	t.Parallel()
	d, cfg := &fakeDisk{}, Config{Dir: t.TempDir(), MaxEvents: 10_000, MaxBytes: 1 << 30, SegmentBytes: 4000}
	s := mustOpen(t, cfg, d)
	if err := s.OpenSession(1, "boot"); err != nil {
		t.Fatal(err)
	}
	long := start(t, s, 1, "long")
	at := s.running["long"].started
	if err := os.WriteFile(at.segment.file.Name(), damaged(t, at), 0o600); err != nil {
		t.Fatal(err)
	}
	for n := int64(1); n <= 200; n++ {
		finish(start(t, s, 1, fmt.Sprint("r", n)), 1, fmt.Sprint("r", n), 1)
		settle(s, 1, n)
	}
	finish(long, 1, "long", 9)
	if diff := cmp.Diff(map[int64]money.Nano{201: 9}, costs(t, mustOpen(t, cfg, d), 1, later(0))); diff != "" {
		t.Errorf("published after a restart (-want +got):\n%s", diff)
	}
}

// damaged returns the file of a record with one byte of the record's body changed.
func damaged(t *testing.T, at place) []byte {
	t.Helper()
	data, err := os.ReadFile(at.segment.file.Name())
	if err != nil {
		t.Fatal(err)
	}
	data[at.offset+prefixBytes] ^= 1
	return data
}

// crashDisk copies the directory at each write to a segment or to the write buffer:
// before it, in the middle of it, and after it. Each copy is the spool of a process that was killed there.
type crashDisk struct {
	fakeDisk
	t         *testing.T
	dir, into string
	// before and after are the costs of the running requests and unsettled events before and after the step under way.
	before, after map[string]money.Nano
	copies        []crash
}

type crash struct {
	dir           string
	before, after map[string]money.Nano
}

type crashFile struct {
	file
	disk *crashDisk
}

type crashMapping struct {
	mapping
	disk *crashDisk
}

func (d *crashDisk) open(path string, flag int) (file, error) {
	f, err := d.fakeDisk.open(path, flag)
	return crashFile{f, d}, err
}

func (d *crashDisk) mapNew(path string) (mapping, error) {
	m, err := d.fakeDisk.mapNew(path)
	if err != nil {
		return nil, err
	}
	return crashMapping{m, d}, nil
}

func (f crashFile) WriteAt(p []byte, offset int64) (int, error) {
	return f.disk.writeAt(f.file, p, offset)
}

func (m crashMapping) WriteAt(p []byte, offset int64) (int, error) {
	return m.disk.writeAt(m.mapping, p, offset)
}

func (d *crashDisk) writeAt(w io.WriterAt, p []byte, offset int64) (int, error) {
	d.copyFiles()
	if n, err := w.WriteAt(p[:len(p)/2], offset); err != nil {
		return n, err
	}
	d.copyFiles()
	n, err := w.WriteAt(p, offset)
	d.copyFiles()
	return n, err
}

func (d *crashDisk) copyFiles() {
	c := crash{filepath.Join(d.into, strconv.Itoa(len(d.copies))), maps.Clone(d.before), maps.Clone(d.after)}
	if err := os.CopyFS(c.dir, os.DirFS(d.dir)); err != nil {
		d.t.Fatal(err)
	}
	d.copies = append(d.copies, c)
}

// step does something after which a request has another cost, or none because its
// event is settled.
func (d *crashDisk) step(id string, cost money.Nano, unsettled bool, do func()) {
	d.after = maps.Clone(d.before)
	if d.after[id] = cost; !unsettled {
		delete(d.after, id)
	}
	do()
	d.before = d.after
}

// However the process is killed while records are carried over, each request that
// was running is published once, with the cost of its last progress, and each
// unsettled event as it was.
func TestKillDuringCarryOverLosesNothing(t *testing.T) {
	t.Parallel()
	for _, buffer := range []int{0, 1000} {
		t.Run(fmt.Sprint("buffer of ", buffer), func(t *testing.T) {
			t.Parallel()
			playKillsDuringCarryOver(t, buffer)
		})
	}
}

func playKillsDuringCarryOver(t *testing.T, buffer int) {
	t.Helper()
	root := t.TempDir()
	d := &crashDisk{fakeDisk: fakeDisk{buffer: buffer}, t: t, dir: filepath.Join(root, "spool"), into: filepath.Join(root, "copies"), before: map[string]money.Nano{}}
	cfg := Config{Dir: d.dir, MaxEvents: 10_000, MaxBytes: 1 << 30, SegmentBytes: 3000}
	s, err := open(cfg, slog.New(slog.DiscardHandler), d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	if err := s.OpenSession(1, "boot"); err != nil {
		t.Fatal(err)
	}
	units := map[string]*Unit{}
	begin := func(id string) { d.step(id, 0, true, func() { units[id] = start(t, s, 1, id) }) }
	for _, id := range []string{"a", "b", "c"} {
		begin(id)
	}
	for n := int64(1); n <= 60; n++ {
		id := fmt.Sprint("r", n)
		d.step("a", money.Nano(n), true, func() { progress(units["a"], money.Nano(n)) })
		begin(id)
		d.step(id, 1000, true, func() { finish(units[id], 1, id, 1000) })
		if n > 3 {
			d.step(fmt.Sprint("r", n-3), 0, false, func() { settle(s, 1, n-3) })
		}
	}
	if s.segments[0].number < 5 {
		t.Fatalf("the first segment is %d: nothing was carried over", s.segments[0].number)
	}
	for i, c := range d.copies {
		cfg.Dir = c.dir
		got := recoveredCosts(t, cfg)
		if !maps.Equal(got, c.before) && !maps.Equal(got, c.after) {
			t.Fatalf("copy %d of %d: recovered %v; want %v or %v", i, len(d.copies), got, c.before, c.after)
		}
	}
}

// recoveredCosts opens a spool and returns the costs of its events by request.
func recoveredCosts(t *testing.T, cfg Config) map[string]money.Nano {
	t.Helper()
	disk := &fakeDisk{}
	defer disk.close()
	got, numbers := map[string]money.Nano{}, map[int64]bool{}
	for key, e := range publishDue(t, mustOpen(t, cfg, disk), later(0)) {
		if _, twice := got[e.RequestID]; twice || numbers[key[1]] {
			t.Fatalf("%s: request %s or number %d is there twice", cfg.Dir, e.RequestID, key[1])
		}
		got[e.RequestID], numbers[key[1]] = e.Cost, true
	}
	return got
}
