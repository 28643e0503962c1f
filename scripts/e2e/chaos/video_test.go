package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/ident"
)

// A videoJob is a video job in the client's view.
type videoJob struct {
	ID, Status string
}

// creations has the outcomes of requests for video jobs.
type creations struct {
	mu sync.Mutex
	// accepted has the ids of the jobs of answers 202, refused the answers with an error by their request id.
	accepted []string
	refused  map[string]*rig.Answer
	// lost is how many answers never came: only these jobs may be billed or not.
	lost int
}

// make requests a job and returns its id, empty if it was not accepted.
func (c *creations) make(ctx context.Context, r *rig.Rig, proxy int, account *rig.Account, model string) string {
	answer, err := r.Try(ctx, rig.Request{
		Proxy: proxy, Path: "/v1/videos", Key: account.Key, Body: map[string]any{"model": model, "prompt": "Waves", "seconds": "4"},
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	var job videoJob
	switch {
	case err == nil && answer.Status == http.StatusAccepted && json.Unmarshal(answer.Body, &job) == nil:
		c.accepted = append(c.accepted, job.ID)
	case answer != nil && answer.Status >= http.StatusBadRequest:
		if c.refused == nil {
			c.refused = map[string]*rig.Answer{}
		}
		c.refused[answer.RequestID()] = answer
	default:
		c.lost++
	}
	return job.ID
}

// checkBilled checks what these jobs are charged: an accepted one once, one that was answered with an error not at all, and no more
// than the provider has made.
func (c *creations) checkBilled(t *testing.T, usage []adminclient.UsageRecord, made int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	jobs := map[string]int{}
	billed := 0
	for _, u := range usage {
		if u.Rule == "none" { // the loss of a job whose creation nobody knows to have failed
			continue
		}
		billed++
		jobs[*u.VideoJob]++
		if answer := c.refused[u.RequestID]; answer != nil {
			t.Errorf("%s is billed, and its creation was answered with %s", *u.VideoJob, answer)
		}
		if jobs[*u.VideoJob] > 1 || u.Cost != "0.40" {
			t.Errorf("%s is billed %d times, for %s; want once for 0.40", *u.VideoJob, jobs[*u.VideoJob], u.Cost)
		}
	}
	for _, id := range c.accepted {
		if jobs[id] == 0 {
			t.Errorf("%s was accepted and is not billed", id)
		}
	}
	if most := len(c.accepted) + c.lost; billed > most || billed > made {
		t.Errorf("%d jobs are billed; the provider made %d, %d were accepted, and %d answers never came", billed, made, len(c.accepted), c.lost)
	}
	t.Logf("%d jobs accepted, %d refused, %d answers lost, %d billed", len(c.accepted), len(c.refused), c.lost, billed)
}

// makeVideos starts clients that create jobs on every proxy. finish stops them and returns what
// they got.
func makeVideos(t *testing.T, r *rig.Rig, account *rig.Account, model string) (finish func() *creations) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	made := new(creations)
	for i := range 4 {
		clients.Go(func() {
			for ctx.Err() == nil {
				made.make(context.WithoutCancel(ctx), r, i%len(r.Proxies), account, model)
				pause(ctx)
			}
		})
	}
	return func() *creations {
		stop()
		clients.Wait()
		return made
	}
}

// awaitJobs waits until every job has ended, and returns how many completed.
func awaitJobs(t *testing.T, r *rig.Rig, account *rig.Account, ids []string) (completed int) {
	t.Helper()
	for i, id := range ids {
		rig.Await(t, "video "+id, func(ctx context.Context) error {
			job, err := ended(ctx, r, account, id, i)
			if err == nil && job.Status == "completed" {
				completed++
			}
			return err
		})
	}
	return completed
}

// ended reads a job. A job that has not ended is an error.
func ended(ctx context.Context, r *rig.Rig, account *rig.Account, id string, proxy int) (job videoJob, err error) {
	answer, err := r.Try(ctx, rig.Request{Proxy: proxy % len(r.Proxies), Path: "/v1/videos/" + id, Key: account.Key})
	if err != nil {
		return job, err
	}
	if err := json.Unmarshal(answer.Body, &job); err != nil || job.Status != "completed" && job.Status != "failed" {
		return job, fmt.Errorf("got %s, %w", answer, err)
	}
	return job, nil
}

// Every accepted job ends and is billed once, while parts are killed.
func TestVideoJobsCompleteWhilePlanesAreKilled(t *testing.T) {
	r := rig.Get(t)
	account := r.Account(t, rig.AccountSpec{})
	model := r.Model(t, rig.Model{Type: "video", Directives: "takes=1s,polls=0"})
	finish := makeVideos(t, r, account, model)
	for _, part := range []string{rig.DataPlane1, rig.ControlPlane, rig.DataPlane2} {
		r.Sim.AwaitMore(t, model, 6)
		restarted := r.Kill(t, part)
		restarted()
	}
	r.Sim.AwaitMore(t, model, 6)
	checkVideos(t, r, account, model, finish())
}

// checkVideos checks that every accepted job completes and is billed once, and that no job whose
// creation was answered with an error is billed.
func checkVideos(t *testing.T, r *rig.Rig, account *rig.Account, model string, made *creations) {
	t.Helper()
	completed := awaitJobs(t, r, account, made.accepted)
	if completed != len(made.accepted) {
		t.Errorf("%d of %d jobs completed; want all", completed, len(made.accepted))
	}
	r.AwaitSessions(t)
	awaitNoOpenJob(t, r, account)
	r.AwaitSettled(t)
	usage, err := account.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	posts := 0
	for _, entry := range r.Sim.Journal(t, model) {
		if entry.Method == http.MethodPost {
			posts++
		}
	}
	made.checkBilled(t, usage, posts)
	checkCharged(t, r, account)
	checkInvariants(t, r)
}

// awaitNoOpenJob waits until every job of the account that a provider has is ended, and the usage of every completed one
// is recorded. It reads open jobs like a client: a killed proxy may hold the message by which they are polled for 90
// seconds. A job of a killed proxy that has no provider's id stays open for 15 minutes and is never charged.
func awaitNoOpenJob(t *testing.T, r *rig.Rig, account *rig.Account) {
	t.Helper()
	owner, err := ident.Account.Parse(account.ID)
	if err != nil {
		t.Fatal(err)
	}
	db := r.Postgres(t)
	rig.Await(t, "every job to end", func(ctx context.Context) error {
		rows, err := db.Query(ctx, `select 'video_' || replace(id::text, '-', '') from video_jobs v where account_id = $1 and (ended_at is null and coalesce(record ->> 'upstream_id', '') <> ''
			or status = 'completed' and not exists (select from usage_records u where u.request_id = v.request_id))`, owner)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for i, id := range ids {
			_, err = ended(ctx, r, account, id, i)
		}
		if err == nil && len(ids) > 0 {
			err = fmt.Errorf("%d jobs are not billed yet", len(ids))
		}
		return err
	})
}

// Each plane is killed at each step of a job, and Postgres with one of two control planes while the
// provider works on the creation. An accepted job is billed once. A job whose creation was answered
// with an error is never billed. Only one whose answer never came may be billed or not, and never
// without a video.
func TestVideoJobSurvivesAKillAtEveryStep(t *testing.T) {
	rig.Long(t)
	r := rig.Get(t)
	steps := []string{"recorded", submitted, polled, completed, "billed"}
	for _, plane := range []struct {
		name         string
		parts, steps []string
	}{
		{"dataplane", r.DataPlanes(), steps},
		{"controlplane", r.ControlPlanes(), steps},
		{"postgres and one control plane", []string{rig.Postgres, rig.ControlPlane}, []string{submitted}},
	} {
		for _, step := range plane.steps {
			t.Run(plane.name+" "+step, func(t *testing.T) { killAt(t, r, step, plane.parts) })
		}
	}
}

// killAt runs a job, and kills and restarts parts when the job has reached a step.
func killAt(t *testing.T, r *rig.Rig, step string, parts []string) {
	t.Helper()
	provider, account := newVideoProvider(t, r), r.Account(t, rig.AccountSpec{})
	r.AwaitSettled(t)
	at := step
	switch step {
	case "recorded":
		at = "" // before the provider is called
	case "billed":
		at = completed
	}
	reached, proceed := provider.waitAt(at)
	release := func() {}
	if step == "recorded" {
		release = lockTable(t, r, "video_jobs")
	}
	made, accepted := new(creations), make(chan string, 1)
	go func() { accepted <- made.make(t.Context(), r, 0, account, provider.model) }()
	awaitEnd := pollUntil(t, r, account, accepted)
	switch step {
	case "recorded":
		awaitLocked(t, r)
		if n := provider.made(); n != 0 {
			t.Errorf("the provider has %d jobs before one is recorded; want none", n)
		}
	case "billed":
		await(t, reached)
		release = lockTable(t, r, "video_jobs") // now its completion cannot be recorded
		proceed()
		account.AwaitUsage(t, 1)
	default:
		await(t, reached)
	}
	for _, part := range parts {
		r.Halt(t, part)
	}
	release()
	proceed()
	r.Resume(t, parts...)
	awaitEnd()
	r.AwaitSessions(t)
	awaitNoOpenJob(t, r, account)
	r.AwaitSettled(t)
	usage, err := account.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	made.checkBilled(t, usage, provider.made())
	checkCharged(t, r, account)
	checkInvariants(t, r)
}

// await waits until a request blocks at its step.
func await(t *testing.T, reached <-chan struct{}) {
	t.Helper()
	rig.Await(t, "the job to reach the step", func(context.Context) error {
		select {
		case <-reached:
			return nil
		default:
			return errors.New("it has not reached it")
		}
	})
}

// pollUntil polls a job like its client. awaitEnd waits until the job has ended.
func pollUntil(t *testing.T, r *rig.Rig, account *rig.Account, accepted <-chan string) (awaitEnd func()) {
	t.Helper()
	var client sync.WaitGroup
	client.Go(func() {
		id := <-accepted
		if id == "" {
			return
		}
		proxy := 0
		rig.Await(t, "video "+id, func(ctx context.Context) error {
			proxy++
			_, err := ended(ctx, r, account, id, proxy)
			return err
		})
	})
	return client.Wait
}

// lockTable blocks writes to a table until it is released.
func lockTable(t *testing.T, r *rig.Rig, table string) (release func()) {
	t.Helper()
	tx, err := r.Postgres(t).Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), `lock table `+table+` in share mode`)
	}
	if err != nil {
		t.Fatalf("lock %s: %v", table, err)
	}
	return func() {
		t.Helper()
		if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("unlock %s: %v", table, err)
		}
	}
}

// awaitLocked waits until a session of Postgres waits for a lock on a table.
func awaitLocked(t *testing.T, r *rig.Rig) {
	t.Helper()
	rig.Await(t, "a session to wait for the lock", func(ctx context.Context) error {
		n, err := r.Number(ctx, `select count(*) from pg_locks where not granted and locktype = 'relation'`)
		if err == nil && n == 0 {
			err = errors.New("no session waits")
		}
		return err
	})
}
