package videojob

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/route"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

// end is how a look at a job ended.
type outcome struct {
	Status, Reason string
	Billed         int
	Failed         bool
}

func TestRefresh(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, upstream string
		age            time.Duration
		status         int
		body           string
		err            error
		want           outcome
		calls          int
	}{
		{name: "still queued", upstream: "up_1", body: providerObject("queued", ""), want: outcome{Status: "queued"}, calls: 1},
		{name: "in progress", upstream: "up_1", body: providerObject("processing", ""), want: outcome{Status: "in_progress"}, calls: 1},
		{name: "completed", upstream: "up_1", body: providerObject("completed", ""), want: outcome{Status: "completed", Billed: 1}, calls: 1},
		{name: "failed", upstream: "up_1", body: providerObject("failed", `,"error":{"code":"bad","message":"no"}`), want: outcome{Status: "failed"}, calls: 1},
		{name: "expired", upstream: "up_1", body: providerObject("expired", ""), want: outcome{Status: "failed"}, calls: 1},
		{name: "cancelled", upstream: "up_1", body: providerObject("cancelled", ""), want: outcome{Status: "failed"}, calls: 1},
		{name: "a word that nobody knows", upstream: "up_1", body: providerObject("rendering", ""), want: outcome{Status: "in_progress"}, calls: 1},
		{name: "no JSON", upstream: "up_1", body: "<html>", want: outcome{Status: "queued", Failed: true}, calls: 1},
		{name: "no object of a video", upstream: "up_1", body: "{}", want: outcome{Status: "queued", Failed: true}, calls: 1},
		{name: "provider fails", upstream: "up_1", status: 500, body: "{}", want: outcome{Status: "queued", Failed: true}, calls: 1},
		{name: "provider refuses us", upstream: "up_1", status: 401, body: "{}", want: outcome{Status: "queued", Failed: true}, calls: 1},
		{name: "provider is not there", upstream: "up_1", err: errNoReply, want: outcome{Status: "queued", Failed: true}, calls: 1},
		{name: "provider has lost it", upstream: "up_1", status: 404, body: "{}", want: outcome{Status: "failed", Reason: "does not know"}, calls: 1},
		{name: "provider has deleted it", upstream: "up_1", status: 410, body: "{}", want: outcome{Status: "failed", Reason: "does not know"}, calls: 1},
		{name: "its creation is under way", age: creationTimeout, want: outcome{Status: "queued"}},
		{name: "its creation was never confirmed", age: creationTimeout + time.Second, want: outcome{Status: "failed", Reason: "not known whether"}},
		{name: "old", upstream: "up_1", age: maxJobAge, body: providerObject("queued", ""), want: outcome{Status: "queued"}, calls: 1},
		{name: "too old", upstream: "up_1", age: maxJobAge + time.Second, body: providerObject("processing", ""), want: outcome{Status: "failed", Reason: "in time"}, calls: 1},
		{name: "too old, and nobody can tell", upstream: "up_1", age: maxJobAge + time.Second, err: errNoReply, want: outcome{Status: "failed", Reason: "in time"}, calls: 1},
		{name: "made while nobody asked", upstream: "up_1", age: 2 * maxJobAge, body: providerObject("completed", ""), want: outcome{Status: "completed", Billed: 1}, calls: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			v := w.createJob(t, tt.upstream)
			w.now = createdAt.Add(tt.age)
			if tt.status == 0 {
				tt.status = http.StatusOK
			}
			w.providers.status, w.providers.body, w.providers.err = tt.status, tt.body, tt.err
			got, err := w.Refresh(t.Context(), v)
			if got == nil {
				t.Fatalf("no job came back, error %v", err)
			}
			stored := w.store.job(jobID)
			if got.Status != stored.Status || got.Rev != stored.Rev {
				t.Errorf("got %s of rev %d; stored is %s of rev %d", got.Status, got.Rev, stored.Status, stored.Rev)
			}
			is := outcome{Status: got.Status, Billed: len(w.biller.events), Failed: err != nil}
			if tt.want.Reason != "" && strings.Contains(got.Error, tt.want.Reason) {
				is.Reason = tt.want.Reason
			}
			if tt.want.Reason == "" {
				is.Reason = got.Error
			}
			if diff := cmp.Diff(tt.want, is); diff != "" {
				t.Errorf("(-want +got), error %v:\n%s", err, diff)
			}
			if len(w.providers.calls) != tt.calls {
				t.Errorf("got %d calls; want %d", len(w.providers.calls), tt.calls)
			}
			var shown struct{ ID, Model, Status string }
			if err := json.Unmarshal(Object(got), &shown); err != nil || shown.ID != jobID || shown.Model != "film" || shown.Status != got.Status {
				t.Errorf("the client sees %s", Object(got))
			}
			if got.Ended() {
				w.providers.calls = nil
				if again, err := w.Refresh(t.Context(), got); again != got || err != nil || len(w.providers.calls) != 0 {
					t.Error("a job that has ended was asked about")
				}
			}
		})
	}
}

