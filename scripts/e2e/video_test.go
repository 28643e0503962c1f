package e2e

import (
	"net/http"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/optional"
	"modelgateway/scripts/e2e/rig"
)

// A job is billed when it completes, even if no client polls.
func TestVideoIsBilledWithoutPolling(t *testing.T) {
	a := newAPI(t)
	models := a.Models(t, rig.Model{Type: "video", Directives: "polls=1"}, rig.Model{Type: "video", Directives: "fail"})
	id := a.createVideo(t, videos.body(models[0]))
	a.createVideo(t, videos.body(models[1]))
	usage := a.account.AwaitUsage(t, 2) // that of the failed one charges nothing
	charged := usage[0]
	if charged.Status != "completed" {
		charged = usage[1]
	}
	if charged.VideoJob == nil || *charged.VideoJob != id || charged.Cost != "0.40" {
		t.Errorf("got %v for %s; want %s for 0.40", charged.VideoJob, charged.Cost, id)
	}
}

// A job without a video charges its customer nothing, and its record has what the provider may charge the operator: what it says it has
// made, or what was asked for if nobody knows what became of the job.
func TestFailedVideoHasItsProviderCost(t *testing.T) {
	a := newAPI(t)
	video := func(directives string) rig.Model {
		return rig.Model{Type: "video", Routes: []rig.Route{{
			UpstreamModel: "film@" + directives,
			ProviderPrice: map[string]any{"seconds": []any{map[string]any{"price": "0.07"}}},
		}}}
	}
	models := a.Models(t, video("fail"), video("fail,made=3"), video("lostcreate"))
	for i, want := range []struct {
		status    int
		cost      string
		estimated bool
	}{{http.StatusAccepted, "", false}, {http.StatusAccepted, "0.21", false}, {http.StatusBadGateway, "0.28", true}} {
		answer := a.post(t, videos.path, videos.body(models[i]))
		if answer.Status != want.status {
			t.Fatalf("create a video: got %s; want %d", answer, want.status)
		}
		u := a.AwaitUsage(t, answer.RequestID())
		if u.Status != "failed" || u.Rule != "none" || rat(t, u.Cost).Sign() != 0 || u.ProviderCost == nil || rat(t, *u.ProviderCost).Sign() != 0 {
			t.Errorf("got %+v; want a failed request that charges nothing and whose last call cost nothing", u)
		}
		cost, estimated := "", false
		for _, attempt := range u.Attempts {
			if attempt.ProviderCost != nil {
				cost, estimated = *attempt.ProviderCost, attempt.Estimated != nil && *attempt.Estimated
			}
		}
		if cost != want.cost || estimated != want.estimated {
			t.Errorf("%s: the provider cost is %q, estimated %t; want %+v", models[i], cost, estimated, want)
		}
	}
	a.CheckLedger(t)
}

// The status words of other providers are mapped to those of the format.
func TestStatusesOfProvidersAreMapped(t *testing.T) {
	a := newAPI(t)
	models := a.Models(t, rig.Model{Type: "video", Directives: "foreign_status,polls=2"}, rig.Model{Type: "video", Directives: "foreign_status,fail"})
	for model, end := range map[string]string{models[0]: "completed", models[1]: "failed"} {
		id := a.createVideo(t, videos.body(model))
		job := a.awaitVideo(t, id, end)
		if (job.Error != nil) != (end == "failed") {
			t.Errorf("a %s job has the error %v", end, job.Error)
		}
	}
}

// Content that the provider has deleted is not found.
func TestDeletedVideoContentIsNotFound(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Type: "video", Directives: "expired"})
	id := a.createVideo(t, videos.body(model))
	a.awaitVideo(t, id, "completed")
	a.refused(t, rig.Request{Path: "/v1/videos/" + id + "/content", Key: a.account.Key}, refusal{404, "not_found", ""})
}

// A refused request creates no job and costs nothing.
func TestRefusedVideoCreatesNoJob(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Type: "video", Directives: "refuse"})
	a.refusedPost(t, videos.path, videos.body(model), refusal{400, "content_policy_violation", ""})
	if balance := a.balance(t, 0, a.account.Key); balance.Balance != "100.00" {
		t.Errorf("the balance is %s; want nothing charged", balance.Balance)
	}
}

// A further job is refused while the ones that are not billed yet need the rest of balance or key limit, or the account
// has as many open ones as it may have. No provider is called.
func TestFurtherVideoIsRefusedBecauseOfOpenJobs(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Type: "video", Directives: "polls=1000000"})
	poor, bounded := a.Account(t, rig.AccountSpec{Credit: "0.40"}), a.Account(t, rig.AccountSpec{})
	_, limited := a.account.NewKey(t, "0.40")
	limitVideos := func(to optional.Value[int]) {
		t.Helper()
		if _, err := a.Admin.UpdateAccount(t.Context(), bounded.ID, nil, adminclient.AccountPatch{MaxOpenVideoJobs: to}); err != nil {
			t.Fatal(err)
		}
	}
	limitVideos(optional.Of(1))
	create := func(proxy int, key string) rig.Request {
		return rig.Request{Proxy: proxy, Path: videos.path, Key: key, Body: videos.body(model)}
	}
	tests := []struct {
		key     string
		want    refusal
		message string
	}{
		{poor.Key, refusal{402, "insufficient_quota", ""}, "The rest of the balance is needed for open video jobs: 0.40 remains, they are expected to cost 0.40."},
		{limited, refusal{403, "spend_limit_exceeded", ""}, "The rest of this API key's spend limit is needed for its open video jobs: 0.40 remains, they are expected to cost 0.40."},
		{bounded.Key, refusal{429, "rate_limit_exceeded", ""}, "This account has as many open video jobs as it may have, 1. Please try again when one of them has ended."},
	}
	for _, tt := range tests {
		if first := a.Do(t, create(0, tt.key)); first.Status != http.StatusAccepted {
			t.Fatalf("without an open job: got %s; want 202", first)
		}
		for proxy := range a.Proxies {
			if message := a.refused(t, create(proxy, tt.key), tt.want); message != tt.message {
				t.Errorf("the message is %q; want %q", message, tt.message)
			}
		}
	}
	if made := len(a.upstream(t, model)); made != len(tests) {
		t.Errorf("the provider was called %d times; want %d", made, len(tests))
	}
	limitVideos(optional.Null[int]())
	if further := a.Do(t, create(0, bounded.Key)); further.Status != http.StatusAccepted {
		t.Errorf("without the limit: got %s; want 202", further)
	}
}

// Any key of the account may read a job, through any proxy.
func TestVideoBelongsToTheAccount(t *testing.T) {
	a := newAPI(t)
	_, other := a.account.NewKey(t, "")
	id := a.createVideo(t, videos.body(videos.model))
	a.awaitVideo(t, id, "completed")
	for proxy := range a.Proxies {
		if answer := a.Do(t, rig.Request{Proxy: proxy, Path: "/v1/videos/" + id, Key: other}); answer.Status != http.StatusOK {
			t.Errorf("another key of the account: got %s", answer)
		}
	}
}
