package videostore_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/postgres/videostore"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/limit"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// limitWorld is a world with one customer that has limits.
type limitWorld struct {
	*storetest.World
	*videostore.Store
	t       *testing.T
	c       *storetest.Customer
	session wire.SessionID
	seq     int64
}

func newLimitWorld(t *testing.T) *limitWorld {
	t.Helper()
	w := storetest.New(t)
	db := postgres.Wrap(w.SQL)
	return &limitWorld{
		World: w, Store: videostore.New(db), t: t, c: w.Customer(1_000_000, storetest.Unlimited, 5),
		session: w.Session(leasestore.NewLeases(db), "proxy"),
	}
}

// limit inserts a limit of the account, or of a key, and returns its number and id.
func (w *limitWorld) limit(amount int64, window limit.Window, key *ident.UUID, models string) (number int64, id string) {
	w.T.Helper()
	number, u := 1+rand.Int64N(1<<34-1), ident.New()
	w.Exec(`insert into limits (number, id, account_id, key_id, amount, period, time_zone, length_seconds, anchor_unix, models, revision)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 1)`,
		number, u, w.c.Account, key, amount, window.Period, window.TimeZone, window.LengthSeconds, window.AnchorUnix, []byte(models))
	return number, ident.Limit.Format(u)
}

// job returns a job of the customer that is expected to cost 10.
func (w *limitWorld) job() *event.Video {
	return changed(newJob(w.c), func(v *event.Video) { v.ExpectedCost = 10 })
}

// refuse fails the test unless a job is refused.
func (w *limitWorld) refuse(v *event.Video) *event.VideoRefusal {
	w.T.Helper()
	refusal, err := w.Insert(w.T.Context(), v)
	storetest.Check(w.t, err)
	if refusal == nil {
		w.T.Fatal("a further job was recorded; want a refusal")
	}
	return refusal
}

// complete ends a job and settles its event, as a proxy makes it.
func (w *limitWorld) complete(v *event.Video, cost int64) {
	w.T.Helper()
	recorded, err := w.Get(w.T.Context(), v.ID, "")
	storetest.Check(w.t, err)
	_, err = w.Update(w.T.Context(), changed(recorded, func(v *event.Video) { v.Status = event.VideoCompleted }))
	storetest.Check(w.t, err)
	w.seq++
	e := w.c.Event(w.session, w.seq, cost)
	e.RequestID, e.VideoJob, e.ProjectID, e.Limits = v.RequestID, v.ID, recorded.ProjectID, recorded.Limits
	if result := w.Settle(postgres.Wrap(w.SQL), e); result.Settled != 1 {
		w.T.Fatalf("the job was not settled: %+v", result)
	}
}

// end moves a window of a limit into the past.
func (w *limitWorld) end(pool int64) {
	w.T.Helper()
	w.Exec("update pools set starts_at = starts_at - interval '2 hours', ends_at = ends_at - interval '2 hours' where id = $1", pool)
}

func (w *limitWorld) settled(pool int64) int64 {
	w.T.Helper()
	return w.Figures(wire.PoolID(pool)).Settled
}

var firstUse = limit.Window{Period: limit.FirstUse, LengthSeconds: 3600}