// A job is polled on the way on which it was made.
func TestRefreshAsksTheSameAccount(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.providers.body = providerObject("queued", "")
	if _, err := w.Refresh(t.Context(), w.createJob(t, "up_1")); err != nil {
		t.Fatal(err)
	}
	call := w.providers.calls[0]
	if call.Method != http.MethodGet || call.Path != "/v1/videos/up_1" || call.Provider.ID != "prv_1" || call.Credential.Reveal() != "secret" || call.Body != nil {
		t.Errorf("got call %+v", call)
	}
	for name, change := range map[string]func(v *event.Video){
		"provider": func(v *event.Video) { v.Provider = "prv_9" }, "credential": func(v *event.Video) { v.Credential = "crd_9" },
	} {
		v := w.store.job(jobID)
		change(&v)
		if got, err := w.Refresh(t.Context(), &v); err == nil || got != &v || len(w.providers.calls) != 1 {
			t.Errorf("without the %s: got %v, %v", name, got, err)
		}
	}
}

// The charge: the provider's own figures, else the client's wish, by the price
// of the time when the job was made.
func TestBill(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, more string
		want       price.Usage
		cost       int64
		rule       string
	}{
		{"as reported", `,"seconds":"8","size":"big"`, price.Usage{Seconds: 8, Size: "big"}, 400, event.RuleReported},
		{"a number", `,"seconds":8`, price.Usage{Seconds: 8, Size: "720x1280"}, 80, event.RuleReported},
		{"nothing reported", ``, price.Usage{Seconds: 4, Size: "720x1280"}, 40, event.RuleEstimated},
	}
	for _, tt := range tests {
		w := setup(t)
		w.providers.body = providerObject("completed", tt.more)
		w.now = createdAt.Add(time.Minute)
		if _, err := w.Refresh(t.Context(), w.createJob(t, "up_1")); err != nil {
			t.Fatal(err)
		}
		want := []event.Usage{{
			V: event.Version, RequestID: "req_1", AccountID: "acc_1", KeyID: "key_1", Model: "film", Format: "videos", Provider: "prv_1", Route: "rte_1",
			ProviderRequestID: "up_1", Status: event.Completed, HTTPStatus: 200, StartedMS: createdAt.UnixMilli(), FinishedMS: createdAt.Add(time.Minute).UnixMilli(),
			Usage: tt.want, Rule: tt.rule, Estimated: tt.rule == event.RuleEstimated, PriceVersion: 3, VideoJob: jobID,
		}}
		want[0].Cost = money.Nano(tt.cost)
		if diff := cmp.Diff(want, w.biller.events); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// A job is billed before its record says that it has ended: whoever dies in
// between leaves it open, and the charge is made again, the same.
func TestBilledBeforeItEnds(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		w := setup(t)
		v := w.createJob(t, "up_1")
		w.providers.body = providerObject("completed", `,"seconds":"8"`)
		w.store.failures, w.store.loseReplies = 1, lost
		got, err := w.Refresh(t.Context(), v)
		if got != v || !errors.Is(err, ErrUnavailable) {
			t.Errorf("got %v, %v; want the job as it was", got, err)
		}
		if got, err = w.newTracker().Refresh(t.Context(), v); err != nil || got.Status != event.VideoCompleted {
			t.Errorf("got %v, %v", got, err)
		}
		want := []string{"bill", "bill", "write completed"}
		if lost { // the answer was, not the update
			want = []string{"bill", "write completed", "bill"}
		}
		if diff := cmp.Diff(want, w.log); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if w.biller.events[0].Fingerprint() != w.biller.events[1].Fingerprint() {
			t.Error("the two charges differ in money")
		}
	}
}

