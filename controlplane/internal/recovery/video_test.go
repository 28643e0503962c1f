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

	"modelgateway/controlplane/internal/postgres/quarantinestore"
	"modelgateway/controlplane/internal/postgres/settlestore"
	"modelgateway/controlplane/internal/postgres/videostore"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/controlplane/internal/video"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
	"modelgateway/shared/subject"
)

// videoEnv makes video jobs for one customer.
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

func (r *replica) videos() *video.Service {
	return video.New(videostore.New(r.db), r.bus, r.bus, slog.New(slog.DiscardHandler))
}

// job is a record as a proxy makes it.
func (p *videoEnv) job() *event.Video {
	return &event.Video{
		V: event.Version, ID: ident.Video.New(), RequestID: ident.Request.New(), AccountID: ident.Account.Format(p.account), KeyID: ident.Key.Format(p.key),
		Model: "film", Provider: "prv_1", Route: "rte_1", Credential: "crd_1", UpstreamModel: "up-film", Status: event.VideoQueued, Seconds: 4,
		CreatedUnix: time.Now().Unix(), PriceVersion: 3, Sheet: &price.Sheet{Version: 3, Seconds: []price.UnitPrice{{Price: 10}}},
	}
}

// advance has a job go through states, the first of which makes it unless it is
// made: "up" gives it its provider's id. It returns the record.
func (r *replica) advance(v *event.Video, states ...string) *event.Video {
	r.t.Helper()
	for _, state := range states {
		next := *v
		if next.Status = state; state == "up" {
			next.Status, next.UpstreamID = event.VideoInProgress, "up_1"
		}
		record := r.videos().Update
		if v.Rev == 0 {
			record = r.videos().Create
		}
		reply, err := record(r.t.Context(), &next)
		if err != nil || reply.Status != event.VideoDone {
			r.t.Fatalf("%s: %+v, %v", state, reply, err)
		}
		v = reply.Video
	}
	return v
}

