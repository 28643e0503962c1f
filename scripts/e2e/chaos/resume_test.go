package chaos

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"modelgateway/scripts/e2e/rig"
)

// A proxy that is restarted while every control plane and Postgres are unavailable continues in its session: it serves keys of accounts of which it
// had idle units, refuses a key that an operator has revoked meanwhile, and each answered request is billed once.
func TestProxyIsRestartedWithoutControlPlanes(t *testing.T) {
	const window = 8 * time.Second
	r := rig.Start(t, rig.Options{ControlPlanes: 2, ControlSettings: []string{"MGW_SESSION_WINDOW=" + window.String()}})
	account := r.Account(t, rig.AccountSpec{})
	model := r.Model(t, rig.Model{Formats: []string{"chat"}})
	_, revoked := account.NewKey(t, "")
	ask := func(key string) rig.Request {
		return rig.Request{Path: "/v1/chat/completions", Key: key, Body: question(model)}
	}
	collectIdleUnits(t, r, account.Key, model, 0, rig.DataPlane(0))
	r.AwaitStatus(t, ask(revoked), http.StatusOK)
	awaitKeyBucket(t, r)
	parts := append(r.ControlPlanes(), rig.Postgres)
	for _, part := range parts {
		r.Halt(t, part)
	}
	file := filepath.Join(r.Dir(), "spool", rig.DataPlane(0), "checkpoint.json")
	awaitNewCheckpoint(t, file, time.Time{})
	answered := 0
	served := func(what string) {
		t.Helper()
		began := time.Now()
		r.AwaitStatus(t, ask(account.Key), http.StatusOK)
		t.Logf("%s: served again after %s", what, time.Since(began))
		for range 20 {
			if answer := r.Do(t, ask(account.Key)); answer.Status != http.StatusOK {
				t.Fatalf("%s: got %s; want 200", what, answer)
			}
			answered++
		}
		answered++
	}
	for range 20 {
		if answer := r.Do(t, ask(account.Key)); answer.Status != http.StatusOK {
			t.Fatalf("before a restart: got %s; want 200", answer)
		}
		answered++
	}
	r.Kill(t, rig.DataPlane(0))()
	served("after a kill")
	if got := value(t, r, rig.DataPlane(0), "mgw_sessions_resumed_total"); got != 1 {
		t.Errorf("%v sessions were continued; want 1", got)
	}
	text, err := r.Gwctl(t, "keys", "revoke-direct",
		"--nats-url", r.State().NATSURL, "--hash", r.Hasher(t).Hash(revoked).String()).CombinedOutput()
	if err != nil {
		t.Fatalf("%s%v", text, err)
	}
	if answer := r.Do(t, ask(revoked)); answer.Status != http.StatusUnauthorized {
		t.Errorf("revoked key: got %s; want 401", answer)
	}
	awaitNewCheckpoint(t, file, time.Now())
	r.Terminate(t, rig.DataPlane(0))()
	served("after a graceful stop")
	if answer := r.Do(t, ask(revoked)); answer.Status != http.StatusUnauthorized {
		t.Errorf("key that was revoked before the restart: got %s; want 401", answer)
	}
	r.Resume(t, parts...)
	rig.Await(t, "a new session of the proxy", func(context.Context) error {
		if value(t, r, rig.DataPlane(0), "mgw_sessions_total") == 0 {
			return errors.New("the proxy has not registered")
		}
		return nil
	})
	r.AwaitStatus(t, ask(account.Key), http.StatusOK) // until the proxy has read its first heartbeat of the session
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the checkpoint is still there after the proxy has registered: %v", err)
	}
	r.AwaitSettled(t)
	account.AwaitIdle(t)
	checkInvariants(t, r)
	t.Logf("%d requests were answered in the outage", answered)
}

// awaitNewCheckpoint waits until a proxy has written its checkpoint since a time.
func awaitNewCheckpoint(t *testing.T, file string, since time.Time) {
	t.Helper()
	rig.Await(t, "a checkpoint", func(context.Context) error {
		info, err := os.Stat(file)
		if err == nil && !info.ModTime().After(since) {
			err = errors.New("it is the one from before")
		}
		return err
	})
}
