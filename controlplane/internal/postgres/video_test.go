package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/videostore"
	"modelgateway/controlplane/internal/videojob"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
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
func (c *customer) newJob() *event.Video {
	return &event.Video{
		V: event.Version, ID: ident.Video.New(), RequestID: ident.Request.New(), AccountID: c.accountID(), KeyID: c.keyID(), Model: "film",
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
	w := newLeaseWorld(t)
	store := videostore.New(postgres.Wrap(w.sql))
	c, other := w.customer(0, unlimited, 1), w.customer(0, unlimited, 1)
	ctx := t.Context()
	job := c.newJob()
	check(t, store.Insert(ctx, job))
	got, err := store.Get(ctx, job.ID, "")
	check(t, err)
	if diff := cmp.Diff(job, got); diff != "" {
		t.Errorf("after insert (-want +got):\n%s", diff)
	}

	// Another account does not find the job.
	for _, tt := range []struct {
		id, account string
		want        error
	}{
		{job.ID, c.accountID(), nil},
		{job.ID, other.accountID(), videojob.ErrNotFound},
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
	check(t, err)
	running.Rev = 2
	if diff := cmp.Diff(running, updated); diff != "" {
		t.Errorf("updated (-want +got):\n%s", diff)
	}
	if got, err = store.Get(ctx, job.ID, c.accountID()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(running, got, asStored); diff != "" {
		t.Errorf("after update (-want +got):\n%s", diff)
	}
	if _, err := store.Update(ctx, changed(running, func(v *event.Video) { v.Rev = 1 })); !errors.Is(err, videojob.ErrConflict) {
		t.Errorf("update of an older state: got %v", err)
	}

	// The same record inserted again changes nothing.
	check(t, store.Insert(ctx, job))
	if got, err = store.Get(ctx, job.ID, ""); err != nil || got.Rev != 2 || got.UpstreamID != "up_1" {
		t.Errorf("inserted twice: got %+v, %v", got, err)
	}

	// A job that has ended does not change.
	ended, err := store.Update(ctx, changed(running, func(v *event.Video) { v.Status = event.VideoCompleted }))
	check(t, err)
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

// A provider's object with any text is recorded, since it can repeat the client's
// prompt.
func TestVideoObjectWithAnyTextIsRecorded(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	s := videojob.New(videostore.New(postgres.Wrap(w.sql)), alone{}, alone{}, slog.New(slog.DiscardHandler))
	job := w.customer(0, unlimited, 1).newJob()
	_, err := s.Create(t.Context(), job)
	check(t, err)
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
		check(t, err)
		if diff := cmp.Diff(json.RawMessage(want), reply.Video.Object, asStored); diff != "" {
			t.Errorf("%s (-want +got):\n%s", given, diff)
		}
		job = reply.Video
	}
}

// A request creates one job, and only for an account and key that exist.
func TestInvalidVideoRecordsAreRefused(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	store := videostore.New(postgres.Wrap(w.sql))
	c := w.customer(0, unlimited, 1)
	job := c.newJob()
	check(t, store.Insert(t.Context(), job))
	for name, change := range map[string]func(v *event.Video){
		"the request of another job": func(v *event.Video) { v.ID = ident.Video.New() },
		"an unknown account":         func(v *event.Video) { *v = *c.newJob(); v.AccountID = ident.Account.New() },
		"an unknown key":             func(v *event.Video) { *v = *c.newJob(); v.KeyID = ident.Key.New() },
		"an unknown status":          func(v *event.Video) { *v = *c.newJob(); v.Status = "lost" },
		"an id that is none":         func(v *event.Video) { *v = *c.newJob(); v.ID = "video_1" },
	} {
		if err := store.Insert(t.Context(), changed(job, change)); err == nil {
			t.Errorf("%s: was inserted", name)
		}
	}
	if n := scalar[int](w, "select count(*) from video_jobs"); n != 1 {
		t.Errorf("got %d records", n)
	}
}

// Of concurrent updates that end a job, one is written.
func TestConcurrentFinalUpdates(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	c := w.customer(0, unlimited, 1)
	job := c.newJob()
	check(t, videostore.New(postgres.Wrap(w.sql)).Insert(t.Context(), job))
	const racers = 6
	results := make(chan error, racers)
	var all sync.WaitGroup
	for i := range racers {
		store := videostore.New(w.replica())
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

// Open lists the open jobs without a recent update, the oldest first.
func TestOpenVideoJobs(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	store := videostore.New(postgres.Wrap(w.sql))
	c := w.customer(0, unlimited, 1)
	ids := map[string]string{}
	for name, idle := range map[string]int{"fresh": 1, "left": 60, "left for long": 600, "ended": 600} {
		job := c.newJob()
		check(t, store.Insert(t.Context(), job))
		if name == "ended" {
			_, err := store.Update(t.Context(), changed(job, func(v *event.Video) { v.Status = event.VideoFailed }))
			check(t, err)
		}
		id, err := ident.Video.Parse(job.ID)
		check(t, err)
		w.exec("update video_jobs set updated_at = clock_timestamp() - make_interval(secs => $2) where id = $1", id, idle)
		ids[job.ID] = name
	}
	for limit, want := range map[int][]string{10: {"left for long", "left"}, 1: {"left for long"}} {
		open, err := store.Open(t.Context(), 30*time.Second, videojob.Place{}, limit)
		check(t, err)
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
	check(t, err)
	var paged []videojob.Idle
	for after := (videojob.Place{}); ; after = paged[len(paged)-1].Place {
		page, err := store.Open(t.Context(), 30*time.Second, after, 1)
		check(t, err)
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
		check(t, err)
		_, err = store.Update(t.Context(), job)
		check(t, err)
	}
	if open, err := store.Open(t.Context(), 30*time.Second, videojob.Place{}, 10); err != nil || len(open) != 1 {
		t.Errorf("got %v, %v", open, err)
	}
}
