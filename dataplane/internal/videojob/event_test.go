package videojob

import (
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// lost returns the event of a job that failed, without an attempt.
func lost() event.Usage {
	return event.Usage{
		V: event.Version, RequestID: "req_1", AccountID: "acc_1", KeyID: "key_1", Model: "film", Format: "videos", Provider: "prv_1", Route: "rte_1",
		Credential: "main", ProviderRequestID: "up_1", Status: event.Failed, HTTPStatus: 200, StartedMS: createdAt.UnixMilli(), Rule: event.RuleNone,
		PriceVersion: 3, VideoJob: jobID,
	}
}

// losing returns that event with what the provider may charge.
func losing(seconds int64, estimated bool) event.Usage {
	e := lost()
	e.Attempts = []event.Attempt{{
		Route: "rte_1", Provider: "prv_1", Credential: "crd_1", CredentialName: "main", Class: "unavailable",
		Usage: price.Usage{Seconds: seconds, Size: "720x1280"}, Estimated: estimated, ProviderRequestID: "up_1",
	}}
	return e
}

// unaccepted is an event of a job of which no provider's id is known.
func unaccepted(e event.Usage) event.Usage {
	e.ProviderRequestID, e.HTTPStatus, e.Attempts[0].ProviderRequestID = "", 502, ""
	return e
}

// A job without a video charges nothing. It has what the provider says it has made; if nobody knows what became of it, what was asked
// for, as an estimate; and nothing if no provider has it.
func TestFailedJobReportsWhatItMayHaveCost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, upstream string
		status         int
		body           string
		age            time.Duration
		reject         bool
		reason         string
		want           []event.Usage
	}{
		{"nothing made", "up_1", 200, providerObject("failed", `,"seconds":"8","size":"big"`), 0, false, "", []event.Usage{lost()}},
		{"expired", "up_1", 200, providerObject("expired", ``), 0, false, "", []event.Usage{lost()}},
		{"made", "up_1", 200, providerObject("failed", `,"seconds":"8","usage":{"video_seconds":3}`), 0, false, "", []event.Usage{losing(3, false)}},
		{"made before a filter", "up_1", 200, providerObject("moderated", `,"task_result":{"videos":[{"duration":"5"}]}`), 0, false, "", []event.Usage{losing(5, false)}},
		{"made more than can be", "up_1", 200, providerObject("failed", `,"usage":{"video_seconds":86399}`), 0, false, "", []event.Usage{losing(4, true)}},
		{"gone", "up_1", 404, "{}", visibleAfter, false, "", []event.Usage{losing(4, true)}},
		{"too old", "up_1", 200, providerObject("in_progress", ""), maxJobAge + time.Second, false, "", []event.Usage{losing(4, true)}},
		{"not known whether it was accepted", "", 0, "", creationTimeout + time.Second, false, "", []event.Usage{unaccepted(losing(4, true))}},
		{"answer of the creation lost", "", 0, "", 0, true, "it is not known", []event.Usage{unaccepted(losing(4, true))}},
		{"refused by the provider", "", 0, "", 0, true, "", nil},
		{"completed", "up_1", 200, providerObject("completed", `,"usage":{"video_seconds":4}`), 0, false, "", nil},
		{"open", "up_1", 200, providerObject("queued", `,"usage":{"video_seconds":4}`), 0, false, "", nil},
	} {
		f := setup(t)
		v := f.createJob(t, tt.upstream)
		f.providers.respond(tt.status, tt.body)
		f.now = createdAt.Add(tt.age)
		if tt.reject {
			f.Reject(t.Context(), v, tt.reason)
			recorded := f.store.job(jobID)
			v = &recorded
		} else {
			var err error
			if v, err = f.Refresh(t.Context(), v); err != nil {
				t.Fatal(tt.name, err)
			}
		}
		f.charger.events = nil // the charge of the completed one
		if err := f.ReportLoss(v); err != nil {
			t.Fatal(tt.name, err)
		}
		if diff := cmp.Diff(tt.want, f.charger.events, cmpopts.IgnoreFields(event.Usage{}, "FinishedMS")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Whatever fails, and whichever proxy polls: the loss of a job that fails is reported before its task leaves the queue, all reports
// agree, and a job that completes has none.
func TestEveryFailedJobIsReportedWhateverFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(300) {
			checkReported(t, rand.New(rand.NewPCG(seed, 1)), seed)
		}
	})
}

func checkReported(t *testing.T, r *rand.Rand, seed uint64) {
	t.Helper()
	f := setup(t)
	f.createJob(t, "up_1")
	fails := r.IntN(4) > 0
	acknowledged := false
	for step := 0; !acknowledged; step++ {
		f.charger.err = nil
		faults := map[string][]fault{}
		if step < 12 { // then nothing fails any more
			faults["update"] = []fault{fault(r.IntN(3)), fault(r.IntN(3))}
			f.store.setDown(r.IntN(5) == 0)
			if r.IntN(3) == 0 {
				f.charger.err = errNoReply
			}
		} else {
			f.store.setDown(false)
		}
		f.store.setFaults(faults)
		switch {
		case step < r.IntN(6):
			f.providers.respond(200, providerObject("in_progress", ""))
		case !fails:
			f.providers.respond(200, providerObject("completed", ""))
		case r.IntN(2) == 0 && step > 3:
			f.now = createdAt.Add(visibleAfter)
			f.providers.respond(404, "{}")
		default:
			f.providers.respond(200, providerObject("failed", `,"usage":{"video_seconds":3}`))
		}

		if r.IntN(3) == 0 { // a client sees the end first
			if v, err := f.Find(t.Context(), jobID, ""); err == nil {
				_, _ = f.Refresh(t.Context(), v)
			}
		}
		p := NewPoller(f.newTracker(t), newQueue(), slog.New(slog.DiscardHandler))
		p.poll(t.Context(), &Task{
			Poll: event.VideoPoll{V: event.Version, ID: jobID}, Deliveries: 1,
			Acknowledge: func() { acknowledged = true }, RetryAfter: func(time.Duration) {},
		})
		f.now = f.now.Add(time.Second)
	}

	if len(f.charger.events) == 0 {
		t.Errorf("seed %d: the task is gone, and there is no event", seed)
	}
	for _, e := range f.charger.events {
		if (e.Status == event.Failed) != fails || (e.Cost == 0) != fails {
			t.Errorf("seed %d: got %+v; the job fails: %t", seed, e, fails)
		}
		if first := f.charger.events[0]; e.Fingerprint() != first.Fingerprint() || !cmp.Equal(e.Attempts, first.Attempts) {
			t.Errorf("seed %d: reports contradict each other: %+v and %+v", seed, first, e)
		}
	}
}
