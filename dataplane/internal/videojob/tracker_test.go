package videojob

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/route"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/limit"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

// outcome is the result of Refresh.
type outcome struct {
	Status  string
	Reason  string // of the failure, for operators
	Charges int    // how many charges were made
	Failed  bool   // Refresh has returned an error
}

func TestRefreshRecordsProviderState(t *testing.T) {
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
		{name: "completed", upstream: "up_1", body: providerObject("completed", ""), want: outcome{Status: "completed", Charges: 1}, calls: 1},
		{name: "failed", upstream: "up_1", body: providerObject("failed", `,"error":{"code":"bad","message":"no"}`), want: outcome{Status: "failed"}, calls: 1},
		{name: "expired", upstream: "up_1", body: providerObject("expired", ""), want: outcome{Status: "failed"}, calls: 1},
		{name: "cancelled", upstream: "up_1", body: providerObject("cancelled", ""), want: outcome{Status: "failed"}, calls: 1},
		{name: "unknown status", upstream: "up_1", body: providerObject("musing", ""), want: outcome{Status: "in_progress"}, calls: 1},
		{name: "answer is not JSON", upstream: "up_1", body: "<html>", want: outcome{Status: "queued", Failed: true}, calls: 1},
		{name: "answer is not a video object", upstream: "up_1", body: "{}", want: outcome{Status: "queued", Failed: true}, calls: 1},
		{name: "provider fails", upstream: "up_1", status: 500, body: "{}", want: outcome{Status: "queued", Failed: true}, calls: 1},
		{name: "provider refuses the credential", upstream: "up_1", status: 401, body: "{}", want: outcome{Status: "queued", Failed: true}, calls: 1},
		{name: "provider does not answer", upstream: "up_1", err: errNoReply, want: outcome{Status: "queued", Failed: true}, calls: 1},
		{name: "provider does not know the job", upstream: "up_1", age: visibleAfter, status: 404, body: "{}", want: outcome{Status: "failed", Reason: "does not know"}, calls: 1},
		{name: "provider has deleted the job", upstream: "up_1", age: visibleAfter, status: 410, body: "{}", want: outcome{Status: "failed", Reason: "does not know"}, calls: 1},
		{name: "provider does not know the job yet", upstream: "up_1", status: 404, body: "{}", want: outcome{Status: "queued", Failed: true}, calls: 1},
		{name: "completed, in capitals", upstream: "up_1", body: providerObject("SUCCEEDED", ""), want: outcome{Status: "completed", Charges: 1}, calls: 1},
		{name: "creation is under way", age: creationTimeout, want: outcome{Status: "queued"}},
		{name: "creation was not confirmed in time", age: creationTimeout + time.Second, want: outcome{Status: "failed", Reason: "not known whether"}},
		{name: "old", upstream: "up_1", age: maxJobAge, body: providerObject("queued", ""), want: outcome{Status: "queued"}, calls: 1},
		{name: "too old", upstream: "up_1", age: maxJobAge + time.Second, body: providerObject("processing", ""), want: outcome{Status: "failed", Reason: "in time"}, calls: 1},
		{name: "too old, and the provider does not answer", upstream: "up_1", age: maxJobAge + time.Second, err: errNoReply, want: outcome{Status: "failed", Reason: "in time"}, calls: 1},
		{name: "too old, but completed", upstream: "up_1", age: 2 * maxJobAge, body: providerObject("completed", ""), want: outcome{Status: "completed", Charges: 1}, calls: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			v := f.createJob(t, tt.upstream)
			f.now = createdAt.Add(tt.age)
			if tt.status == 0 {
				tt.status = http.StatusOK
			}
			f.providers.status, f.providers.body, f.providers.err = tt.status, tt.body, tt.err
			got, err := f.Refresh(t.Context(), v)
			if got == nil {
				t.Fatalf("got no job, error %v", err)
			}
			stored := f.store.job(jobID)
			if got.Status != stored.Status || got.Rev != stored.Rev {
				t.Errorf("got status %s, revision %d; the record has %s, revision %d", got.Status, got.Rev, stored.Status, stored.Rev)
			}
			result := outcome{Status: got.Status, Charges: len(f.charger.events), Failed: err != nil}
			if tt.want.Reason != "" && strings.Contains(got.Error, tt.want.Reason) {
				result.Reason = tt.want.Reason
			}
			if tt.want.Reason == "" {
				result.Reason = got.Error
			}
			if diff := cmp.Diff(tt.want, result); diff != "" {
				t.Errorf("outcome (-want +got), error %v:\n%s", err, diff)
			}
			if len(f.providers.calls) != tt.calls {
				t.Errorf("got %d calls; want %d", len(f.providers.calls), tt.calls)
			}
			var shown struct{ ID, Model, Status string }
			if err := json.Unmarshal(Object(got), &shown); err != nil || shown.ID != jobID || shown.Model != "film" || shown.Status != got.Status {
				t.Errorf("the client gets %s", Object(got))
			}
			if got.Ended() {
				f.providers.calls = nil
				if again, err := f.Refresh(t.Context(), got); again != got || err != nil || len(f.providers.calls) != 0 {
					t.Error("a job that has ended was polled")
				}
			}
		})
	}
}

