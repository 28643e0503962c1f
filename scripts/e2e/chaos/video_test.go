package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/money"
)

// A videoJob is a job that a client was promised.
type videoJob struct {
	ID, Status string
}

// makeVideos asks for jobs on every proxy, from several clients, until the
// function that it returns is called; that returns the jobs that were promised.
func makeVideos(t *testing.T, r *rig.Rig, account *rig.Account, model string) (finish func() []string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var mu sync.Mutex
	var promised []string
	for i := range 4 {
		clients.Go(func() {
			for ctx.Err() == nil {
				answer, err := r.Try(context.WithoutCancel(ctx), rig.Request{
					Proxy: i % len(r.Proxies), Path: "/v1/videos", Key: account.Key, Body: map[string]any{"model": model, "prompt": "Waves", "seconds": "4"},
				})
				var job videoJob
				if err == nil && answer.Status == http.StatusAccepted && json.Unmarshal(answer.Body, &job) == nil {
					mu.Lock()
					promised = append(promised, job.ID)
					mu.Unlock()
				}
				pause(ctx)
			}
		})
	}
	return func() []string {
		stop()
		clients.Wait()
		return promised
	}
}

// awaitJobs waits until every job has ended, and returns how many completed.
func awaitJobs(t *testing.T, r *rig.Rig, account *rig.Account, ids []string) (completed int) {
	t.Helper()
	for i, id := range ids {
		rig.Await(t, "video "+id, func(ctx context.Context) error {
			answer, err := r.Try(ctx, rig.Request{Proxy: i % len(r.Proxies), Path: "/v1/videos/" + id, Key: account.Key})
			if err != nil {
				return err
			}
			var job videoJob
			if err := json.Unmarshal(answer.Body, &job); err != nil || job.Status != "completed" && job.Status != "failed" {
				return fmt.Errorf("got %s, %w", answer, err)
			}
			if job.Status == "completed" {
				completed++
			}
			return nil
		})
	}
	return completed
}

// Every promised job comes to its end and is billed once, whatever is killed
// while jobs are made and polled.
func TestVideosThroughKills(t *testing.T) {
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
	promised := finish()
	completed := awaitJobs(t, r, account, promised)
	if completed != len(promised) {
		t.Errorf("%d of %d jobs completed; want all", completed, len(promised))
	}
	r.AwaitSessions(t)
	// A job whose promise was lost with its proxy may complete and be billed too.
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
		for _, id := range promised {
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
		t.Errorf("%d jobs are billed; the provider made %d", len(usage), made)
	}
	if balance := account.AwaitIdle(t); balance != credit-total {
		t.Errorf("the balance is %v; want %v", balance, credit-total)
	}
	checkBooks(t, r)
	t.Logf("%d jobs promised, %d made, %d billed", len(promised), made, len(usage))
}
