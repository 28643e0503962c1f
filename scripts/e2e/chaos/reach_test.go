package chaos

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"modelgateway/scripts/e2e/rig"
)

// A proxy that is cut off from NATS does not learn of a revocation. The revocation waits for
// the end of the session of that proxy, and no longer. When it has returned, the proxy refuses
// the key, too.
func TestChaos_cut_dp_revoke_bound(t *testing.T) {
	long(t)
	r := rig.Get(t)
	const cut = 2
	rich, model := r.Account(t, rig.AccountSpec{}), r.Model(t, rig.Model{Formats: []string{"chat"}})
	collectIdleUnits(t, r, rich, model, cut, rig.DataPlane(cut))
	l := startLoad(t, clients)
	for proxy := range r.Proxies {
		l.await(t, 10, on(proxy))
	}
	mend := r.Cut(t, rig.DataPlane(cut))
	began := time.Now()
	answer, err := r.Admin.RevokeKey(t.Context(), l.account.KeyID, nil)
	if err != nil || !answer.Value.Effective {
		t.Fatalf("revoke: got %v, %v; want it to be effective", answer, err)
	}
	revoked := time.Now()
	if n, err := r.Number(t.Context(), `select count(*) from proxy_sessions where name = $1 and state <> 3`, rig.DataPlane(cut)); n != 1 || err != nil {
		t.Errorf("%d sessions of the proxy are not closed yet, %v; want the call to wait for the end of one, and not for that of its leases", n, err)
	}
	if got := answer.Value.ConfirmedBy; got >= dataPlanes { // a proxy that renews just then need not confirm
		t.Errorf("%d proxies have confirmed; want less than %d", got, dataPlanes)
	}
	for proxy := range r.Proxies {
		answer := r.Do(t, rig.Request{Proxy: proxy, Path: "/v1/chat/completions", Key: l.account.Key, Body: question(l.model)})
		want := http.StatusUnauthorized
		if proxy == cut {
			want = http.StatusServiceUnavailable
		}
		if answer.Status != want {
			t.Errorf("proxy %d, after the revocation: got %s; want %d", proxy, answer, want)
		}
	}
	// The proxy could serve this request without asking. Only the end of its session stops it.
	if answer := r.Do(t, rig.Request{Proxy: cut, Path: "/v1/chat/completions", Key: rich.Key, Body: question(model)}); answer.Status != http.StatusServiceUnavailable {
		t.Errorf("with money at hand, after the session: got %s; want 503", answer)
	}
	l.await(t, 2*clients, func(q request) bool { return q.status == http.StatusUnauthorized && q.proxy != cut })
	l.await(t, 10, func(q request) bool { return q.status == http.StatusServiceUnavailable && q.proxy == cut })
	mend()
	r.AwaitStatus(t, rig.Request{Proxy: cut, Path: "/v1/chat/completions", Key: l.account.Key, Body: question(l.model)}, http.StatusUnauthorized)
	asked := l.finish()
	checkDeadSince(t, asked, revoked)
	checkBills(t, l, asked, credit)
	t.Logf("the revocation took %s, of a session of %s", revoked.Sub(began).Round(time.Millisecond), sessionTTL)
}

// checkDeadSince checks that no request that began after a moment was admitted.
func checkDeadSince(t *testing.T, asked []request, revoked time.Time) {
	t.Helper()
	for _, q := range asked {
		if q.began.After(revoked) && q.status != http.StatusUnauthorized && q.status != http.StatusServiceUnavailable {
			t.Errorf("begun after the revocation: %v", q)
		}
	}
}

// A proxy that hangs for longer than its session continues. Requests that have waited for it
// must run neither with its outdated state nor with a key that was revoked meanwhile.
//
// A minute is two sessions of the default duration. Here they are shorter, and so is the
// pause: it lasts until the control plane has closed the session.
func TestChaos_pause_dp_60s_zombie(t *testing.T) {
	long(t)
	r := rig.Get(t)
	const paused = 1
	part := rig.DataPlane(paused)
	revoked, model := r.Account(t, rig.AccountSpec{}), r.Model(t, rig.Model{Formats: []string{"chat"}})
	collectIdleUnits(t, r, revoked, model, paused, part) // it can admit without asking then
	l := startLoad(t, clients)
	l.await(t, 10, on(paused))
	served := len(r.Sim.Journal(t, model))
	resume := r.Pause(t, part)
	before := l.endedCount()
	waiting := crowd(t, r, clients, revoked.Key, model, paused) // they reach the socket of the paused process
	revoked.Revoke(t, revoked.KeyID)
	rig.Await(t, "the session of the silent proxy to be closed", func(ctx context.Context) error {
		fleet, err := r.Fleet(ctx)
		for _, d := range fleet {
			if d.Name == part {
				err = fmt.Errorf("it is %s", d.State)
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
	t.Logf("%d requests were asked meanwhile", len(asked)-before)
}