// A job is polled at the provider and with the credential that created it.
func TestRefreshUsesCredentialOfCreation(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.providers.body = providerObject("queued", "")
	if _, err := f.Refresh(t.Context(), f.createJob(t, "up_1")); err != nil {
		t.Fatal(err)
	}
	call := f.providers.calls[0]
	if call.Method != http.MethodGet || call.Path != "/v1/videos/up_1" || call.Provider.ID != "prv_1" || call.Credential.Reveal() != "secret" || call.Body != nil {
		t.Errorf("got call %+v", call)
	}
	for name, change := range map[string]func(v *event.Video){
		"provider": func(v *event.Video) { v.Provider = "prv_9" }, "credential": func(v *event.Video) { v.Credential = "crd_9" },
	} {
		v := f.store.job(jobID)
		change(&v)
		if got, err := f.Refresh(t.Context(), &v); err == nil || got != &v || len(f.providers.calls) != 1 {
			t.Errorf("without the %s: got %v, %v; want the job as it was and an error", name, got, err)
		}
	}
}

// A completed job is charged for the duration and size that the provider reports,
// otherwise for those of the request, at the prices of the time of creation.
func TestCompletedJobIsCharged(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, more string
		want       price.Usage
		cost       int64
		rule       string
	}{
		{"duration and size reported", `,"seconds":"8","size":"big"`, price.Usage{Seconds: 8, Size: "big"}, 400, event.RuleReported},
		{"duration as a number", `,"seconds":8`, price.Usage{Seconds: 8, Size: "720x1280"}, 80, event.RuleReported},
		{"nothing reported", ``, price.Usage{Seconds: 4, Size: "720x1280"}, 40, event.RuleEstimated},
	}
	for _, tt := range tests {
		f := setup(t)
		f.providers.body = providerObject("completed", tt.more)
		f.now = createdAt.Add(time.Minute)
		if _, err := f.Refresh(t.Context(), f.createJob(t, "up_1")); err != nil {
			t.Fatal(err)
		}
		want := []event.Usage{{
			V: event.Version, RequestID: "req_1", AccountID: "acc_1", KeyID: "key_1", Model: "film", Format: "videos", Provider: "prv_1", Route: "rte_1",
			Credential: "main", ProviderRequestID: "up_1", Status: event.Completed, HTTPStatus: 200, StartedMS: createdAt.UnixMilli(), FinishedMS: createdAt.Add(time.Minute).UnixMilli(),
			Usage: tt.want, Rule: tt.rule, Estimated: tt.rule == event.RuleEstimated, PriceVersion: 3, VideoJob: jobID, MaxSeconds: 4,
		}}
		want[0].Cost = money.Nano(tt.cost)
		if want[0].Estimated {
			want[0].Doubt = "missing"
		}
		if diff := cmp.Diff(want, f.charger.events); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// A completed job of a size or length without a price ends all the same, and its usage is reported for the quarantine.
func TestCompletedJobWithoutAPriceIsReported(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, more string
		sheet      *price.Sheet
		want       price.Usage
	}{
		{"size without a price", `,"seconds":"8","size":"huge"`, &price.Sheet{Version: 3, Seconds: []price.UnitPrice{{Size: "720x1280", Price: 10}}}, price.Usage{Seconds: 8, Size: "huge"}},
		{"no sheet", ``, nil, price.Usage{Seconds: 4, Size: "720x1280"}},
		{"more than any amount", `,"seconds":"8"`, &price.Sheet{Version: 3, Seconds: []price.UnitPrice{{Price: 1 << 62}}}, price.Usage{Seconds: 8, Size: "720x1280"}},
	} {
		f := setup(t)
		v := newJob("up_1")
		v.Sheet, v.ExpectedCost = tt.sheet, 40
		v, err := f.Create(t.Context(), v)
		if err != nil {
			t.Fatal(err)
		}
		f.providers.body = providerObject("completed", tt.more)
		got, err := f.Refresh(t.Context(), v)
		if err != nil || got.Status != event.VideoCompleted {
			t.Errorf("%s: got %s, %v; want a completed job", tt.name, got.Status, err)
		}
		if len(f.charger.events) != 1 || f.charger.events[0].Cost != 40 || f.charger.events[0].Usage != tt.want {
			t.Errorf("%s: got the charges %+v; want %+v for the expected cost", tt.name, f.charger.events, tt.want)
		}
	}
}

