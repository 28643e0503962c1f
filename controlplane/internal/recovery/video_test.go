package recovery_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/videostore"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/controlplane/internal/videojob"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/limit"
	"modelgateway/shared/price"
	"modelgateway/shared/subject"
)

// videoEnv is a site with one account that has video jobs.
type videoEnv struct {
	*site
	account, key ident.UUID
}

func newVideoEnv(t *testing.T) *videoEnv {
	t.Helper()
	p := &videoEnv{newSite(t), ident.New(), ident.New()}
	p.customer(p.account, p.key)
	return p
}

// customer adds an account with a key.
func (p *videoEnv) customer(account, key ident.UUID) {
	p.t.Helper()
	p.number(fmt.Sprintf(`with a as (insert into accounts (id, name, max_concurrent_requests, revision) values ('%[1]x', 'customer', 5, 1) returning id),
		k as (insert into api_keys (id, account_id, name, lookup_hash, revision) select '%[2]x', id, 'key', sha256('%[2]x'), 1 from a returning id),
		b as (insert into pools (account_id, kind, total, free) select id, 1, 1000, 1000 from a returning 1),
		l as (insert into pools (account_id, kind, key_id, unlimited) select a.id, 2, k.id, true from a, k returning 1)
		select count(*) from b, l`, account, key))
}

func (r *replica) videos() *videojob.Service {
	return videojob.New(videostore.New(r.db), r.bus, r.bus, slog.New(slog.DiscardHandler))
}

// job returns a new record, as a proxy makes it.
func (p *videoEnv) job() *event.Video {
	return &event.Video{
		V: event.Version, ID: ident.Video.New(), RequestID: ident.Request.New(), AccountID: ident.Account.Format(p.account), KeyID: ident.Key.Format(p.key),
		Model: "film", Provider: "prv_1", Route: "rte_1", Credential: "crd_1", UpstreamModel: "up-film", Status: event.VideoQueued, Seconds: 4,
		CreatedUnix: time.Now().Unix(), PriceVersion: 3, Sheet: &price.Sheet{Version: 3, Seconds: []price.UnitPrice{{Price: 10}}},
	}
}

// advance records states of a job one after another, and returns the last record.
// The first state creates the job unless it exists. The state "up" means in
// progress with the provider's id.
func (r *replica) advance(v *event.Video, states ...string) *event.Video {
	r.t.Helper()
	for _, state := range states {
		next := *v
		if next.Status = state; state == "up" {
			next.Status, next.UpstreamID = event.VideoInProgress, "up_1"
		}
		save := r.videos().Update
		if v.Rev == 0 {
			save = r.videos().Create
		}
		reply, err := save(r.t.Context(), &next)
		if err != nil || reply.Status != event.VideoDone {
			r.t.Fatalf("%s: %+v, %v", state, reply, err)
		}
		v = reply.Video
	}
	return v
}

