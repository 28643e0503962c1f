package chaos

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
)

// A proxy that is cut off from NATS does not learn of a revocation. The revocation waits for
// the end of that proxy's session, but no longer. After it has returned, the proxy refuses the
// key, too.
func TestChaos_cut_dp_revoke_bound(t *testing.T) {
	rig.Long(t)
	r := rig.Get(t)
	const cut = 2
	playRevocationBeyondReach(t, r, cut, func() (reconnect func()) { return r.Cut(t, rig.DataPlane(cut)) })
}

// playRevocationBeyondReach revokes a key while a proxy is cut off.
func playRevocationBeyondReach(t *testing.T, r *rig.Rig, cut int, cutOff func() (reconnect func())) {
	t.Helper()
	rich, model := r.Account(t, rig.AccountSpec{}), r.Model(t, rig.Model{Formats: []string{"chat"}})
	collectIdleUnits(t, r, rich.Key, model, cut, rig.DataPlane(cut))
	l := startLoadOn(t, r, clients)
	for proxy := range r.Proxies {
		l.await(t, 10, on(proxy))
	}
	reconnect := cutOff()
	began := time.Now()
	answer, err := r.Admin.RevokeKey(t.Context(), l.account.KeyID, nil)
	if err != nil || !answer.Value.Effective {
		t.Fatalf("revoke: got %v, %v; want it to be effective", answer, err)
	}
	revoked := time.Now()
	if n, err := r.Number(t.Context(), `select count(*) from proxy_sessions where name = $1 and state <> 3`, rig.DataPlane(cut)); n != 1 || err != nil {
		t.Errorf("%d sessions of the proxy are open, %v; want 1: the revocation must not wait until the expired session is closed", n, err)
	}
	if got := len(answer.Value.ConfirmedBy); got >= len(r.Proxies) { // a heartbeat just then makes a confirmation unnecessary
		t.Errorf("%d proxies have confirmed; want less than %d", got, len(r.Proxies))
	}
	for proxy := range r.Proxies {
		answer := r.Do(t, rig.Request{Proxy: proxy, Path: "/v1/chat/completions", Key: l.account.Key, Body: question(l.model)})
		want := http.StatusUnauthorized
		if proxy == cut {
			want = http.StatusServiceUnavailable
		}
		if answer.Status != want {
			t.Errorf("proxy %d after the revocation: got %s; want %d", proxy, answer, want)
		}
	}
	// The proxy has idle units for this request. It is refused only because the session has expired.
	if answer := r.Do(t, rig.Request{Proxy: cut, Path: "/v1/chat/completions", Key: rich.Key, Body: question(model)}); answer.Status != http.StatusServiceUnavailable {
		t.Errorf("request after the end of the session: got %s; want 503", answer)
	}
	l.await(t, 2*clients, func(q request) bool { return q.status == http.StatusUnauthorized && q.proxy != cut })
	l.await(t, 10, func(q request) bool { return q.status == http.StatusServiceUnavailable && q.proxy == cut })
	reconnect()
	r.AwaitStatus(t, rig.Request{Proxy: cut, Path: "/v1/chat/completions", Key: l.account.Key, Body: question(l.model)}, http.StatusUnauthorized)
	asked := l.finish()
	checkRefusedSince(t, asked, revoked)
	checkBills(t, l, asked, credit)
	t.Logf("the revocation took %s with a window of %s", revoked.Sub(began).Round(time.Millisecond), sessionWindow)
}

// checkRefusedSince checks that no request that began after the revocation was admitted.
func checkRefusedSince(t *testing.T, asked []request, revoked time.Time) {
	t.Helper()
	for _, q := range asked {
		if q.began.After(revoked) && q.status != http.StatusUnauthorized && q.status != http.StatusServiceUnavailable {
			t.Errorf("admitted after the revocation: %v", q)
		}
	}
}

// A proxy is paused for longer than its session, and continues. Requests that have waited for
// it must not be admitted with its outdated state, nor with a key that was revoked meanwhile.
//
// A minute is three windows by default. Here they are shorter, and so is the pause: it lasts until the stream of changes has
// confirmed the end of the session.
func TestChaos_pause_dp_60s_zombie(t *testing.T) {
	rig.Long(t)
	r := rig.Get(t)
	const paused = 1
	part := rig.DataPlane(paused)
	revoked, model := r.Account(t, rig.AccountSpec{}), r.Model(t, rig.Model{Formats: []string{"chat"}})
	collectIdleUnits(t, r, revoked.Key, model, paused, part) // now it can admit without a lease request
	l := startLoad(t, clients)
	l.await(t, 10, on(paused))
	served := len(r.Sim.Journal(t, model))
	resume := r.Pause(t, part)
	before := l.endedCount()
	waiting := crowd(t, r, clients, revoked.Key, model, paused) // they wait at the socket of the paused process
	revoked.Revoke(t, revoked.KeyID)
	rig.Await(t, "the session of the silent proxy to be fenced", func(ctx context.Context) error {
		fleet, err := r.Fleet(ctx)
		for _, d := range fleet {
			if d.Name == part && d.State != adminclient.ProxyStateFenced {
				err = fmt.Errorf("the session is %s", d.State)
			}
		}
		return err
	})
	resume()
	for range clients {
		if status := <-waiting; status != http.StatusUnauthorized && status != http.StatusServiceUnavailable {
			t.Errorf("a request with the revoked key: got %d; want 401 or 503", status)
		}
	}
	l.await(t, 20, on(paused))
	if n := len(r.Sim.Journal(t, model)) - served; n != 0 {
		t.Errorf("the provider got %d requests with the revoked key; want none", n)
	}
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
	t.Logf("%d requests were sent meanwhile", len(asked)-before)
}