// state is how a job is on record.
func (r *replica) state(v *event.Video) string {
	r.t.Helper()
	reply, err := r.videos().Get(r.t.Context(), &event.VideoGet{V: event.Version, ID: v.ID, AccountID: v.AccountID})
	if err != nil {
		return err.Error()
	}
	if reply.Video == nil {
		return reply.Status
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s %s", reply.Video.Rev, reply.Video.Status, reply.Video.UpstreamID))
}

// publishBackup puts something among what is kept.
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

// usage is the bill of a job that completed.
func usage(v *event.Video) []settle.Item {
	payload, err := json.Marshal(event.Usage{
		V: event.Version, RequestID: v.RequestID, Session: 1, Seq: 1, AccountID: v.AccountID, KeyID: v.KeyID, Model: v.Model, Format: "videos",
		Status: event.Completed, StartedMS: v.CreatedUnix * 1000, FinishedMS: v.CreatedUnix * 1000, Usage: price.Usage{Seconds: 4}, Rule: event.RuleReported,
		PriceVersion: 3, Cost: 40, VideoJob: v.ID,
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
	if result, err := settle.New(settlestore.New(r.db)).Settle(r.t.Context(), usage(v)); err != nil || result.Quarantined > 0 {
		r.t.Fatalf("bill: %+v, %v", result, err)
	}
}

// An older copy of Postgres takes its place. What became of video jobs since is
// there before anybody is served: jobs that were made, went on and ended, as
// they were last. What had ended in the copy stays so, and what cannot be put
// back waits in quarantine and keeps nothing else.
func TestVideoJobsOutliveALoss(t *testing.T) {
	t.Parallel()
	p := newVideoEnv(t)
	r := p.replica()
	r.check(nil)
	untouched, went := r.advance(p.job(), event.VideoQueued), r.advance(p.job(), event.VideoQueued)
	givenUp := r.advance(p.job(), event.VideoQueued, event.VideoFailed)
	altered := r.advance(p.job(), event.VideoQueued, "up")
	p.restart(p.copy)
	r.check(nil)

	// All this is lost.
	made := r.advance(p.job(), event.VideoQueued)
	went = r.advance(went, "up")
	running := r.advance(p.job(), event.VideoQueued, "up")
	completed := r.advance(p.job(), event.VideoQueued, "up", event.VideoCompleted)
	r.settle(completed)
	failed := r.advance(p.job(), event.VideoQueued, event.VideoFailed)
	uncommitted := p.job() // whoever recorded it died first
	uncommitted.Rev = 1
	if err := r.bus.BackUpVideo(t.Context(), uncommitted); err != nil {
		t.Fatal(err)
	}
	late := *givenUp // what a proxy wanted that had an old record
	late.Status, late.UpstreamID, late.Rev = event.VideoInProgress, "up_1", givenUp.Rev+1
	if err := r.bus.BackUpVideo(t.Context(), &late); err != nil {
		t.Fatal(err)
	}
	stranger := &videoEnv{p.site, ident.New(), ident.New()}
	stranger.customer(stranger.account, stranger.key)
	lost := r.advance(stranger.job(), event.VideoQueued)
	other := *altered
	other.AccountID, other.Rev = lost.AccountID, altered.Rev+1
	if err := r.bus.BackUpVideo(t.Context(), &other); err != nil {
		t.Fatal(err)
	}
	unholdable := r.advance(p.job(), event.VideoQueued)
	unholdable.Model, unholdable.Rev = "a\x00b", 2
	if err := r.bus.BackUpVideo(t.Context(), unholdable); err != nil {
		t.Fatal(err)
	}
	p.publishBackup("poison", []byte(`{"v":1,"id":"poison\u0000"`))

	p.restart(p.putBack)
	if _, err := r.videos().Get(t.Context(), &event.VideoGet{V: event.Version, ID: made.ID}); err == nil {
		t.Error("a job was looked for in a copy that has not been entered")
	}
	for again := range 2 {
		if again > 0 { // and once more by hand, when all of it has gone on
			running = r.advance(running, event.VideoCompleted)
			if err := p.replica().monitor.Declare(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		r.check(nil)
		p.epochIs(int64(again) + 2)
		for name, tt := range map[string]struct {
			job  *event.Video
			want string
		}{
			"untouched":     {untouched, "1 queued"},
			"made":          {made, "1 queued"},
			"went on":       {went, "2 in_progress up_1"},
			"running":       {running, []string{"2 in_progress up_1", "3 completed up_1"}[again]},
			"completed":     {completed, "3 completed up_1"},
			"failed":        {failed, "2 failed"},
			"given up":      {givenUp, "2 failed"},
			"uncommitted":   {uncommitted, "1 queued"},
			"altered":       {altered, "2 in_progress up_1"},
			"of a key lost": {lost, event.VideoNotFound},
		} {
			if got := r.state(tt.job); got != tt.want {
				t.Errorf("time %d, %s: %s; want %s", again, name, got, tt.want)
			}
		}
		if got := p.number("select count(*) from quarantine where resolved_at is null"); got != 4 {
			t.Errorf("time %d: %d in quarantine; want what is altered, has lost its key, and cannot be held or read", again, got)
		}
	}

	// Billed before, and seen completed again: once. What is lost is none of it.
	r.settle(completed)
	r.settle(completed)
	if got := p.number("select sum(settled) from pools where kind = 1"); got != 40 {
		t.Errorf("%d settled; want one job's cost", got)
	}
	quarantine := settle.NewQuarantine(quarantinestore.New(r.db), settle.New(settlestore.New(r.db)))
	if _, err := quarantine.Release(t.Context(), p.number("select min(id) from quarantine where request_id <> ''")); !errors.Is(err, settle.ErrCannotSettle) {
		t.Errorf("released a record: %v; want that it cannot be", err)
	}
	// A job that is put back is polled again when its time has come.
	p.number("with aged as (update video_jobs set updated_at = updated_at - interval '1 hour' returning 1) select count(*) from aged")
	open, err := videostore.New(r.db).Open(t.Context(), 30*time.Second, video.Place{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{untouched.ID: true, made.ID: true, went.ID: true, uncommitted.ID: true, altered.ID: true}
	got := map[string]bool{}
	for _, job := range open {
		got[job.Poll.ID] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("open (-want +got):\n%s", diff)
	}
}