// 7 of 40 concurrent jobs fit in a limit of the account and in one of the key, with each kind of window, and count in the same one.
func TestExactlySoManyVideoJobsFitInAWindow(t *testing.T) {
	t.Parallel()
	for _, window := range []limit.Window{
		{Period: limit.Forever},
		{Period: limit.Month, TimeZone: "Europe/Moscow"},
		{Period: limit.Fixed, LengthSeconds: 31 * 24 * 3600, AnchorUnix: 5},
		firstUse,
	} {
		for _, scope := range []limit.Scope{limit.Account, limit.Key} {
			t.Run(string(window.Period)+" of the "+string(scope), func(t *testing.T) {
				t.Parallel()
				w := newLimitWorld(t)
				var key *ident.UUID
				if scope == limit.Key {
					key = &w.c.Key
				}
				number, id := w.limit(61, window, key, "[]")
				w.limit(1_000_000, limit.Window{Period: limit.Forever}, nil, "[]")
				var created atomic.Int64
				var all sync.WaitGroup
				replicas := []*postgres.DB{w.Replica(), w.Replica()}
				for i := range 40 {
					all.Go(func() {
						refusal, err := videostore.New(replicas[i%2]).Insert(t.Context(), w.job())
						switch {
						case err != nil:
							t.Error(err)
						case refusal == nil:
							created.Add(1)
						case refusal.Reason != event.VideoLimit || refusal.Scope != scope || refusal.LimitID != id || refusal.Left != 61 || refusal.Expected != 70:
							t.Errorf("got %+v; want a refusal because of the limit", refusal)
						}
					})
				}
				all.Wait()
				if n := created.Load(); n != 7 {
					t.Errorf("%d jobs were recorded; want 7", n)
				}
				if n := storetest.Scalar[int](w, "select count(*) from pools where limit_number = $1", number); n != 1 {
					t.Errorf("%d windows were made; want 1", n)
				}
				w.CheckNoDeadlock(replicas...)
			})
		}
	}
}

// A raise that is over admits no job, also while nothing but video jobs needs the window.
func TestVideoJobsAreRefusedWhenARaiseIsOver(t *testing.T) {
	t.Parallel()
	w := newLimitWorld(t)
	number, id := w.limit(10, limit.Window{Period: limit.Forever}, nil, "[]")
	w.Exec("update limits set raised_to = 1000, raised_until = clock_timestamp() + interval '1 hour' where number = $1", number)
	insert(t, w.Store, w.job())
	insert(t, w.Store, w.job())
	w.Exec("update limits set raised_until = clock_timestamp() where number = $1", number)
	w.Exec("update pools set raised_until = clock_timestamp() where limit_number = $1", number)
	want := event.VideoRefusal{Reason: event.VideoLimit, Scope: limit.Account, LimitID: id, Left: 10, Expected: 20}
	if diff := cmp.Diff(&want, w.refuse(w.job())); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
}

// A job is charged to the window in which it was created, although it ends in the next, which it does not count in.
func TestVideoJobIsChargedToTheWindowOfItsCreation(t *testing.T) {
	t.Parallel()
	w := newLimitWorld(t)
	number, id := w.limit(10, firstUse, nil, "[]")
	first, second := w.job(), w.job()
	insert(t, w.Store, first)
	if diff := cmp.Diff([]int64{limit.Pool(number, 1)}, first.Limits); diff != "" {
		t.Errorf("windows (-want +got):\n%s", diff)
	}
	ends := storetest.Scalar[time.Time](w, "select ends_at from pools where id = $1", first.Limits[0])
	want := event.VideoRefusal{Reason: event.VideoLimit, Scope: limit.Account, LimitID: id, ResetsMS: ends.UnixMilli(), Left: 10, Expected: 10}
	if diff := cmp.Diff(&want, w.refuse(w.job())); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}

	w.end(first.Limits[0])
	insert(t, w.Store, second)
	if diff := cmp.Diff([]int64{limit.Pool(number, 2)}, second.Limits); diff != "" {
		t.Errorf("windows of the second job (-want +got):\n%s", diff)
	}
	w.complete(first, 12)
	if of1, of2 := w.settled(first.Limits[0]), w.settled(second.Limits[0]); of1 != 12 || of2 != 0 {
		t.Errorf("%d and %d are settled; want 12 and 0", of1, of2)
	}

	// A failed job makes room, and costs nothing.
	w.refuse(w.job())
	recorded, err := w.Get(t.Context(), second.ID, "")
	storetest.Check(t, err)
	_, err = w.Update(t.Context(), changed(recorded, func(v *event.Video) { v.Status = event.VideoFailed }))
	storetest.Check(t, err)
	third := w.job()
	insert(t, w.Store, third)
	w.complete(third, 4)
	fourth := w.job()
	insert(t, w.Store, fourth)
	if left := w.refuse(w.job()); left.Left != 6 || left.Expected != 10 {
		t.Errorf("got %+v; want 6 left", left)
	}
	w.Check()
}

