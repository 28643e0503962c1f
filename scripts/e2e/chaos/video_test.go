package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/money"
)

// A videoJob is a video job in the client's view.
type videoJob struct {
	ID, Status string
}

// makeVideos starts clients that create jobs on every proxy. finish stops them and returns the
// accepted jobs.
func makeVideos(t *testing.T, r *rig.Rig, account *rig.Account, model string) (finish func() []string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var mu sync.Mutex
	var accepted []string
	for i := range 4 {
		clients.Go(func() {
			for ctx.Err() == nil {
				answer, err := r.Try(context.WithoutCancel(ctx), rig.Request{
					Proxy: i % len(r.Proxies), Path: "/v1/videos", Key: account.Key, Body: map[string]any{"model": model, "prompt": "Waves", "seconds": "4"},
				})
				var job videoJob
				if err == nil && answer.Status == http.StatusAccepted && json.Unmarshal(answer.Body, &job) == nil {
					mu.Lock()
					accepted = append(accepted, job.ID)
					mu.Unlock()
				}
				pause(ctx)
			}
		})
	}
	return func() []string {
		stop()
		clients.Wait()
		return accepted
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

// checkVideos checks that every accepted job completes and is billed once. Other jobs may be
// billed once.
func checkVideos(t *testing.T, r *rig.Rig, account *rig.Account, model string, accepted []string) {
	t.Helper()
	completed := awaitJobs(t, r, account, accepted)
	if completed != len(accepted) {
		t.Errorf("%d of %d jobs completed; want all", completed, len(accepted))
	}
	r.AwaitSessions(t)
	// A job whose response was lost with its proxy may complete and be billed.
	var usage []adminclient.UsageRecord
	jobs := map[string]int{}
	rig.Await(t, "every job to be billed", func(ctx context.Context) (err error) {
		if usage, err = account.Usage(ctx); err != nil {
			return err
		}
		clear(jobs)
		for _, u := range usage {
			jobs[*u.VideoJob]++
		}
		for _, id := range accepted {
			if jobs[id] == 0 {
				return fmt.Errorf("%s is not billed", id)
			}
		}
		return nil
	})
	r.AwaitSettled(t)
	var total money.Nano
	for _, u := range usage {
		cost, err := money.Parse(u.Cost)
		if err != nil || jobs[*u.VideoJob] != 1 || u.Cost != "0.40" {
			t.Errorf("%s is billed %d times, for %s, %v; want once for 0.40", *u.VideoJob, jobs[*u.VideoJob], u.Cost, err)
		}
		total += cost
	}
	made := 0
	for _, entry := range r.Sim.Journal(t, model) {
		if entry.Method == http.MethodPost {
			made++
		}
	}
	if len(usage) > made {
		t.Errorf("%d jobs are billed; the provider created %d", len(usage), made)
	}
	if balance := account.AwaitIdle(t); balance != credit-total {
		t.Errorf("the balance is %v; want %v", balance, credit-total)
	}
	checkInvariants(t, r)
	t.Logf("%d jobs accepted, %d created, %d billed", len(accepted), made, len(usage))
}

// Each plane is killed at each step of a job. An accepted job is billed once. A job whose
// response was lost is billed once or never, and never without a video.
func TestVideoJobSurvivesAKillAtEveryStep(t *testing.T) {
	long(t)
	r := rig.Get(t)
	for _, plane := range []struct {
		name  string
		parts []string
	}{{"dataplane", r.DataPlanes()}, {"controlplane", r.ControlPlanes()}} {
		for _, step := range []string{"recorded", submitted, polled, completed, "billed"} {
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
	accepted := make(chan string, 1)
	go func() { accepted <- makeVideo(t, r, account, provider.model) }()
	awaitEnd := pollUntil(t, r, account, accepted)
	switch step {
	case "recorded":
		awaitLocked(t, r)
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
	id := awaitEnd()
	r.AwaitSessions(t)
	r.AwaitSettled(t)
	usage, err := account.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	least, most := 0, min(provider.made(), 1)
	if id != "" {
		least = 1
	}
	if len(usage) < least || len(usage) > most || sum(t, usage) != money.Nano(len(usage))*money.Unit*4/10 {
		t.Errorf("%d jobs are billed, %v in total; want %d to %d jobs for 0.40 each", len(usage), sum(t, usage), least, most)
	}
	checkCharged(t, r, account)
	checkInvariants(t, r)
	t.Logf("job %q accepted, %d created, %d billed", id, provider.made(), len(usage))
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

// makeVideo creates a job and returns its id, empty if it was not accepted.
func makeVideo(t *testing.T, r *rig.Rig, account *rig.Account, model string) string {
	t.Helper()
	answer, err := r.Try(t.Context(), rig.Request{
		Path: "/v1/videos", Key: account.Key, Body: map[string]any{"model": model, "prompt": "Waves", "seconds": "4"},
	})
	var job videoJob
	if err != nil || answer.Status != http.StatusAccepted || json.Unmarshal(answer.Body, &job) != nil {
		t.Logf("no job was accepted: %v, %v", answer, err)
		return ""
	}
	return job.ID
}

// pollUntil polls a job like its client. awaitEnd waits until the job has ended and returns its
// id.
func pollUntil(t *testing.T, r *rig.Rig, account *rig.Account, accepted <-chan string) (awaitEnd func() string) {
	t.Helper()
	var client sync.WaitGroup
	var id string
	client.Go(func() {
		if id = <-accepted; id == "" {
			return
		}
		proxy := 0
		rig.Await(t, "video "+id, func(ctx context.Context) error {
			proxy++
			_, err := ended(ctx, r, account, id, proxy)
			return err
		})
	})
	return func() string { client.Wait(); return id }
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