// What cannot be billed stays open, however old it is: a proxy may begin to
// poll before it has a session.
func TestUnbilledStaysOpen(t *testing.T) {
	t.Parallel()
	for _, age := range []time.Duration{time.Minute, maxJobAge + time.Second} {
		w := setup(t)
		v := w.createJob(t, "up_1")
		w.now = createdAt.Add(age)
		w.providers.body = providerObject("completed", "")
		w.biller.err = errNoReply
		if got, err := w.Refresh(t.Context(), v); got.Status != event.VideoQueued || !errors.Is(err, errNoReply) {
			t.Errorf("after %s: got %v, %v", age, got, err)
		}
		w.biller.err = nil
		if got, err := w.Refresh(t.Context(), v); got.Status != event.VideoCompleted || err != nil || len(w.biller.events) != 1 {
			t.Errorf("after %s: got %v, %v, %d charges", age, got, err, len(w.biller.events))
		}
	}
}

// Of two proxies that see the end together, both charge the same and one
// writes.
func TestTwoSeeTheEnd(t *testing.T) {
	t.Parallel()
	w := setup(t)
	v := w.createJob(t, "up_1")
	w.providers.body = providerObject("completed", `,"seconds":"8"`)
	first, err := w.Refresh(t.Context(), v)
	if err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(time.Second)
	second, err := w.newTracker().Refresh(t.Context(), v) // read before the first wrote
	if err != nil || second.Rev != first.Rev || second.Status != event.VideoCompleted {
		t.Errorf("got %+v, %v; want %+v", second, err, first)
	}
	if w.biller.events[0].Fingerprint() != w.biller.events[1].Fingerprint() || w.store.writes != 1 {
		t.Errorf("%d writes, charges %+v", w.store.writes, w.biller.events)
	}
}