// state returns the recorded revision, status and provider's id of a job.
func (r *replica) state(v *event.Video) string {
	r.t.Helper()
	reply, err := r.videos().Get(r.t.Context(), &event.VideoGetRequest{V: event.Version, ID: v.ID, AccountID: v.AccountID})
	if err != nil {
		return err.Error()
	}
	if reply.Video == nil {
		return reply.Status
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s %s", reply.Video.Rev, reply.Video.Status, reply.Video.UpstreamID))
}

// publishBackup adds a backup.
func (p *videoEnv) publishBackup(id string, payload []byte) {
	p.t.Helper()
	js, err := jetstream.New(p.nats.Connect())
	if err == nil {
		_, err = js.Publish(p.t.Context(), subject.VideoJob(id), payload)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// usage returns the usage event of a completed job.
func usage(v *event.Video) []settle.Item {
	payload, err := json.Marshal(event.Usage{
		V: event.Version, RequestID: v.RequestID, Session: 1, Seq: 1, AccountID: v.AccountID, KeyID: v.KeyID, Model: v.Model, Format: "videos",
		Status: event.Completed, StartedMS: v.CreatedUnix * 1000, FinishedMS: v.CreatedUnix * 1000, Usage: price.Usage{Seconds: 4}, Rule: event.RuleReported,
		PriceVersion: 3, Cost: 40, VideoJob: v.ID, Limits: v.Limits,
	})
	if err != nil {
		panic(err)
	}
	batch, err := json.Marshal(event.Batch{V: event.Version, BatchID: "b", Session: 1, Events: []json.RawMessage{payload}})
	if err != nil {
		panic(err)
	}
	return settle.DecodeBatch(batch)
}

func (r *replica) settle(v *event.Video) {
	r.t.Helper()
	if result, err := settle.New(moneystore.NewSettlement(r.db), nil).Settle(r.t.Context(), usage(v)); err != nil || result.Quarantined > 0 {
		r.t.Fatalf("settlement: %+v, %v", result, err)
	}
}

// Postgres is replaced by an older copy. Before anything is served from it, the
// video jobs get their last states from the backups. A job that has ended in the
// copy does not change. A backup that cannot be restored goes into quarantine and
// does not stop the others.
func TestVideoJobsAreRestoredAfterLossOfCommits(t *testing.T) {
	t.Parallel()
	p := newVideoEnv(t)
	r := p.replica()
	r.check(nil)
	unchanged, continued := r.advance(p.job(), event.VideoQueued), r.advance(p.job(), event.VideoQueued)
	endedBefore := r.advance(p.job(), event.VideoQueued, event.VideoFailed)
	reassigned := r.advance(p.job(), event.VideoQueued, "up")
	p.restart(p.copy)
	r.check(nil)

	// The commits of everything below are lost.
	created := r.advance(p.job(), event.VideoQueued)
	continued = r.advance(continued, "up")
	running := r.advance(p.job(), event.VideoQueued, "up")
	completed := r.advance(p.job(), event.VideoQueued, "up", event.VideoCompleted)
	r.settle(completed)
	failed := r.advance(p.job(), event.VideoQueued, event.VideoFailed)
	uncommitted := p.job() // its replica died before the commit
	uncommitted.Rev = 1
	if err := r.bus.BackUpVideo(t.Context(), uncommitted); err != nil {
		t.Fatal(err)
	}
	late := *endedBefore // the rejected update of a proxy with an outdated record
	late.Status, late.UpstreamID, late.Rev = event.VideoInProgress, "up_1", endedBefore.Rev+1
	if err := r.bus.BackUpVideo(t.Context(), &late); err != nil {
		t.Fatal(err)
	}
	other := &videoEnv{p.site, ident.New(), ident.New()}
	other.customer(other.account, other.key)
	keyLost := r.advance(other.job(), event.VideoQueued)
	moved := *reassigned
	moved.AccountID, moved.Rev = keyLost.AccountID, reassigned.Rev+1
	if err := r.bus.BackUpVideo(t.Context(), &moved); err != nil {
		t.Fatal(err)
	}
	unstorable := r.advance(p.job(), event.VideoQueued)
	unstorable.Model, unstorable.Rev = "a\x00b", 2
	if err := r.bus.BackUpVideo(t.Context(), unstorable); err != nil {
		t.Fatal(err)
	}
	p.publishBackup("malformed", []byte(`{"v":1,"id":"malformed\u0000"`))

	p.restart(p.restoreCopy)
	if _, err := r.videos().Get(t.Context(), &event.VideoGetRequest{V: event.Version, ID: created.ID}); err == nil {
		t.Error("the copy was used before the loss was declared")
	}
	for round := range 2 {
		if round > 0 { // declare another loss, which restores the same backups
			running = r.advance(running, event.VideoCompleted)
			if err := p.replica().monitor.Declare(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		r.check(nil)
		p.epochIs(int64(round) + 2)
		for name, tt := range map[string]struct {
			job  *event.Video
			want string
		}{
			"unchanged":    {unchanged, "1 queued"},
			"created":      {created, "1 queued"},
			"continued":    {continued, "2 in_progress up_1"},
			"running":      {running, []string{"2 in_progress up_1", "3 completed up_1"}[round]},
			"completed":    {completed, "3 completed up_1"},
			"failed":       {failed, "2 failed"},
			"ended before": {endedBefore, "2 failed"},
			"uncommitted":  {uncommitted, "1 queued"},
			"reassigned":   {reassigned, "2 in_progress up_1"},
			"key lost":     {keyLost, event.VideoNotFound},
		} {
			if got := r.state(tt.job); got != tt.want {
				t.Errorf("round %d, %s: got %s; want %s", round, name, got, tt.want)
			}
		}
		if got := p.number("select count(*) from quarantine where resolved_at is null"); got != 4 {
			t.Errorf("round %d: %d backups in quarantine; want 4: reassigned, key lost, unstorable and malformed", round, got)
		}
	}

	// The completed job is reported twice more, and charged once.
	r.settle(completed)
	r.settle(completed)
	if got := p.number("select sum(settled) from pools where kind = 1"); got != 40 {
		t.Errorf("%d settled; want 40, the cost of one job", got)
	}
	quarantine := settle.NewQuarantine(moneystore.NewQuarantine(r.db), settle.New(moneystore.NewSettlement(r.db), nil))
	if _, err := quarantine.Release(t.Context(), p.number("select min(id) from quarantine where request_id <> ''")); !errors.Is(err, settle.ErrCannotSettle) {
		t.Errorf("release of a video job's record: got %v; want ErrCannotSettle", err)
	}
	// A restored job that is open is polled again when it is due.
	p.number("with aged as (update video_jobs set updated_at = updated_at - interval '1 hour' returning 1) select count(*) from aged")
	open, err := videostore.New(r.db).Open(t.Context(), 30*time.Second, videojob.Place{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{unchanged.ID: true, created.ID: true, continued.ID: true, uncommitted.ID: true, reassigned.ID: true}
	got := map[string]bool{}
	for _, job := range open {
		got[job.Poll.ID] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("open jobs (-want +got):\n%s", diff)
	}
}

// A job whose commits are lost keeps its windows, and they are made again with it: it is charged to them, however late it ends.
func TestRestoredVideoJobKeepsItsWindows(t *testing.T) {
	t.Parallel()
	p := newVideoEnv(t)
	p.number(fmt.Sprintf(`with l as (insert into limits (number, id, account_id, amount, period, length_seconds, revision)
		select n, gen_random_uuid(), '%x', 1000, 'first_use', 3600, 1 from generate_series(7, 8) n returning 1) select count(*) from l`, p.account))
	r := p.replica()
	r.check(nil)
	p.restart(p.copy)
	r.check(nil)

	// The commits of everything below are lost.
	created := r.advance(p.job(), event.VideoQueued)
	running := r.advance(p.job(), event.VideoQueued, "up")
	want := []int64{limit.Pool(7, 1), limit.Pool(8, 1)}
	if diff := cmp.Diff([][]int64{want, want}, [][]int64{created.Limits, running.Limits}); diff != "" {
		t.Fatalf("windows (-want +got):\n%s", diff)
	}

	p.restart(p.restoreCopy)
	r.check(nil)
	p.number("with c as (update cluster_state set lost_at = lost_at - interval '5 hours' returning 1) select count(*) from c")
	for _, v := range []*event.Video{created, running} {
		reply, err := r.videos().Get(t.Context(), &event.VideoGetRequest{V: event.Version, ID: v.ID})
		if err != nil || reply.Video == nil {
			t.Fatal(reply, err)
		}
		if diff := cmp.Diff(want, reply.Video.Limits); diff != "" {
			t.Errorf("windows after the loss (-want +got):\n%s", diff)
		}
		r.settle(reply.Video)
	}
	if got := p.number("select count(*) from pools where limit_number in (7, 8) and settled = 80 and ends_at > clock_timestamp()"); got != 2 {
		t.Errorf("%d windows are charged with both jobs; want 2", got)
	}
}
