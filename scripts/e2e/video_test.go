package e2e

import (
	"net/http"
	"testing"

	"modelgateway/scripts/e2e/rig"
)

// A job is billed when it completes, even if no client polls.
func TestVideoIsBilledWithoutPolling(t *testing.T) {
	a := newAPI(t)
	models := a.Models(t, rig.Model{Type: "video", Directives: "polls=1"}, rig.Model{Type: "video", Directives: "fail"})
	id := a.createVideo(t, videos.body(models[0]))
	a.createVideo(t, videos.body(models[1]))
	usage := a.account.AwaitUsage(t, 1)
	if usage[0].VideoJob == nil || *usage[0].VideoJob != id || usage[0].Cost != "0.40" {
		t.Errorf("got %v for %s; want %s for 0.40", usage[0].VideoJob, usage[0].Cost, id)
	}
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