// Somebody else's progress stands, and the end is seen the next time.
func TestConflictWithProgress(t *testing.T) {
	t.Parallel()
	w := setup(t)
	v := w.createJob(t, "up_1")
	w.providers.body = providerObject("in_progress", "")
	if _, err := w.newTracker().Refresh(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	w.providers.body = providerObject("completed", "")
	got, err := w.Refresh(t.Context(), v)
	if err != nil || got.Status != event.VideoInProgress {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err = w.Refresh(t.Context(), got); err != nil || got.Status != event.VideoCompleted {
		t.Errorf("got %v, %v", got, err)
	}
}

// A look that brings nothing new writes nothing.
func TestNothingNewIsNotWritten(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.providers.body = providerObject("queued", "")
	v := w.createJob(t, "up_1")
	for range 3 {
		next, err := w.Refresh(t.Context(), v)
		if err != nil {
			t.Fatal(err)
		}
		v = next
	}
	if w.store.writes != 1 {
		t.Errorf("%d writes for one piece of news", w.store.writes)
	}
}

// The provider's words about a failure reach the client without what tells who
// it is.
func TestFailureIsCleaned(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.providers.body = providerObject("failed", `,"error":{"code":"bad_prompt","message":"up-film at http://vendor.invalid refused the prompt"}`)
	got, err := w.Refresh(t.Context(), w.createJob(t, "up_1"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(got.Object)
	if strings.Contains(text, "vendor") || strings.Contains(text, "up-film") || strings.Contains(text, "up_1") || !strings.Contains(text, "refused the prompt") || !strings.Contains(text, "bad_prompt") {
		t.Errorf("the client sees %s", text)
	}
}

// The id of a new job must be written: it is tried for as long as a control
// plane takes to come back.
func TestMadeIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := setup(t)
		v := w.createJob(t, "")
		w.store.failures = saveTries - 1
		started := time.Now()
		got, err := w.SaveCreated(t.Context(), v, []byte(providerObject("queued", "")))
		if err != nil || got.UpstreamID != "up_1" || got.Status != event.VideoQueued {
			t.Errorf("got %+v, %v", got, err)
		}
		if waited := time.Since(started); waited != (saveTries-1)*saveRetryInterval {
			t.Errorf("waited %s", waited)
		}

		v = w.createJob(t, "")
		w.store.failures = saveTries + 1
		if _, err := w.SaveCreated(t.Context(), v, []byte(providerObject("queued", ""))); !errors.Is(err, ErrUnavailable) || w.store.failures != 1 {
			t.Errorf("got %v with %d tries left", err, w.store.failures)
		}

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.SaveCreated(ctx, v, []byte(providerObject("queued", ""))); !errors.Is(err, ErrUnavailable) || w.store.failures != 0 {
			t.Errorf("got %v with %d tries left", err, w.store.failures)
		}
		if _, err := w.SaveCreated(t.Context(), v, []byte("{}")); !errors.Is(err, ErrNoObject) {
			t.Errorf("got %v", err)
		}
	})
}

// A job that is there at once and cannot be billed yet is not lost.
func TestMadeAndCompletedAtOnce(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.biller.err = errNoReply
	got, err := w.SaveCreated(t.Context(), w.createJob(t, ""), []byte(providerObject("completed", "")))
	if err != nil || got.UpstreamID != "up_1" || got.Ended() {
		t.Fatalf("got %+v, %v", got, err)
	}
	w.biller.err = nil
	w.providers.body = providerObject("completed", "")
	if got, err = w.Refresh(t.Context(), got); err != nil || got.Status != event.VideoCompleted || len(w.biller.events) != 1 {
		t.Errorf("got %+v, %v, %d charges", got, err, len(w.biller.events))
	}
}

func TestMoveRejectGiveUp(t *testing.T) {
	t.Parallel()
	w := setup(t)
	v := w.createJob(t, "")
	choice := route.Choice{
		Route: &catalog.Route{Route: catalogkv.Route{ID: "rte_2", UpstreamModel: "up-2"}, Provider: &catalog.Provider{Provider: catalogkv.Provider{ID: "prv_2"}}}, Credential: catalog.NewCredential("crd_2", "s"),
	}
	v, err := w.SetRoute(t.Context(), v, choice)
	if err != nil || v.Provider != "prv_2" || v.Route != "rte_2" || v.Credential != "crd_2" || v.UpstreamModel != "up-2" || v.Rev != 2 {
		t.Errorf("got %+v, %v", v, err)
	}
	if v, err = w.Reject(t.Context(), v); err != nil || v.Status != event.VideoFailed || v.Error != "" {
		t.Errorf("rejected: got %+v, %v", v, err)
	}
	v = w.createJob(t, "")
	if v, err = w.Abandon(t.Context(), v, "why"); err != nil || v.Status != event.VideoFailed || v.Error != "why" {
		t.Errorf("given up: got %+v, %v", v, err)
	}
	var shown struct{ Error *objectError }
	if err := json.Unmarshal(Object(v), &shown); err != nil || shown.Error == nil || shown.Error.Code != "generation_failed" || strings.Contains(string(Object(v)), "why") {
		t.Errorf("the client sees %s", Object(v))
	}
	if len(w.biller.events) != 0 {
		t.Errorf("got charges %+v", w.biller.events)
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.createJob(t, "up_1")
	for _, tt := range []struct {
		id, account string
		want        error
	}{{jobID, "acc_1", nil}, {jobID, "", nil}, {jobID, "acc_2", ErrNotFound}, {"video_2", "acc_1", ErrNotFound}} {
		if _, err := w.Find(t.Context(), tt.id, tt.account); !errors.Is(err, tt.want) {
			t.Errorf("%s of %s: got %v; want %v", tt.id, tt.account, err, tt.want)
		}
	}
	w.store.down = true
	if _, err := w.Find(t.Context(), jobID, ""); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
