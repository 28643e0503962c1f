package spool

import (
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/internal/session"
	"modelgateway/shared/event"
	"modelgateway/shared/money"
)

// The last record is cut at every byte: what it said has not happened, and all
// before it has.
func TestTornTail(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		last func(running, other *Unit)
		// want are the costs by number when the last record is cut anywhere, whole when it is not.
		want, whole map[int64]money.Nano
	}{
		{
			"finished", func(running, _ *Unit) { finish(running, 1, "b", 70) },
			map[int64]money.Nano{1: 5, 2: 3, 3: 0},
			map[int64]money.Nano{1: 5, 2: 70, 3: 0},
		},
		{
			"progress", func(running, _ *Unit) { progress(running, 9) },
			map[int64]money.Nano{1: 5, 2: 3, 3: 0},
			map[int64]money.Nano{1: 5, 2: 9, 3: 0},
		},
		{
			"settled", func(running, _ *Unit) { settle(running.s, 1, 1) },
			map[int64]money.Nano{1: 5, 2: 3, 3: 0},
			map[int64]money.Nano{2: 3, 3: 0},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, _, cfg := setup(t)
			finish(start(t, s, 1, "a"), 1, "a", 5)
			running, other := start(t, s, 1, "b"), start(t, s, 1, "c")
			progress(running, 3)
			path := segmentFiles(t, cfg.Dir)[0]
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			tt.last(running, other)
			all, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for size := len(before); size <= len(all); size++ {
				want := tt.want
				if size == len(all) {
					want = tt.whole
				}
				cut := cfg
				cut.Dir = t.TempDir()
				if err := os.WriteFile(filepath.Join(cut.Dir, filepath.Base(path)), all[:size], 0o600); err != nil {
					t.Fatal(err)
				}
				reopened := mustOpen(t, cut, &fakeDisk{})
				if diff := cmp.Diff(want, costs(t, reopened, 1, later(0))); diff != "" {
					t.Fatalf("cut at %d of %d bytes (-want +got):\n%s", size, len(all), diff)
				}
			}
		})
	}
}

func TestAbortedEventKeepsItsProgress(t *testing.T) {
	t.Parallel()
	s, d, cfg := setup(t)
	p, err := s.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	e := usage(1, "a")
	e.AccountID, e.Reservation, e.Cost = "acc", 50, 99
	if err := p.AppendStarted(e); err != nil {
		t.Fatal(err)
	}
	progress(p, 7)
	got := published(t, mustOpen(t, cfg, d), later(0))[[2]int64{1, 1}]
	want := event.Usage{
		V: 1, RequestID: "a", Session: 1, Seq: 1, AccountID: "acc", Status: event.Aborted, Rule: event.RuleEstimated, Estimated: true,
		Cost: 7, Reservation: 50, FinishedMS: got.FinishedMS,
	}
	want.Usage.Output = 7
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.FinishedMS < time.Now().Add(-time.Hour).UnixMilli() {
		t.Errorf("finished at %d; want the time of the recovery", got.FinishedMS)
	}
}

func TestFullDiskKeepsEventsAndAdmitsNothing(t *testing.T) {
	t.Parallel()
	s, d, cfg := setup(t)
	first, second, third := start(t, s, 1, "a"), start(t, s, 1, "b"), start(t, s, 1, "c")
	place, err := s.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	d.full = true
	finish(second, 1, "b", 20)
	finish(first, 1, "a", 10)
	if _, err := s.Reserve(); !errors.Is(err, ErrNotWritable) {
		t.Errorf("reserve on a full disk: got %v; want ErrBroken", err)
	}
	if err := place.AppendStarted(usage(1, "d")); err == nil {
		t.Error("started on a full disk")
	}
	place.Release()
	if got := s.UsedCapacity(); got != 3 {
		t.Errorf("%d places used; want 3", got)
	}
	// They are published from memory.
	if diff := cmp.Diff(map[int64]money.Nano{1: 20, 2: 10}, costs(t, s, 1, later(0))); diff != "" {
		t.Errorf("published on a full disk (-want +got):\n%s", diff)
	}
	if err := s.Ready(); !errors.Is(err, ErrNotWritable) {
		t.Errorf("ready on a full disk: %v", err)
	}
	// Nobody writes, and yet the spool finds out that the disk takes writes again.
	d.full = false
	s.NextBatch(1, time.Now())
	if err := s.Ready(); err != nil {
		t.Errorf("not ready on a mended disk: %v", err)
	}
	finish(third, 1, "c", 30)
	want := map[int64]money.Nano{1: 20, 2: 10, 3: 30}
	if diff := cmp.Diff(want, costs(t, mustOpen(t, cfg, d), 1, later(0))); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
}

