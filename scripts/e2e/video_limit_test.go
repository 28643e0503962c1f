package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/ident"
)

// heldVideos is a provider whose video jobs are in progress until the test completes them.
type heldVideos struct {
	model string
	// made is how many jobs it has, ended how many of them, the oldest ones, are completed.
	made, ended atomic.Int64
}

func newHeldVideos(t *testing.T, r *rig.Rig) *heldVideos {
	t.Helper()
	h := &heldVideos{}
	server := httptest.NewServer(http.HandlerFunc(h.serve))
	t.Cleanup(server.Close)
	provider := r.Provider(t, rig.Provider{BaseURL: server.URL})
	h.model = r.Model(t, rig.Model{Type: "video", Routes: []rig.Route{{Provider: provider, UpstreamModel: "held", Formats: []string{"videos"}}}})
	return h
}

func (h *heldVideos) serve(w http.ResponseWriter, q *http.Request) {
	n, _ := strconv.ParseInt(q.URL.Path[strings.LastIndexByte(q.URL.Path, '_')+1:], 10, 64)
	if q.Method == http.MethodPost {
		n = h.made.Add(1)
	}
	status := "in_progress"
	if n <= h.ended.Load() {
		status = "completed"
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"id": fmt.Sprintf("held_%d", n), "object": "video", "model": "held", "status": status, "seconds": "4"})
}

// create asks for a video and returns the id of the job and the outcome, with the headers that name a limit.
func (h *heldVideos) create(t *testing.T, r *rig.Rig, proxy int, key string) (id string, got outcome) {
	t.Helper()
	answer, err := r.Ask(t.Context(), rig.Request{Proxy: proxy, Path: videos.path, Key: key, Body: videos.body(h.model)})
	if err != nil {
		return "", outcome(err.Error())
	}
	if answer.Status == http.StatusAccepted {
		var job video
		if err := json.Unmarshal(answer.Body, &job); err != nil {
			return "", outcome(err.Error())
		}
		return job.ID, "202"
	}
	got = outcomeOf(t, answer)
	for _, name := range []string{"x-limit-scope", "x-limit-id", "x-limit-resets-at"} {
		got += outcome(" " + answer.Header.Get(name))
	}
	return "", got
}

// complete completes the account's jobs, the oldest of all, and waits until they are billed.
func (h *heldVideos) complete(t *testing.T, r *rig.Rig, a *rig.Account, jobs []string) {
	t.Helper()
	h.ended.Store(int64(len(jobs)))
	for i, id := range jobs {
		rig.Await(t, "a video to be completed", func(ctx context.Context) error {
			var job video
			answer, err := r.Try(ctx, rig.Request{Proxy: i % len(r.Proxies), Path: "/v1/videos/" + id, Key: a.Key})
			if err != nil {
				return err
			}
			if err := json.Unmarshal(answer.Body, &job); err != nil || job.Status != "completed" {
				return fmt.Errorf("got %s, %w", answer, err)
			}
			return nil
		})
	}
	a.AwaitUsage(t, len(jobs))
}

// windowFigures are those of a window, without its times.
type windowFigures struct{ Amount, Spent, Reserved, Left string }

// awaitWindows waits until the windows of a limit, newest first, have the figures.
func awaitWindows(t *testing.T, r *rig.Rig, limitID string, want []windowFigures) {
	t.Helper()
	rig.Await(t, "the windows of the limit", func(ctx context.Context) error {
		windows, err := r.Windows(ctx, limitID)
		if err != nil {
			return err
		}
		var got []windowFigures
		for _, w := range windows {
			got = append(got, windowFigures{w.Amount, w.Spent, w.Reserved, w.Left})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("windows (-want +got):\n%s", diff)
		}
		return nil
	})
}

// An hour from the first request that counts in it.
func hourOfFirstUse() adminclient.LimitPeriod {
	return adminclient.LimitPeriod{Period: "first_use", LengthSeconds: new(int64(3600))}
}

// videoClients are more than the jobs that fit.
const videoClients = 60

