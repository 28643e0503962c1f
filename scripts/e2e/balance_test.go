package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"modelgateway/scripts/e2e/rig"
)

// balance is the body of GET /v1/balance.
type balance struct {
	Object    string `json:"object"`
	Currency  string `json:"currency"`
	Balance   string `json:"balance"`
	Reserved  string `json:"reserved"`
	Available string `json:"available"`
	Key       struct {
		SpendLimit *string `json:"spend_limit"`
		Spent      string  `json:"spent"`
		Reserved   string  `json:"reserved"`
		Remaining  *string `json:"remaining"`
	} `json:"key"`
}

// balanceAge is how long a proxy may use the figures of a key.
const balanceAge = 250 * time.Millisecond

// balanceReads has the time of the last read of a balance by proxy and key.
var balanceReads sync.Map

// balance returns the figures of a key as they are now: it waits until those of the last call may not be used any more.
func (a *api) balance(t *testing.T, proxy int, key string) balance {
	t.Helper()
	at := fmt.Sprint(proxy, key)
	if last, ok := balanceReads.Load(at); ok {
		<-time.After(time.Until(last.(time.Time).Add(balanceAge)))
	}
	defer func() { balanceReads.Store(at, time.Now()) }()
	answer := a.Do(t, rig.Request{Proxy: proxy, Path: "/v1/balance", Key: key})
	if answer.Status != http.StatusOK {
		t.Fatalf("balance: got %s", answer)
	}
	var b balance
	answer.Decode(t, &b)
	return b
}

// video is the body of a video job.
type video struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Model   string `json:"model"`
	Status  string `json:"status"`
	Seconds string `json:"seconds"`
	Error   *struct{ Code, Message string }
}

// createVideo creates a job and returns its id.
func (a *api) createVideo(t *testing.T, body any) string {
	t.Helper()
	answer := a.post(t, videos.path, body)
	var job video
	answer.Decode(t, &job)
	if answer.Status != http.StatusAccepted || !strings.HasPrefix(job.ID, "video_") {
		t.Fatalf("create a video: got %s; want 202 with an id", answer)
	}
	checkHeaders(t, answer)
	return job.ID
}

// awaitVideo polls a job until it has the status.
func (a *api) awaitVideo(t *testing.T, id, status string) video {
	t.Helper()
	var job video
	rig.Await(t, "the video to be "+status, func(ctx context.Context) error {
		answer, err := a.Try(ctx, rig.Request{Path: "/v1/videos/" + id, Key: a.account.Key})
		if err != nil {
			return err
		}
		job = video{}
		if err := json.Unmarshal(answer.Body, &job); err != nil || job.Status != status {
			return fmt.Errorf("got %s, %w", answer, err)
		}
		return nil
	})
	return job
}