// A job is charged to the windows of limits in which the control plane has created it, whether it is completed at once or later.
func TestJobIsChargedToTheWindowsOfItsCreation(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"completed", "queued"} {
		f := setup(t)
		f.store.limits = []int64{limit.Pool(7, 1), limit.Pool(8, 0)}
		v, err := f.Create(t.Context(), newJob(""))
		if err != nil {
			t.Fatal(err)
		}
		if v, err = f.SaveCreated(t.Context(), v, []byte(providerObject(first, ""))); err != nil {
			t.Fatal(err)
		}
		f.providers.body = providerObject("completed", "")
		if _, err = f.Refresh(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		if len(f.charger.events) != 1 || !slices.Equal(f.charger.events[0].Limits, f.store.limits) {
			t.Errorf("%s first: got the charges %+v; want one with %v", first, f.charger.events, f.store.limits)
		}
	}
}

// A job is charged before its record says that it is completed. If the record cannot
// be written, the job stays open, and the same charge is made again.
func TestJobIsChargedBeforeItsRecordIsWritten(t *testing.T) {
	t.Parallel()
	for _, loseReply := range []bool{false, true} {
		f := setup(t)
		v := f.createJob(t, "up_1")
		f.providers.body = providerObject("completed", `,"seconds":"8"`)
		f.store.failures, f.store.loseReplies = 1, loseReply
		got, err := f.Refresh(t.Context(), v)
		if got != v || !errors.Is(err, ErrUnavailable) {
			t.Errorf("got %v, %v; want the job as it was and %v", got, err, ErrUnavailable)
		}
		if got, err = f.newTracker(t).Refresh(t.Context(), v); err != nil || got.Status != event.VideoCompleted {
			t.Errorf("at another proxy: got %v, %v; want a completed job", got, err)
		}
		want := []string{"charge", "charge", "write completed"}
		if loseReply { // the update was made all the same
			want = []string{"charge", "write completed", "charge"}
		}
		if diff := cmp.Diff(want, f.log); diff != "" {
			t.Errorf("charges and writes (-want +got):\n%s", diff)
		}
		if f.charger.events[0].Fingerprint() != f.charger.events[1].Fingerprint() {
			t.Error("the two charges have different fingerprints")
		}
	}
}

// A job that cannot be charged stays open, however old it is: a proxy may poll
// before it has a session.
func TestJobThatCannotBeChargedStaysOpen(t *testing.T) {
	t.Parallel()
	for _, age := range []time.Duration{time.Minute, maxJobAge + time.Second} {
		f := setup(t)
		v := f.createJob(t, "up_1")
		f.now = createdAt.Add(age)
		f.providers.body = providerObject("completed", "")
		f.charger.err = errNoReply
		if got, err := f.Refresh(t.Context(), v); got.Status != event.VideoQueued || !errors.Is(err, errNoReply) {
			t.Errorf("after %s: got %v, %v; want a queued job and %v", age, got, err, errNoReply)
		}
		f.charger.err = nil
		if got, err := f.Refresh(t.Context(), v); got.Status != event.VideoCompleted || err != nil || len(f.charger.events) != 1 {
			t.Errorf("after %s: got %v, %v, %d charges; want a completed job and 1 charge", age, got, err, len(f.charger.events))
		}
	}
}

