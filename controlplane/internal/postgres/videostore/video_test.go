package videostore_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/postgres/videostore"
	"modelgateway/controlplane/internal/videojob"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/limit"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

// asStored compares records: Postgres changes the order of members.
var asStored = cmpopts.AcyclicTransformer("JSON", func(raw json.RawMessage) any {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}
	return v
})

// newJob returns a record as a proxy creates it.
func newJob(c *storetest.Customer) *event.Video {
	return &event.Video{
		V: event.Version, ID: ident.Video.New(), RequestID: ident.Request.New(), AccountID: c.AccountID(), KeyID: c.KeyID(), Model: "film",
		Provider: "prv_1", Route: "rte_1", Credential: "crd_1", UpstreamModel: "up-film", Status: event.VideoQueued, Size: "720x1280", Seconds: 4,
		CreatedUnix: time.Now().Unix(), PriceVersion: 3, Sheet: &price.Sheet{Version: 3, Seconds: []price.UnitPrice{{Price: 10}}}, Rev: 1,
	}
}

// changed returns a changed copy.
func changed(v *event.Video, change func(v *event.Video)) *event.Video {
	next := *v
	change(&next)
	return &next
}

func TestVideoRecords(t *testing.T) {
	t.Parallel()
	w := storetest.New(t)
	store := videostore.New(postgres.Wrap(w.SQL))
	c, other := w.Customer(0, storetest.Unlimited, 1), w.Customer(0, storetest.Unlimited, 1)
	ctx := t.Context()
	job := newJob(c)
	insert(t, store, job)
	got, err := store.Get(ctx, job.ID, "")
	storetest.Check(t, err)
	if diff := cmp.Diff(job, got); diff != "" {
		t.Errorf("after insert (-want +got):\n%s", diff)
	}

	// Another account does not find the job.
	for _, tt := range []struct {
		id, account string
		want        error
	}{
		{job.ID, c.AccountID(), nil},
		{job.ID, other.AccountID(), videojob.ErrNotFound},
		{job.ID, "no account", videojob.ErrNotFound},
		{ident.Video.New(), "", videojob.ErrNotFound},
		{"no id", "", videojob.ErrNotFound},
	} {
		if _, err := store.Get(ctx, tt.id, tt.account); !errors.Is(err, tt.want) {
			t.Errorf("get %s of %s: got %v; want %v", tt.id, tt.account, err, tt.want)
		}
	}

	// An update refers to the version that it changes.
	running := changed(job, func(v *event.Video) {
		v.Status, v.UpstreamID, v.Object = event.VideoInProgress, "up_1", json.RawMessage(`{"status": "in_progress", "id": "<video>"}`)
	})
	updated, err := store.Update(ctx, running)
	storetest.Check(t, err)
	running.Rev = 2
	if diff := cmp.Diff(running, updated); diff != "" {
		t.Errorf("updated (-want +got):\n%s", diff)
	}
	if got, err = store.Get(ctx, job.ID, c.AccountID()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(running, got, asStored); diff != "" {
		t.Errorf("after update (-want +got):\n%s", diff)
	}
	if _, err := store.Update(ctx, changed(running, func(v *event.Video) { v.Rev = 1 })); !errors.Is(err, videojob.ErrConflict) {
		t.Errorf("update of an older state: got %v", err)
	}

	// The same record inserted again changes nothing.
	insert(t, store, job)
	if got, err = store.Get(ctx, job.ID, ""); err != nil || got.Rev != 2 || got.UpstreamID != "up_1" {
		t.Errorf("inserted twice: got %+v, %v", got, err)
	}

	// A job that has ended does not change.
	ended, err := store.Update(ctx, changed(running, func(v *event.Video) { v.Status = event.VideoCompleted }))
	storetest.Check(t, err)
	for _, status := range []string{event.VideoQueued, event.VideoFailed, event.VideoCompleted} {
		if _, err := store.Update(ctx, changed(ended, func(v *event.Video) { v.Status = status })); !errors.Is(err, videojob.ErrConflict) {
			t.Errorf("from completed to %s: got %v", status, err)
		}
	}
}

// alone is a queue and a backup store that do nothing.
type alone struct{}

func (alone) EnqueuePolls(context.Context, ...event.VideoPoll) error { return nil }

func (alone) BackUpVideo(context.Context, *event.Video) error { return nil }

func (alone) NewestVideo(context.Context, string) (*event.Video, error) { return nil, nil }

// insert stores a record and fails the test if it is refused.
func insert(t *testing.T, store *videostore.Store, v *event.Video) {
	t.Helper()
	if refusal, err := store.Insert(t.Context(), v); err != nil || refusal != nil {
		t.Fatalf("got refusal %+v, %v; want a record", refusal, err)
	}
}

// A provider's object with any text is recorded, since it can repeat the client's
// prompt.
func TestVideoObjectWithAnyTextIsRecorded(t *testing.T) {
	t.Parallel()
	w := storetest.New(t)
	s := videojob.New(videostore.New(postgres.Wrap(w.SQL)), alone{}, alone{}, slog.New(slog.DiscardHandler))
	job := newJob(w.Customer(0, storetest.Unlimited, 1))
	_, err := s.Create(t.Context(), job)
	storetest.Check(t, err)
	for given, want := range map[string]string{
		`{"prompt":"a\u0000b","n":12345678901234567890}`: `{"prompt":"ab","n":12345678901234567890}`,
		`{"a\u0000":["\ud800x",{"b":"\u0000"}]}`:         `{"a":["\ufffdx",{"b":""}]}`,
		`{"prompt":"\\u0000","quote":"\u0022"}`:          `{"prompt":"\\u0000","quote":"\""}`,
	} {
		job = changed(job, func(v *event.Video) { v.Object = json.RawMessage(given) })
		if _, err := s.Update(t.Context(), job); err != nil {
			t.Fatalf("%s: %v", given, err)
		}
		reply, err := s.Get(t.Context(), &event.VideoGetRequest{ID: job.ID})
		storetest.Check(t, err)
		if diff := cmp.Diff(json.RawMessage(want), reply.Video.Object, asStored); diff != "" {
			t.Errorf("%s (-want +got):\n%s", given, diff)
		}
		job = reply.Video
	}
}

// A request creates one job, and only for an account and key that exist.
func TestInvalidVideoRecordsAreRefused(t *testing.T) {
	t.Parallel()
	w := storetest.New(t)
	store := videostore.New(postgres.Wrap(w.SQL))
	c := w.Customer(0, storetest.Unlimited, 1)
	job := newJob(c)
	insert(t, store, job)
	for name, change := range map[string]func(v *event.Video){
		"the request of another job": func(v *event.Video) { v.ID = ident.Video.New() },
		"an unknown account":         func(v *event.Video) { *v = *newJob(c); v.AccountID = ident.Account.New() },
		"an unknown key":             func(v *event.Video) { *v = *newJob(c); v.KeyID = ident.Key.New() },
		"an unknown status":          func(v *event.Video) { *v = *newJob(c); v.Status = "lost" },
		"an id that is none":         func(v *event.Video) { *v = *newJob(c); v.ID = "video_1" },
	} {
		if _, err := store.Insert(t.Context(), changed(job, change)); err == nil {
			t.Errorf("%s: was inserted", name)
		}
	}
	if n := storetest.Scalar[int](w, "select count(*) from video_jobs"); n != 1 {
		t.Errorf("got %d records", n)
	}
}

// Of concurrent updates that end a job, one is written.
func TestConcurrentFinalUpdates(t *testing.T) {
	t.Parallel()
	w := storetest.New(t)
	c := w.Customer(0, storetest.Unlimited, 1)
	job := newJob(c)
	insert(t, videostore.New(postgres.Wrap(w.SQL)), job)
	const racers = 6
	results := make(chan error, racers)
	var all sync.WaitGroup
	for i := range racers {
		store := videostore.New(w.Replica())
		status := []string{event.VideoCompleted, event.VideoFailed}[i%2]
		all.Go(func() {
			_, err := store.Update(t.Context(), changed(job, func(v *event.Video) { v.Status = status }))
			results <- err
		})
	}
	all.Wait()
	close(results)
	written := 0
	for err := range results {
		switch {
		case err == nil:
			written++
		case !errors.Is(err, videojob.ErrConflict):
			t.Error(err)
		}
	}
	if written != 1 {
		t.Errorf("%d of %d wrote", written, racers)
	}
}

// Open lists the open jobs without a recent update, the oldest first, and failed ones that a provider may charge for and nobody has
// reported.
func TestOpenVideoJobs(t *testing.T) {
	t.Parallel()
	w := storetest.New(t)
	store := videostore.New(postgres.Wrap(w.SQL))
	c := w.Customer(0, storetest.Unlimited, 1)
	ids := map[string]string{}
	fail := func(job *event.Video, upstream, problem string) {
		_, err := store.Update(t.Context(), changed(job, func(v *event.Video) {
			v.Status, v.UpstreamID, v.Error = event.VideoFailed, upstream, problem
		}))
		storetest.Check(t, err)
	}
	record := func(job *event.Video) {
		id, err := ident.Request.Parse(job.RequestID)
		storetest.Check(t, err)
		w.Exec(`insert into usage_records (request_id, session_id, seq, account_id, key_id, model, format, status, started_at, finished_at, usage, rule,
			price_version, cost, reservation) values ($1, 1, 1, $2, $3, 'm', 'videos', 'failed', now(), current_timestamp, '{}', 'none', 1, 0, 0)`, id, c.Account, c.Key)
	}
	for name, idle := range map[string]int{
		"fresh": 1, "left": 60, "left for long": 600, "ended": 600, "failed": 300, "given up": 200, "just failed": 1, "failed and reported": 600, "failed and in quarantine": 600,
	} {
		job := newJob(c)
		insert(t, store, job)
		switch name {
		case "ended":
			fail(job, "", "")
		case "failed", "just failed":
			fail(job, "up-1", "")
		case "given up":
			fail(job, "", "the answer was lost")
		case "failed and reported":
			fail(job, "up-2", "")
			record(job)
		case "failed and in quarantine":
			fail(job, "up-3", "")
			w.Exec("insert into quarantine (request_id, reason, payload) values ($1, 'a test', '')", job.RequestID)
		}
		id, err := ident.Video.Parse(job.ID)
		storetest.Check(t, err)
		w.Exec("update video_jobs set updated_at = clock_timestamp() - make_interval(secs => $2) where id = $1", id, idle)
		ids[job.ID] = name
	}
	for limit, want := range map[int][]string{10: {"left for long", "failed", "given up", "left"}, 1: {"left for long"}} {
		open, err := store.Open(t.Context(), 30*time.Second, videojob.Place{}, limit)
		storetest.Check(t, err)
		var got []string
		for _, job := range open {
			got = append(got, ids[job.Poll.ID])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("at most %d (-want +got):\n%s", limit, diff)
		}
	}
	// Page by page they are the same.
	all, err := store.Open(t.Context(), 30*time.Second, videojob.Place{}, 10)
	storetest.Check(t, err)
	var paged []videojob.Idle
	for after := (videojob.Place{}); ; after = paged[len(paged)-1].Place {
		page, err := store.Open(t.Context(), 30*time.Second, after, 1)
		storetest.Check(t, err)
		if len(page) == 0 {
			break
		}
		paged = append(paged, page...)
	}
	if diff := cmp.Diff(all, paged); diff != "" {
		t.Errorf("page by page (-want +got):\n%s", diff)
	}
	// A job that was updated is not listed.
	for id, name := range ids {
		if name != "left" {
			continue
		}
		job, err := store.Get(t.Context(), id, "")
		storetest.Check(t, err)
		_, err = store.Update(t.Context(), job)
		storetest.Check(t, err)
	}
	if open, err := store.Open(t.Context(), 30*time.Second, videojob.Place{}, 10); err != nil || len(open) != 3 {
		t.Errorf("got %v, %v; want all but the updated one", open, err)
	}
}

// A further job is refused when the unbilled jobs are expected to cost all that is left. Otherwise it is accepted,
// whatever it is expected to cost.
func TestFurtherVideoJobIsRefusedWhenUnbilledJobsCostAllThatIsLeft(t *testing.T) {
	t.Parallel()
	w := storetest.New(t)
	store := videostore.New(postgres.Wrap(w.SQL))
	costing := func(c *storetest.Customer, cost money.Nano) *event.Video {
		return changed(newJob(c), func(v *event.Video) { v.ExpectedCost = cost })
	}
	for _, tt := range []struct {
		name           string
		balance, limit int64
		maxOpen        any
		open           []money.Nano
		want           *event.VideoRefusal
	}{
		{"no open job, and almost nothing is left", 1, 1, nil, nil, nil},
		{"no open job, and nothing is left", 0, storetest.Unlimited, nil, nil, &event.VideoRefusal{Reason: event.VideoBalance}},
		{"no open job, and the key limit is spent", 10, 0, nil, nil, &event.VideoRefusal{Reason: event.VideoKeyLimit, Scope: limit.Key}},
		{"open jobs cost less than the balance", 100, storetest.Unlimited, nil, []money.Nano{60, 39}, nil},
		{"open jobs cost the balance", 100, storetest.Unlimited, nil, []money.Nano{60, 40}, &event.VideoRefusal{Reason: event.VideoBalance, Left: 100, Expected: 100}},
		{"one open job costs more than the balance", 1, storetest.Unlimited, nil, []money.Nano{6}, &event.VideoRefusal{Reason: event.VideoBalance, Left: 1, Expected: 6}},
		{"open jobs cost the key limit", 1000, 10, nil, []money.Nano{10}, &event.VideoRefusal{Reason: event.VideoKeyLimit, Scope: limit.Key, Left: 10, Expected: 10}},
		{"open jobs cost key limit and balance", 10, 10, nil, []money.Nano{10}, &event.VideoRefusal{Reason: event.VideoKeyLimit, Scope: limit.Key, Left: 10, Expected: 10}},
		{"open jobs are free", 10, 10, nil, []money.Nano{0, 0}, nil},
		{"as many open jobs as the account may have", 10, 10, 2, []money.Nano{0, 10}, &event.VideoRefusal{Reason: event.VideoTooMany, MaxOpen: 2}},
		{"fewer open jobs than the account may have", 10, 10, 3, []money.Nano{0, 0}, nil},
		{"sum of costs beyond the range of amounts", math.MaxInt64, storetest.Unlimited, nil, []money.Nano{math.MaxInt64 - 1, math.MaxInt64 - 1}, &event.VideoRefusal{Reason: event.VideoBalance, Left: math.MaxInt64, Expected: math.MaxInt64}},
	} {
		c := w.Customer(tt.balance, tt.limit, 1)
		w.Exec("update accounts set max_open_video_jobs = $2 where id = $1", c.Account, tt.maxOpen)
		for _, cost := range tt.open {
			insert(t, store, costing(c, cost))
		}
		got, err := store.Insert(t.Context(), costing(c, 1000))
		storetest.Check(t, err)
		if tt.want != nil && tt.want.Reason == event.VideoKeyLimit {
			tt.want.LimitID = c.KeyID()
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if open := storetest.Scalar[int](w, "select count(*) from video_jobs where account_id = $1", c.Account); (open > len(tt.open)) != (tt.want == nil) {
			t.Errorf("%s: %d jobs are recorded", tt.name, open)
		}
	}
}

// A completed job counts until its usage record exists, a failed one does not count.
func TestEndedVideoJobCountsUntilItIsBilled(t *testing.T) {
	t.Parallel()
	w := storetest.New(t)
	store := videostore.New(postgres.Wrap(w.SQL))
	c := w.Customer(10, storetest.Unlimited, 1)
	dear := func() *event.Video { return changed(newJob(c), func(v *event.Video) { v.ExpectedCost = 10 }) }
	refused := func() bool {
		t.Helper()
		refusal, err := store.Insert(t.Context(), dear())
		storetest.Check(t, err)
		return refusal != nil
	}
	failed := dear()
	insert(t, store, failed)
	if _, err := store.Update(t.Context(), changed(failed, func(v *event.Video) { v.Status = event.VideoFailed })); err != nil {
		t.Fatal(err)
	}
	completed := dear()
	insert(t, store, completed)
	if !refused() {
		t.Error("a job was accepted beside an open one that costs the balance")
	}
	if _, err := store.Update(t.Context(), changed(completed, func(v *event.Video) { v.Status = event.VideoCompleted })); err != nil {
		t.Fatal(err)
	}
	if !refused() {
		t.Error("a job was accepted beside a completed one that is not billed")
	}
	w.Exec("update video_jobs set ended_at = ended_at - interval '1 hour' where status = 'completed'")
	if refused() {
		t.Error("a job that completed long ago, and whose usage record is lost, counts for ever")
	}
}

// Of creations at once, each sees the jobs before it.
func TestConcurrentVideoCreationsAreBounded(t *testing.T) {
	t.Parallel()
	w := storetest.New(t)
	c := w.Customer(1, storetest.Unlimited, 1)
	var created atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		store := videostore.New(w.Replica())
		for range 12 {
			all.Go(func() {
				refusal, err := store.Insert(t.Context(), changed(newJob(c), func(v *event.Video) { v.ExpectedCost = 6 }))
				if err != nil {
					t.Error(err)
				}
				if refusal == nil {
					created.Add(1)
				}
			})
		}
	}
	all.Wait()
	if got := created.Load(); got != 1 {
		t.Errorf("%d jobs were created with one nano-unit; want 1", got)
	}
}
