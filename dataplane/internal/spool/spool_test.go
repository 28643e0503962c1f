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

	"modelgateway/shared/event"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// A last record that is cut at any byte has no effect. The records before it are
// recovered.
func TestTornLastRecordHasNoEffect(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		last func(running *Unit)
		// torn are the costs by sequence number if the last record is torn, whole those if it is complete.
		torn, whole map[int64]money.Nano
	}{
		{
			"finished", func(running *Unit) { finish(running, 1, "b", 70) },
			map[int64]money.Nano{1: 5, 2: 3, 3: 0},
			map[int64]money.Nano{1: 5, 2: 70, 3: 0},
		},
		{
			"progress", func(running *Unit) { progress(running, 9) },
			map[int64]money.Nano{1: 5, 2: 3, 3: 0},
			map[int64]money.Nano{1: 5, 2: 9, 3: 0},
		},
		{
			"settled", func(running *Unit) { settle(running.s, 1, 1) },
			map[int64]money.Nano{1: 5, 2: 3, 3: 0},
			map[int64]money.Nano{2: 3, 3: 0},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, _, cfg := setup(t)
			finish(start(t, s, 1, "a"), 1, "a", 5)
			running := start(t, s, 1, "b")
			start(t, s, 1, "c")
			progress(running, 3)
			path := segmentFiles(t, cfg.Dir)[0]
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			tt.last(running)
			all, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for size := len(before); size <= len(all); size++ {
				want := tt.torn
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

func TestAbortedEventHasLastProgress(t *testing.T) {
	t.Parallel()
	s, d, cfg := setup(t)
	u, err := s.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	e := usage(1, "a")
	e.AccountID, e.Reservation, e.Cost = "acc", 50, 99
	if err := u.AppendStarted(e); err != nil {
		t.Fatal(err)
	}
	progress(u, 7)
	got := publishDue(t, mustOpen(t, cfg, d), later(0))[[2]int64{1, 1}]
	want := event.Usage{
		V: 1, RequestID: "a", Session: 1, Seq: 1, AccountID: "acc", Status: event.Aborted, Rule: event.RuleEstimated, Estimated: true, Doubt: "interrupted",
		Cost: 7, Reservation: 50, FinishedMS: got.FinishedMS,
	}
	want.Usage.Output = 7
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("aborted event (-want +got):\n%s", diff)
	}
	if got.FinishedMS < time.Now().Add(-time.Hour).UnixMilli() {
		t.Errorf("finished at %d; want the time of the recovery", got.FinishedMS)
	}
}

func TestStartedRequestsAreCountedBySession(t *testing.T) {
	t.Parallel()
	s, _, _ := setup(t)
	finish(start(t, s, 1, "a"), 1, "a", 1)
	start(t, s, 1, "b")
	settle(s, 1, 1)
	if got := s.StartedRequests(1); got != 2 {
		t.Errorf("got %d; want 2", got)
	}
	if got := s.StartedRequests(9); got != 0 {
		t.Errorf("unknown session: got %d; want 0", got)
	}
}

func TestCapacityIsBounded(t *testing.T) {
	t.Parallel()
	t.Run("events", func(t *testing.T) {
		t.Parallel()
		s, _, _ := setup(t)
		for i := range 90 {
			finish(start(t, s, 1, strconv.Itoa(i)), 1, strconv.Itoa(i), 1)
		}
		if _, err := s.Reserve(); !errors.Is(err, ErrFull) {
			t.Fatalf("Reserve with 90 of 100 units in use: got %v; want %v", err, ErrFull)
		}
		settle(s, 1, 1)
		if err := s.Ready(); err != nil {
			t.Errorf("Ready after one event was settled: %v", err)
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
			t.Fatalf("Ready with nearly MaxBytes in use: got %v; want %v", err, ErrFull)
		}
		settle(s, 1, n)
		if err := s.Ready(); err != nil {
			t.Errorf("Ready after every event was settled: %v", err)
		}
	})
}

// The control plane may close a silent session before its events are settled.
// They are kept until they are settled.
func TestClosedSessionKeepsItsEvents(t *testing.T) {
	t.Parallel()
	s, d, cfg := setup(t)
	finish(start(t, s, 1, "a"), 1, "a", 10)
	want := []wire.CloseRequest{{V: wire.Version, Session: 1, BootID: "boot", FinalCount: 1}}
	if diff := cmp.Diff(want, s.FinishedSessions(2)); diff != "" {
		t.Fatalf("finished sessions (-want +got):\n%s", diff)
	}
	s.MarkClosed(1)
	if got := s.FinishedSessions(2); len(got) != 0 {
		t.Errorf("finished sessions after MarkClosed: got %+v; want none", got)
	}
	s = mustOpen(t, cfg, d)
	if diff := cmp.Diff(map[int64]money.Nano{1: 10}, costs(t, s, 1, later(0))); diff != "" {
		t.Fatalf("costs by sequence number (-want +got):\n%s", diff)
	}
	s.FinishedSessions(2)
	s.MarkClosed(1)
	settle(s, 1, 1)
	if got := mustOpen(t, cfg, d).FinishedSessions(2); len(got) != 0 {
		t.Errorf("finished sessions after all was closed and settled: got %+v; want none", got)
	}
}

// The event count of a session that was listed as finished is final, so no
// request may start in it.
func TestNoRequestStartsInFinishedSession(t *testing.T) {
	t.Parallel()
	s, _, _ := setup(t)
	u, err := s.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	s.FinishedSessions(0)
	if err := u.AppendStarted(usage(1, "a")); err == nil {
		t.Error("AppendStarted succeeded in a finished session")
	}
	u.Release()
	s.MarkClosed(1)
	if got := s.UsedCapacity(); got != 0 {
		t.Errorf("%d units of capacity are in use; want 0", got)
	}
}

func TestSessionWithRunningRequestHasNoFinalCount(t *testing.T) {
	t.Parallel()
	s, d, cfg := setup(t)
	u := start(t, s, 1, "a")
	if got := s.FinishedSessions(2); len(got) != 1 || got[0].FinalCount != wire.NotFinal {
		t.Errorf("finished sessions while a request runs: got %+v; want one that is not final", got)
	}
	s.MarkClosed(1) // has no effect
	finish(u, 1, "a", 10)
	for range 2 {
		want := []wire.CloseRequest{{V: wire.Version, Session: 1, BootID: "boot", FinalCount: 1}}
		if diff := cmp.Diff(want, s.FinishedSessions(2)); diff != "" {
			t.Errorf("finished sessions (-want +got):\n%s", diff)
		}
		s = mustOpen(t, cfg, d)
	}
}

// The time between two publications of an unsettled event doubles up to a limit.
func TestUnsettledEventIsPublishedLessOften(t *testing.T) {
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
		t.Errorf("times between publications (-want +got):\n%s", diff)
	}
	s.Republish()
	if s.NextBatch(10, now) == nil || s.NextBatch(10, now.Add(2500*time.Millisecond)) == nil {
		t.Error("after Republish, the event is not published at once and again after the shortest time")
	}
	settle(s, 1, 1)
	if b := s.NextBatch(10, later(1)); b != nil {
		t.Errorf("settled events are published: %s", b.Events)
	}
}

func TestRequeuedBatchIsDueAtOnce(t *testing.T) {
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
	// Failed publications do not count: the next one is due after the shortest time.
	s.NextBatch(10, now)
	if s.NextBatch(10, now.Add(2500*time.Millisecond-1)) != nil {
		t.Error("the event is published again too early")
	}
	if s.NextBatch(10, now.Add(2500*time.Millisecond)) == nil {
		t.Error("the event is not published again in time")
	}
}

func TestBatchBytesAreBounded(t *testing.T) {
	t.Parallel()
	s, _, _ := setup(t)
	if err := s.OpenSession(2, "boot"); err != nil {
		t.Fatal(err)
	}
	big := string(make([]byte, maxBatchBytes/12)) // six times as long in JSON
	for i := range 9 {
		session := int64(1 + i%2)
		u := start(t, s, session, strconv.Itoa(i))
		e := usage(session, strconv.Itoa(i))
		e.ProviderRequestID = big
		u.AppendFinished(e)
	}
	var sizes []int
	numbers := map[int64][]int64{}
	now := time.Now() // what was published is due again after a while
	for b := s.NextBatch(100, now); b != nil; b = s.NextBatch(100, now) {
		sizes = append(sizes, len(b.Events))
		for _, raw := range b.Events {
			e := decode(t, raw)
			numbers[b.Session] = append(numbers[b.Session], e.Seq)
		}
	}
	if slices.Max(sizes) > 2 {
		t.Errorf("batches have %v events; want at most 2, each of half the bound", sizes)
	}
	want := map[int64][]int64{1: {1, 2, 3, 4, 5}, 2: {1, 2, 3, 4}}
	if diff := cmp.Diff(want, numbers); diff != "" {
		t.Errorf("sequence numbers by session, in order of publication (-want +got):\n%s", diff)
	}
}

func TestOldestUnsettledIgnoresPublicationAndRestart(t *testing.T) {
	t.Parallel()
	s, d, cfg := setup(t)
	if got := s.OldestUnsettled(); !got.IsZero() || s.UnsettledAge() != 0 {
		t.Errorf("in an empty spool: got %v; want the zero time", got)
	}
	for i := range int64(3) {
		u := start(t, s, 1, strconv.FormatInt(i, 10))
		e := usage(1, strconv.FormatInt(i, 10))
		e.FinishedMS = 1000 * (i + 1)
		u.AppendFinished(e)
	}
	settle(s, 1, 1)
	for range 2 {
		publishDue(t, s, later(0))
		if age := s.UnsettledAge(); age < time.Hour { // since 1970
			t.Errorf("the oldest unsettled event is %v old; want decades", age)
		}
		if got, want := s.OldestUnsettled(), time.UnixMilli(2000); !got.Equal(want) {
			t.Errorf("got %v; want %v", got, want)
		}
		s = mustOpen(t, cfg, d)
	}
}

// A lost finished record does not change the sequence numbers of later events.
func TestDamagedSegmentKeepsLaterSequenceNumbers(t *testing.T) {
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
		if e, ok := lastFinished(t, data); ok && e.Seq == 2 {
			data[len(data)-1] ^= 1
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	s = mustOpen(t, cfg, d)
	settle(s, 1, 1)
	// The request of the lost record is aborted, with a new sequence number.
	want := map[int64]money.Nano{3: 3, 4: 4, 5: 0}
	if diff := cmp.Diff(want, costs(t, s, 1, later(0))); diff != "" {
		t.Errorf("costs by sequence number (-want +got):\n%s", diff)
	}
}

func TestForeignFilesAreKept(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: t.TempDir(), MaxEvents: 100, MaxBytes: 1 << 20}
	for _, name := range []string{"notes.txt", "x.spool"} {
		if err := os.WriteFile(filepath.Join(cfg.Dir, name), []byte("foreign"), 0o600); err != nil {
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
		t.Errorf("files in the directory (-want +got):\n%s", diff)
	}
}

// A process dies between the started and the finished record of a video job's
// charge. No event is made: the job is still open, and is charged when a proxy sees
// its end.
func TestStartedVideoChargeMakesNoEvent(t *testing.T) {
	t.Parallel()
	s, d, cfg := setup(t)
	u, err := s.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	e := event.Usage{V: event.Version, RequestID: "req_video", Session: 1, VideoJob: "video_1", Cost: 5}
	if err := u.AppendStarted(&e); err != nil {
		t.Fatal(err)
	}
	again := mustOpen(t, cfg, d)
	if batch := again.NextBatch(10, time.Now()); batch != nil {
		t.Errorf("%d events are published; want none", len(batch.Events))
	}
	if finished := again.FinishedSessions(0); len(finished) != 1 || finished[0].FinalCount != 0 {
		t.Errorf("finished sessions: got %+v; want one without events", finished)
	}
}

// A second process in the same directory would charge the running requests of the
// first one as aborted.
func TestDirectoryIsLocked(t *testing.T) {
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
		t.Errorf("second Open: got %v, %v; want %v", second, err, ErrLocked)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	next, err := Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if got := publishDue(t, next, time.Now()); len(got) != 1 {
		t.Errorf("published %v; want the request that was running", got)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}