// Two proxies see the end of a job at once: both make the same charge, and one
// writes the record.
func TestTwoProxiesSeeTheEnd(t *testing.T) {
	t.Parallel()
	f := setup(t)
	v := f.createJob(t, "up_1")
	f.providers.body = providerObject("completed", `,"seconds":"8"`)
	first, err := f.Refresh(t.Context(), v)
	if err != nil {
		t.Fatal(err)
	}
	f.now = f.now.Add(time.Second)
	second, err := f.newTracker(t).Refresh(t.Context(), v) // v was read before the first proxy wrote
	if err != nil || second.Rev != first.Rev || second.Status != event.VideoCompleted {
		t.Errorf("got %+v, %v; want %+v", second, err, first)
	}
	if f.charger.events[0].Fingerprint() != f.charger.events[1].Fingerprint() || f.store.writes != 1 {
		t.Errorf("%d writes, charges %+v; want 1 write and equal charges", f.store.writes, f.charger.events)
	}
}

// A record that another proxy has changed meanwhile is not overwritten; the end is
// recorded at the next poll.
func TestConflictKeepsRecordOfOtherProxy(t *testing.T) {
	t.Parallel()
	f := setup(t)
	v := f.createJob(t, "up_1")
	f.providers.body = providerObject("in_progress", "")
	if _, err := f.newTracker(t).Refresh(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	f.providers.body = providerObject("completed", "")
	got, err := f.Refresh(t.Context(), v)
	if err != nil || got.Status != event.VideoInProgress {
		t.Errorf("got %v, %v; want the record of the other proxy", got, err)
	}
	if got, err = f.Refresh(t.Context(), got); err != nil || got.Status != event.VideoCompleted {
		t.Errorf("at the next poll: got %v, %v; want a completed job", got, err)
	}
}

func TestUnchangedStateIsNotWritten(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.providers.body = providerObject("queued", "")
	v := f.createJob(t, "up_1")
	for range 3 {
		next, err := f.Refresh(t.Context(), v)
		if err != nil {
			t.Fatal(err)
		}
		v = next
	}
	if f.store.writes != 1 {
		t.Errorf("%d writes for one change; want 1", f.store.writes)
	}
}

func TestUnknownStateIsCounted(t *testing.T) {
	t.Parallel()
	f := setup(t)
	v := f.createJob(t, "up_1")
	for _, state := range []string{"processing", "musing", "musing", "completed"} {
		f.providers.body = providerObject(state, `,"video":{"duration_seconds":"8s"}`)
		next, err := f.Refresh(t.Context(), v)
		if err != nil {
			t.Fatal(err)
		}
		v = next
	}
	if diff := cmp.Diff([]string{"prv_1", "prv_1"}, f.charger.unknown); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	if len(f.charger.events) != 1 || f.charger.events[0].Usage.Seconds != 8 || f.charger.events[0].Estimated {
		t.Errorf("charged %+v; want 8 seconds as reported", f.charger.events)
	}
}

// The client gets the provider's error without the provider's name, address, model
// and id.
func TestErrorDoesNotIdentifyProvider(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.providers.body = providerObject("failed", `,"error":{"code":"bad_prompt","message":"up-film at http://vendor.invalid refused the prompt"}`)
	got, err := f.Refresh(t.Context(), f.createJob(t, "up_1"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(got.Object)
	if strings.Contains(text, "vendor") || strings.Contains(text, "up-film") || strings.Contains(text, "up_1") || !strings.Contains(text, "refused the prompt") || !strings.Contains(text, "bad_prompt") {
		t.Errorf("the client gets %s", text)
	}
}

// A client does not read of the gateway's account, in whichever member the provider writes of it.
func TestFailureThatConcernsTheAccountHasNoReason(t *testing.T) {
	t.Parallel()
	for _, more := range []string{
		`,"error":{"code":"x","message":"Insufficient account balance, please top up"}`,
		`,"error":"Insufficient account balance, please top up"`,
		`,"error":null,"failure_reason":"Insufficient account balance, please top up"`,
	} {
		f := setup(t)
		f.providers.body = providerObject("failed", more)
		got, err := f.Refresh(t.Context(), f.createJob(t, "up_1"))
		if err != nil {
			t.Fatal(err)
		}
		if text := string(got.Object); strings.Contains(text, "balance") || !strings.Contains(text, `"generation_failed"`) {
			t.Errorf("%s: the client gets %s", more, text)
		}
	}
}

// A job that is completed at its creation and cannot be charged yet is not lost.
func TestSaveCreatedKeepsJobThatCannotBeCharged(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.charger.err = errNoReply
	got, err := f.SaveCreated(t.Context(), f.createJob(t, ""), []byte(providerObject("completed", "")))
	if err != nil || got.UpstreamID != "up_1" || got.Ended() {
		t.Fatalf("got %+v, %v; want an open job with the provider's id", got, err)
	}
	f.charger.err = nil
	f.providers.body = providerObject("completed", "")
	if got, err = f.Refresh(t.Context(), got); err != nil || got.Status != event.VideoCompleted || len(f.charger.events) != 1 {
		t.Errorf("got %+v, %v, %d charges; want a completed job and 1 charge", got, err, len(f.charger.events))
	}
}

func TestSetRouteRecordsTheRoute(t *testing.T) {
	t.Parallel()
	f := setup(t)
	v := f.createJob(t, "")
	choice := route.Choice{
		Route: &catalog.Route{Route: catalogkv.Route{ID: "rte_2", UpstreamModel: "up-2"}, Provider: &catalog.Provider{Provider: catalogkv.Provider{ID: "prv_2"}}}, Credential: catalog.NewCredential("crd_2", "s"),
	}
	v, err := f.SetRoute(t.Context(), v, choice)
	if err != nil || v.Provider != "prv_2" || v.Route != "rte_2" || v.Credential != "crd_2" || v.UpstreamModel != "up-2" || v.Rev != 2 {
		t.Errorf("got %+v, %v; want the route of the choice", v, err)
	}
}

func TestRejectEndsJobWithoutCharge(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, reason := range []string{"", "a reason"} {
		f.Reject(t.Context(), f.createJob(t, ""), reason)
		v := f.store.job(jobID)
		if v.Status != event.VideoFailed || v.Error != reason {
			t.Errorf("got %+v; want a failed job with the reason %q", v, reason)
		}
		var shown struct{ Error *objectError }
		if err := json.Unmarshal(Object(&v), &shown); err != nil || shown.Error == nil || shown.Error.Code != "generation_failed" || strings.Contains(string(Object(&v)), "a reason") {
			t.Errorf("the client gets %s", Object(&v))
		}
	}
	if len(f.charger.events) != 0 {
		t.Errorf("got charges %+v; want none", f.charger.events)
	}
}

func TestFindReturnsJobsOfTheAccount(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.createJob(t, "up_1")
	for _, tt := range []struct {
		id, account string
		want        error
	}{{jobID, "acc_1", nil}, {jobID, "", nil}, {jobID, "acc_2", ErrNotFound}, {"video_2", "acc_1", ErrNotFound}} {
		if _, err := f.Find(t.Context(), tt.id, tt.account); !errors.Is(err, tt.want) {
			t.Errorf("job %s of account %q: got %v; want %v", tt.id, tt.account, err, tt.want)
		}
	}
	f.store.down = true
	if _, err := f.Find(t.Context(), jobID, ""); !errors.Is(err, ErrUnavailable) {
		t.Errorf("without a control plane: got %v; want %v", err, ErrUnavailable)
	}
}

func TestClientsPollAJobOnceASecond(t *testing.T) {
	t.Parallel()
	l := looks{at: map[string]time.Time{}}
	for i, step := range []struct {
		id   string
		at   time.Duration
		want bool
	}{
		{"video_1", 0, true},
		{"video_1", 0, false},
		{"video_2", 0, true},
		{"video_1", lookInterval - 1, false},
		{"video_1", lookInterval, true},
		{"video_1", 2*lookInterval - 1, false},
		{"video_2", 2*lookInterval - 1, true},
	} {
		if got := l.begin(step.id, createdAt.Add(step.at)); got != step.want {
			t.Errorf("step %d: got %v; want %v", i, got, step.want)
		}
	}
	for i := range 2 * maxLooks {
		l.begin(strconv.Itoa(i), createdAt.Add(time.Hour))
	}
	if n := len(l.at); n > maxLooks {
		t.Errorf("%d jobs are kept; want at most %d", n, maxLooks)
	}
}