// Inserted again, a job stays in its window, whatever has ended or was used up since.
func TestRepeatedVideoCreationKeepsItsWindow(t *testing.T) {
	t.Parallel()
	w := newLimitWorld(t)
	number, _ := w.limit(10, firstUse, nil, "[]")
	job := w.job()
	insert(t, w.Store, job)
	w.end(job.Limits[0])
	insert(t, w.Store, w.job())
	again := changed(job, func(v *event.Video) { v.Limits = []int64{limit.Pool(number, 9)} })
	insert(t, w.Store, again)
	if diff := cmp.Diff(job.Limits, again.Limits); diff != "" {
		t.Errorf("windows (-want +got):\n%s", diff)
	}
}

// A job counts in the limits of its account, its key and its model only, and in none that was made or removed before.
func TestVideoJobCountsInTheLimitsThatApply(t *testing.T) {
	t.Parallel()
	w := newLimitWorld(t)
	forever := limit.Window{Period: limit.Forever}
	stranger := w.Customer(100, storetest.Unlimited, 1)
	ofModels, _ := w.limit(1000, forever, nil, `["fil*", "other"]`)
	_, _ = w.limit(0, forever, nil, `["other"]`)
	_, _ = w.limit(0, forever, &stranger.Key, "[]")
	ofKey, keyLimit := w.limit(15, forever, &w.c.Key, "[]")
	ofAccount, _ := w.limit(1000, forever, nil, "[]")
	removed, _ := w.limit(0, forever, nil, "[]")
	w.Exec("update limits set removed_at = now() where number = $1", removed)

	job := changed(w.job(), func(v *event.Video) { v.Limits = []int64{limit.Pool(removed, 0)} })
	insert(t, w.Store, job)
	want := []int64{limit.Pool(ofModels, 0), limit.Pool(ofKey, 0), limit.Pool(ofAccount, 0)}
	slices.Sort(want)
	if diff := cmp.Diff(want, job.Limits); diff != "" {
		t.Errorf("windows (-want +got):\n%s", diff)
	}
	recorded, err := w.Get(t.Context(), job.ID, "")
	storetest.Check(t, err)
	if diff := cmp.Diff(want, recorded.Limits); diff != "" {
		t.Errorf("recorded windows (-want +got):\n%s", diff)
	}

	insert(t, w.Store, w.job())
	if refusal := w.refuse(w.job()); refusal.Scope != limit.Key || refusal.LimitID != keyLimit || refusal.Left != 15 || refusal.Expected != 20 {
		t.Errorf("got %+v; want the limit of the key", refusal)
	}

	// The limit is removed while the job runs: it is charged to the window, and further jobs do not need it.
	w.Exec("update limits set removed_at = now() where number = $1", ofKey)
	w.complete(job, 11)
	for _, pool := range want {
		if got := w.settled(pool); got != 11 {
			t.Errorf("%d is settled of window %d; want 11", got, pool)
		}
	}
	later := w.job()
	insert(t, w.Store, later)
	if slices.Contains(later.Limits, limit.Pool(ofKey, 0)) || len(later.Limits) != 2 {
		t.Errorf("a later job counts in %v; want no removed limit", later.Limits)
	}
	w.Check()
}

// What requests have spent of a window is not left for jobs, and the other way round.
func TestVideoJobsAndRequestsShareAWindow(t *testing.T) {
	t.Parallel()
	w := newLimitWorld(t)
	number, _ := w.limit(25, limit.Window{Period: limit.Forever}, nil, "[]")
	insert(t, w.Store, w.job())
	e := w.c.Event(w.session, 100, 15)
	e.Limits = []int64{limit.Pool(number, 0)}
	if result := w.Settle(postgres.Wrap(w.SQL), e); result.Settled != 1 {
		t.Fatalf("got %+v", result)
	}
	if refusal := w.refuse(w.job()); refusal.Left != money.Nano(10) || refusal.Expected != 10 {
		t.Errorf("got %+v; want 10 left", refusal)
	}
}