// Sixty clients on both proxies create video jobs at the same time, of which exactly 37 fit in a limit. One limit at a time: the others
// of this machine's tests need the control plane, too.
func TestExactlyAsManyVideosAsFitInALimitAreCreated(t *testing.T) {
	t.Parallel()
	forever := adminclient.LimitPeriod{Period: "forever"}
	for _, tt := range []struct {
		scope  string
		window adminclient.LimitPeriod
	}{{"account", forever}, {"account", hourOfFirstUse()}, {"key", forever}, {"key", hourOfFirstUse()}} {
		t.Run(tt.scope+" "+string(tt.window.Period), func(t *testing.T) {
			r := rig.Get(t)
			h := newHeldVideos(t, r)
			a := r.Account(t, rig.AccountSpec{})
			create := adminclient.LimitCreate{Amount: "14.80", Window: tt.window, Models: []string{h.model}} // 37 of 0.40
			if tt.scope == "key" {
				create.KeyID = &a.KeyID
			}
			limit := a.NewLimit(t, create)

			var jobs []string
			var refused []outcome
			var mu sync.Mutex
			var clients sync.WaitGroup
			for i := range videoClients {
				clients.Go(func() {
					id, got := h.create(t, r, i%len(r.Proxies), a.Key)
					mu.Lock()
					defer mu.Unlock()
					if id != "" {
						jobs = append(jobs, id)
					} else {
						refused = append(refused, got)
					}
				})
			}
			clients.Wait()

			windows, err := r.Windows(t.Context(), limit.ID)
			if err != nil || len(windows) != 1 {
				t.Fatalf("got %d windows, %v; want one", len(windows), err)
			}
			want := outcome("403 spend_limit_exceeded  " + tt.scope + " " + limit.ID + " ")
			if ends := windows[0].EndsAt; ends != nil {
				want += outcome(ends.UTC().Format(time.RFC3339))
			}
			for _, got := range refused {
				if got != want {
					t.Errorf("got %q; want %q", got, want)
				}
			}
			if len(jobs) != fit || h.made.Load() != fit {
				t.Errorf("%d jobs were created, %d at the provider; want %d", len(jobs), h.made.Load(), fit)
			}

			h.complete(t, r, a, jobs)
			awaitWindows(t, r, limit.ID, []windowFigures{{"14.80", "14.80", "0.00", "0.00"}})
			if _, got := h.create(t, r, 0, a.Key); got != want {
				t.Errorf("after the jobs were billed: got %q; want %q", got, want)
			}
			r.CheckLedger(t)
		})
	}
}

// A job that ends after its window is counted in the window of its creation, and in no other.
func TestVideoThatOutlastsItsWindowCountsInThatOfItsCreation(t *testing.T) {
	t.Parallel()
	r := rig.Get(t)
	h := newHeldVideos(t, r)
	a := r.Account(t, rig.AccountSpec{})
	limit := a.NewLimit(t, adminclient.LimitCreate{Amount: "0.40", Window: hourOfFirstUse()})
	first, _ := h.create(t, r, 0, a.Key)
	if _, got := h.create(t, r, 1, a.Key); first == "" || !strings.HasPrefix(string(got), "403 spend_limit_exceeded  account "+limit.ID) {
		t.Fatalf("a further job of the window: got %q; want a refusal", got)
	}

	id, err := ident.Limit.Parse(limit.ID)
	if err != nil {
		t.Fatal(err)
	}
	ended, err := r.Number(t.Context(), `with ended as (
		update pools set starts_at = starts_at - interval '2 hours', ends_at = ends_at - interval '2 hours'
		where limit_number = (select number from limits where id = $1) returning 1
	) select count(*) from ended`, id)
	if err != nil || ended != 1 {
		t.Fatalf("%d windows were ended, %v; want one", ended, err)
	}

	second, got := h.create(t, r, 1, a.Key)
	if got != "202" {
		t.Fatalf("a job of the next window: got %q; want 202", got)
	}
	awaitWindows(t, r, limit.ID, []windowFigures{{"0.40", "0.00", "0.00", "0.40"}, {"0.40", "0.00", "0.00", "0.40"}})

	h.complete(t, r, a, []string{first})
	awaitWindows(t, r, limit.ID, []windowFigures{{"0.40", "0.00", "0.00", "0.40"}, {"0.40", "0.40", "0.00", "0.00"}})
	h.complete(t, r, a, []string{first, second})
	awaitWindows(t, r, limit.ID, []windowFigures{{"0.40", "0.40", "0.00", "0.00"}, {"0.40", "0.40", "0.00", "0.00"}})
	r.CheckLedger(t)
}