// What the disk refused is settled before it is written: that leaves no gap in
// the numbers on disk, by which later ones would be mistaken for it.
func TestSettledWhileUnwritten(t *testing.T) {
	t.Parallel()
	s, d, cfg := setup(t)
	finish(start(t, s, 1, "a"), 1, "a", 10)
	second, third := start(t, s, 1, "b"), start(t, s, 1, "c")
	d.full = true
	finish(second, 1, "b", 20)
	settle(s, 1, 0, [2]int64{2, 2})
	d.full = false
	finish(third, 1, "c", 30)
	restarted := mustOpen(t, cfg, d)
	settle(restarted, 1, 0, [2]int64{2, 2})
	if diff := cmp.Diff(map[int64]money.Nano{1: 10, 3: 30}, costs(t, restarted, 1, later(0))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A segment whose started record has no finished record on disk stays, even if
// the event exists in memory.
func TestDeathOnAFullDiskAborts(t *testing.T) {
	t.Parallel()
	s, d, cfg := setup(t)
	s.cfg.SegmentBytes = 1
	running := start(t, s, 1, "a")
	finish(start(t, s, 1, "b"), 1, "b", 1)
	settle(s, 1, 1)
	d.full = true
	finish(running, 1, "a", 10)
	d.full = false
	got := costs(t, mustOpen(t, cfg, d), 1, later(0))
	for number, cost := range got {
		if number <= 2 || cost != 0 { // 2 may have been published with the event that was lost
			t.Errorf("number %d costs %v", number, cost)
		}
	}
	if len(got) != 1 {
		t.Errorf("published %v; want the aborted request", got)
	}
}

// A rotation that fails half way leaves nothing in the way of the next one.
func TestRotationOnAFullDisk(t *testing.T) {
	t.Parallel()
	s, d, cfg := setup(t)
	s.cfg.SegmentBytes = 1
	p := start(t, s, 1, "a")
	d.full = true
	finish(p, 1, "a", 10)
	s.NextBatch(1, time.Now())
	d.full = false
	s.NextBatch(1, time.Now())
	if err := s.Ready(); err != nil {
		t.Fatalf("after the disk was mended: %v", err)
	}
	if diff := cmp.Diff(map[int64]money.Nano{1: 10}, costs(t, mustOpen(t, cfg, d), 1, later(0))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCapacity(t *testing.T) {
	t.Parallel()
	t.Run("events", func(t *testing.T) {
		t.Parallel()
		s, _, _ := setup(t)
		for i := range 90 {
			finish(start(t, s, 1, strconv.Itoa(i)), 1, strconv.Itoa(i), 1)
		}
		if _, err := s.Reserve(); !errors.Is(err, ErrFull) {
			t.Fatalf("at 90 of 100 places: got %v; want ErrFull", err)
		}
		settle(s, 1, 1)
		if err := s.Ready(); err != nil {
			t.Errorf("after one was settled: %v", err)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		t.Parallel()
		s := mustOpen(t, Config{Dir: t.TempDir(), MaxEvents: 1 << 20, MaxBytes: 1 << 16}, &fakeDisk{})
		if err := s.OpenSession(1, "boot"); err != nil {
			t.Fatal(err)
		}
		n := int64(0)
		for ; s.Ready() == nil; n++ {
			finish(start(t, s, 1, strconv.FormatInt(n, 10)), 1, strconv.FormatInt(n, 10), 1)
		}
		if err := s.Ready(); !errors.Is(err, ErrFull) {
			t.Fatalf("got %v; want ErrFull", err)
		}
		settle(s, 1, n)
		if err := s.Ready(); err != nil {
			t.Errorf("everything is settled: %v", err)
		}
	})
}

// The control plane closes a session that was silent for long before it has
// its events: they are kept until they are settled.
func TestClosedSessionKeepsItsEvents(t *testing.T) {
	t.Parallel()
	s, d, cfg := setup(t)
	finish(start(t, s, 1, "a"), 1, "a", 10)
	want := []session.FinishedSession{{Session: 1, BootID: "boot", FinalCount: 1}}
	if diff := cmp.Diff(want, s.FinishedSessions(2)); diff != "" {
		t.Fatalf("ended (-want +got):\n%s", diff)
	}
	s.MarkClosed(1)
	if got := s.FinishedSessions(2); len(got) != 0 {
		t.Errorf("closing is asked for again: %+v", got)
	}
	s = mustOpen(t, cfg, d)
	if diff := cmp.Diff(map[int64]money.Nano{1: 10}, costs(t, s, 1, later(0))); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	s.FinishedSessions(2)
	s.MarkClosed(1)
	settle(s, 1, 1)
	if got := mustOpen(t, cfg, d).FinishedSessions(2); len(got) != 0 {
		t.Errorf("a closed and settled session is remembered: %+v", got)
	}
}

// Between the listing of a session as ended and its closing nothing can be
// started in it: its count was told.
func TestNothingStartsInAnEndedSession(t *testing.T) {
	t.Parallel()
	s, _, _ := setup(t)
	p, err := s.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	s.FinishedSessions(0)
	if err := p.AppendStarted(usage(1, "a")); err == nil {
		t.Error("started")
	}
	p.Release()
	s.MarkClosed(1)
	if got := s.UsedCapacity(); got != 0 {
		t.Errorf("%d places used; want 0", got)
	}
}

func TestRunningSessionIsNotEnded(t *testing.T) {
	t.Parallel()
	s, d, cfg := setup(t)
	p := start(t, s, 1, "a")
	if got := s.FinishedSessions(2); len(got) != 0 {
		t.Errorf("ended while a request runs: %+v", got)
	}
	s.MarkClosed(1) // by mistake
	finish(p, 1, "a", 10)
	for range 2 {
		want := []session.FinishedSession{{Session: 1, BootID: "boot", FinalCount: 1}}
		if diff := cmp.Diff(want, s.FinishedSessions(2)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		s = mustOpen(t, cfg, d)
	}
}

// While nothing settles, an event is published ever more rarely.
func TestResendPauses(t *testing.T) {
	t.Parallel()
	s, _, _ := setup(t)
	finish(start(t, s, 1, "a"), 1, "a", 10)
	now := s.openedAt
	var got []time.Duration
	for last := now; len(got) < 10; now = now.Add(500 * time.Millisecond) {
		if b := s.NextBatch(10, now); b != nil {
			got = append(got, now.Sub(last))
			last = now
		}
	}
	var want []time.Duration
	for _, ms := range []int{0, 2500, 5000, 10000, 20000, 40000, 80000, 160000, 320000, 320000} {
		want = append(want, time.Duration(ms)*time.Millisecond)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pauses between publishings (-want +got):\n%s", diff)
	}
	s.Republish()
	if s.NextBatch(10, now) == nil || s.NextBatch(10, now.Add(2500*time.Millisecond)) == nil {
		t.Error("a new stream does not get everything anew")
	}
	settle(s, 1, 1)
	if b := s.NextBatch(10, later(1)); b != nil {
		t.Errorf("a settled event is published: %s", b.Events)
	}
}

func TestFailedBatchIsDueAtOnce(t *testing.T) {
	t.Parallel()
	s, _, _ := setup(t)
	finish(start(t, s, 1, "a"), 1, "a", 10)
	now := s.openedAt
	for range 20 {
		b := s.NextBatch(10, now)
		if b == nil || len(b.Events) != 1 {
			t.Fatalf("got %+v; want the one event", b)
		}
		s.Requeue(b)
	}
	// Failures do not count: the first pause is the shortest.
	s.NextBatch(10, now)
	if s.NextBatch(10, now.Add(2500*time.Millisecond-1)) != nil {
		t.Error("published again too soon")
	}
	if s.NextBatch(10, now.Add(2500*time.Millisecond)) == nil {
		t.Error("not published again in time")
	}
}

func TestBatchesAreBounded(t *testing.T) {
	t.Parallel()
	s, _, _ := setup(t)
	if err := s.OpenSession(2, "boot"); err != nil {
		t.Fatal(err)
	}
	big := string(make([]byte, maxBatchBytes/12)) // six times as long in JSON
	for i := range 9 {
		session := int64(1 + i%2)
		p := start(t, s, session, strconv.Itoa(i))
		e := usage(session, strconv.Itoa(i))
		e.ProviderRequestID = big
		p.AppendFinished(e)
	}
	var sizes []int
	numbers := map[int64][]int64{}
	for b := s.NextBatch(100, time.Now()); b != nil; b = s.NextBatch(100, time.Now()) {
		sizes = append(sizes, len(b.Events))
		for _, raw := range b.Events {
			e := decode(t, raw)
			numbers[b.Session] = append(numbers[b.Session], e.Seq)
		}
	}
	if slices.Max(sizes) > 2 {
		t.Errorf("batches of %v events; want at most 2 of half the bound each", sizes)
	}
	want := map[int64][]int64{1: {1, 2, 3, 4, 5}, 2: {1, 2, 3, 4}}
	if diff := cmp.Diff(want, numbers); diff != "" {
		t.Errorf("published, by session and in order (-want +got):\n%s", diff)
	}
}

func TestOldest(t *testing.T) {
	t.Parallel()
	s, d, cfg := setup(t)
	if got := s.OldestUnsettled(); !got.IsZero() {
		t.Errorf("of an empty spool: %v", got)
	}
	for i := range int64(3) {
		p := start(t, s, 1, strconv.FormatInt(i, 10))
		e := usage(1, strconv.FormatInt(i, 10))
		e.FinishedMS = 1000 * (i + 1)
		p.AppendFinished(e)
	}
	settle(s, 1, 1)
	for range 2 {
		published(t, s, later(0)) // publishing does not make it younger
		if got, want := s.OldestUnsettled(), time.UnixMilli(2000); !got.Equal(want) {
			t.Errorf("got %v; want %v", got, want)
		}
		s = mustOpen(t, cfg, d)
	}
}

// A file that lost what lies before others does not shift their numbers.
func TestDamagedSegment(t *testing.T) {
	t.Parallel()
	s, d, cfg := setup(t)
	s.cfg.SegmentBytes = 1
	for i := range 4 {
		finish(start(t, s, 1, strconv.Itoa(i)), 1, strconv.Itoa(i), money.Nano(i+1))
	}
	for _, path := range segmentFiles(t, cfg.Dir) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := finishedIn(t, data); ok && e.Seq == 2 {
			data[len(data)-1] ^= 1
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	s = mustOpen(t, cfg, d)
	settle(s, 1, 1)
	// What was lost is aborted, with a number of its own.
	want := map[int64]money.Nano{3: 3, 4: 4, 5: 0}
	if diff := cmp.Diff(want, costs(t, s, 1, later(0))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestForeignFilesAreLeftAlone(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: t.TempDir(), MaxEvents: 100, MaxBytes: 1 << 20}
	for _, name := range []string{"notes.txt", "x.spool"} {
		if err := os.WriteFile(filepath.Join(cfg.Dir, name), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mustOpen(t, cfg, &fakeDisk{})
	entries, err := os.ReadDir(cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name()] = true
	}
	want := []string{"000000000001.spool", "notes.txt", skipFilePrefix + "0", "x.spool"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(names))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A video job's charge that was begun and not written is not a finished
// request: the job is still open, and is billed whole by who sees its end.
func TestUnwrittenVideoChargeLeavesNothing(t *testing.T) {
	t.Parallel()
	s, d, cfg := setup(t)
	p, err := s.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	e := event.Usage{V: event.Version, RequestID: "req_video", Session: 1, VideoJob: "video_1", Cost: 5}
	if err := p.AppendStarted(&e); err != nil {
		t.Fatal(err)
	}
	again := mustOpen(t, cfg, d)
	if batch := again.NextBatch(10, time.Now()); batch != nil {
		t.Errorf("%d events of a charge that was never made", len(batch.Events))
	}
	if ended := again.FinishedSessions(0); len(ended) != 1 || ended[0].FinalCount != 0 {
		t.Errorf("sessions %+v; want one without events", ended)
	}
}

// A directory belongs to one process at a time: a second one would bill what
// the first one runs as aborted.
func TestOneProcessPerDirectory(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: filepath.Join(t.TempDir(), "spool"), MaxEvents: 100, MaxBytes: 1 << 30}
	first, err := Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := first.OpenSession(1, "boot"); err != nil {
		t.Fatal(err)
	}
	start(t, first, 1, "running")
	if second, err := Open(cfg, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrLocked) {
		t.Errorf("opened twice: got %v, %v; want %v", second, err, ErrLocked)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	next, err := Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if got := published(t, next, time.Now()); len(got) != 1 {
		t.Errorf("published: %v; want the request that was running", got)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}