// A job counts in the limit of the project in which its key was, and in that of no other project, and is charged there although the
// key has moved.
func TestVideoJobCountsInTheProjectOfItsKey(t *testing.T) {
	t.Parallel()
	w := newLimitWorld(t)
	own, other := ident.New(), ident.New()
	numbers := map[ident.UUID]int64{}
	for _, id := range []ident.UUID{own, other} {
		w.Exec("insert into projects (id, account_id, name, revision) values ($1, $2, 'project', 1)", id, w.c.Account)
		numbers[id], _ = w.limit(100, limit.Window{Period: limit.Forever}, nil, "[]")
		w.Exec("update limits set project_id = $1 where number = $2", id, numbers[id])
	}
	inside, outside := w.job(), changed(w.job(), func(v *event.Video) { v.ProjectID = ident.Project.Format(other) }) // as a stale record says
	for v, project := range map[*event.Video]*ident.UUID{inside: &own, outside: nil} {
		w.Exec("update api_keys set project_id = $1 where id = $2", project, w.c.Key)
		refusal, err := w.Insert(t.Context(), v)
		storetest.Check(t, err)
		if refusal != nil {
			t.Fatalf("refused: %+v", refusal)
		}
	}
	pool := limit.Pool(numbers[own], 0)
	if !slices.Equal(inside.Limits, []int64{pool}) || len(outside.Limits) != 0 {
		t.Errorf("the jobs count in %v and %v; want %d and none", inside.Limits, outside.Limits, pool)
	}
	w.Exec("update api_keys set project_id = $1 where id = $2", other, w.c.Key)
	w.complete(inside, 9)
	w.complete(outside, 8)
	if got := w.settled(pool); got != 9 {
		t.Errorf("%d is settled in the project; want 9", got)
	}
	again := func(cost money.Nano) *event.Video {
		return changed(w.job(), func(v *event.Video) { v.ExpectedCost = cost })
	}
	w.Exec("update api_keys set project_id = $1 where id = $2", own, w.c.Key)
	if refusal, err := w.Insert(t.Context(), again(91)); err != nil || refusal != nil {
		t.Fatal(refusal, err)
	}
	if refusal := w.refuse(again(1)); refusal.Scope != limit.Project || refusal.Reason != event.VideoLimit {
		t.Errorf("got %+v; want a refusal by the limit of the project", refusal)
	}
}

// Asking decides as a creation does, and leaves nothing behind: no job, and no window.
func TestAskingAboutAVideoJobChangesNothing(t *testing.T) {
	t.Parallel()
	w := newLimitWorld(t)
	number, id := w.limit(10, firstUse, nil, "[]")
	ask := func() *event.VideoRefusal {
		t.Helper()
		refusal, err := w.Store.WouldRefuse(t.Context(), &event.Video{AccountID: w.c.AccountID(), KeyID: w.c.KeyID(), Model: w.job().Model, ExpectedCost: 10})
		storetest.Check(t, err)
		return refusal
	}
	if refusal := ask(); refusal != nil {
		t.Errorf("without jobs: got %+v", refusal)
	}
	if n := storetest.Scalar[int](w, "select count(*) from pools where limit_number = $1", number) + storetest.Scalar[int](w, "select count(*) from video_jobs"); n != 0 {
		t.Errorf("%d windows and jobs were made", n)
	}
	insert(t, w.Store, w.job())
	if refusal := ask(); refusal == nil || refusal.LimitID != id || refusal.Left != 10 || refusal.Expected != 10 {
		t.Errorf("with an open job: got %+v", refusal)
	}
	if refusal, err := w.Store.WouldRefuse(t.Context(), &event.Video{AccountID: w.c.AccountID(), Model: w.job().Model}); err != nil || refusal == nil || refusal.LimitID != id {
		t.Errorf("of the account: got %+v, %v", refusal, err)
	}
}
