package chaos

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"modelgateway/scripts/e2e/rig"
)

// After a revocation has returned, no proxy accepts the key, even if many requests with the key
// are running, or proxies read its record for the first time at that moment.
func TestChaos_revoke_vs_load_race(t *testing.T) {
	r := rig.Get(t)
	l := startLoad(t, clients)
	l.await(t, 40, answered)

	long := r.Model(t, rig.Model{Formats: []string{"chat"}, Directives: "out=1000,chunk=50ms"})
	running, err := r.Open(t.Context(), rig.Request{Proxy: 1, Path: "/v1/chat/completions", Key: l.account.Key, Body: stream(long)})
	if err != nil || running.StatusCode != http.StatusOK {
		t.Fatalf("got %v, %v; want a stream", running, err)
	}
	defer func() { _ = running.Body.Close() }()
	events := bufio.NewReader(running.Body)
	for line := ""; !strings.Contains(line, `"content":"`) || strings.Contains(line, `"content":""`); {
		if line, err = events.ReadString('\n'); err != nil {
			t.Fatalf("wait for the first word: %v", err)
		}
	}
	var rest []byte
	var reader sync.WaitGroup
	reader.Go(func() { rest, _ = io.ReadAll(events) })

	l.account.Revoke(t, l.account.KeyID)
	revoked := time.Now()
	for proxy := range r.Proxies {
		answer := r.Do(t, rig.Request{Proxy: proxy, Path: "/v1/chat/completions", Key: l.account.Key, Body: stream(l.model)})
		if answer.Status != http.StatusUnauthorized || answer.Problem(t).Code != "invalid_api_key" {
			t.Errorf("proxy %d, after the revocation: got %s; want 401", proxy, answer)
		}
	}
	l.await(t, 2*clients, func(q request) bool { return q.status == http.StatusUnauthorized })
	for _, q := range l.finish() {
		if q.began.After(revoked) && q.status != http.StatusUnauthorized {
			t.Errorf("admitted after the revocation: %v", q)
		}
	}

	reader.Wait()
	if !bytes.Contains(rest, []byte(`"invalid_api_key"`)) {
		t.Errorf("the running stream ended without the error of the revocation: %s", rest[max(0, len(rest)-200):])
	}
	usage := r.AwaitUsage(t, running.Header.Get("X-Request-Id"))
	if usage.Status != "revoked" || usage.Cost == "0.00" {
		t.Errorf("the running stream is charged %s as %s; want the charge of the delivered part", usage.Cost, usage.Status)
	}
	l.account.AwaitIdle(t)
	raceLookups(t, r)
	checkInvariants(t, r)
}

// raceLookups revokes keys while every proxy looks them up.
func raceLookups(t *testing.T, r *rig.Rig) {
	t.Helper()
	model := r.Model(t, rig.Model{Formats: []string{"chat"}})
	account := r.Account(t, rig.AccountSpec{})
	proxies := make([]int, len(r.Proxies))
	for i := range proxies {
		proxies[i] = i
	}
	got := map[int]int{}
	const keys = 40
	for range keys {
		id, secret := account.NewKey(t, "")
		early := crowd(t, r, 2*len(proxies), secret, model, proxies...)
		account.Revoke(t, id)
		late := retryingCrowd(t, r, 2*len(proxies), secret, model, proxies...)
		for range 2 * len(proxies) {
			got[<-early]++
			if status := <-late; status != http.StatusUnauthorized {
				t.Errorf("request after the revocation: got %d; want 401", status)
			}
		}
	}
	if got[http.StatusOK]+got[http.StatusUnauthorized]+got[http.StatusServiceUnavailable] != keys*2*len(proxies) {
		t.Errorf("requests that began before the revocation: got %v; want 200, 401 or 503", got)
	}
	checkCharged(t, r, account)
	t.Logf("requests that began before the revocation, by status: %v", got)
}
