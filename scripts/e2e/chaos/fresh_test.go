package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"modelgateway/scripts/e2e/rig"
)

// value returns a metric of a part without labels, or the sum over its labels.
func value(t *testing.T, r *rig.Rig, part, name string) (sum float64) {
	t.Helper()
	lines := regexp.MustCompile(`(?m)^`+name+`(?:\{.*\})? (\S+)$`).FindAllStringSubmatch(r.Ops(t, part, "/metrics"), -1)
	for _, line := range lines {
		n, err := strconv.ParseFloat(line[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// A proxy that is cut off stops after the window, and each change lies in the stream. A revocation does not wait for the proxy any
// longer.
func TestProxyThatIsCutOffStopsAfterTheWindow(t *testing.T) {
	r := rig.Start(t, rig.Options{DataPlanes: 2, ControlPlanes: 2, Links: true, ControlSettings: []string{"MGW_SESSION_WINDOW=3s"}})
	account, model := r.Account(t, rig.AccountSpec{}), r.Model(t, rig.Model{Formats: []string{"chat"}})
	id, key := account.NewKey(t, "")
	ask := func(proxy int, key string) rig.Request {
		return rig.Request{Proxy: proxy, Path: "/v1/chat/completions", Key: key, Body: question(model)}
	}
	for proxy := range r.Proxies {
		r.AwaitStatus(t, ask(proxy, key), http.StatusOK)
		r.AwaitStatus(t, ask(proxy, account.Key), http.StatusOK)
	}
	mend := r.Cut(t, rig.DataPlane(1))
	r.AwaitStatus(t, ask(1, key), http.StatusServiceUnavailable)
	rig.Await(t, "the lapse", func(context.Context) error {
		if fresh := value(t, r, rig.DataPlane(1), "mgw_session_remaining_seconds"); fresh > 0 {
			return fmt.Errorf("fresh for %v s more", fresh)
		}
		return nil
	})
	began := time.Now()
	account.Revoke(t, id)
	t.Logf("effective after %v, although a proxy is cut off", time.Since(began))
	for proxy := range r.Proxies {
		if answer, err := r.Try(t.Context(), ask(proxy, key)); err != nil || answer.Status == http.StatusOK {
			t.Errorf("proxy %d after the revocation: got %v, %v", proxy, answer, err)
		}
	}
	rig.Await(t, "the change to be in the stream for the window", func(context.Context) error {
		appended, waiting := 0.0, 0.0
		for _, part := range r.ControlPlanes() {
			appended += value(t, r, part, "mgw_changes_appended_total")
			waiting += value(t, r, part, "mgw_changes_waiting")
		}
		if appended == 0 || waiting > 0 {
			return errors.New("it is not")
		}
		return nil
	})
	mend()
	r.AwaitStatus(t, ask(1, account.Key), http.StatusOK)
	for proxy := range r.Proxies {
		r.AwaitStatus(t, ask(proxy, key), http.StatusUnauthorized)
	}
}

// While no control plane runs, an operator revokes a key by NATS alone. The proxies refuse it at once, and a control plane writes the
// revocation to Postgres when it is back.
func TestKeyIsRevokedByNATSAlone(t *testing.T) {
	r := rig.Start(t, rig.Options{DataPlanes: 2, ControlPlanes: 2, ControlSettings: []string{"MGW_SESSION_WINDOW=3s"}})
	account, model := r.Account(t, rig.AccountSpec{}), r.Model(t, rig.Model{Formats: []string{"chat"}})
	id, key := account.NewKey(t, "")
	ask := func(proxy int) rig.Request {
		return rig.Request{Proxy: proxy, Path: "/v1/chat/completions", Key: key, Body: question(model)}
	}
	for proxy := range r.Proxies {
		r.AwaitStatus(t, ask(proxy), http.StatusOK)
	}
	for _, part := range r.ControlPlanes() {
		r.End(t, part)
	}
	hash := r.Hasher(t).Hash(key)
	began := time.Now()
	text, err := r.Gwctl(t, "keys", "revoke-direct",
		"--nats-url", r.State().NATSURL, "--hash", hash.String()).CombinedOutput()
	if err != nil || !strings.Contains(string(text), "No proxy admits the keys") {
		t.Fatalf("%s%v", text, err)
	}
	t.Logf("within %v: %s", time.Since(began), text)
	for proxy := range r.Proxies {
		if answer := r.Do(t, ask(proxy)); answer.Status != http.StatusUnauthorized {
			t.Errorf("proxy %d after the revocation: got %s; want 401", proxy, answer)
		}
	}
	r.Resume(t, r.ControlPlanes()...)
	rig.Await(t, "the revocation in Postgres", func(ctx context.Context) error {
		found, err := r.Admin.GetKey(ctx, id)
		if err == nil && found.Value.RevokedAt == nil {
			err = errors.New("the key is not revoked")
		}
		return err
	})
}
