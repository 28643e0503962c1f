package chaos

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/subject"
)

const (
	// hoursAccounts send a request each hoursInterval: 50 per second.
	hoursAccounts, hoursInterval = 20, 400 * time.Millisecond
	// hoursWarmUp is how long they do so before the outage, so that the proxies know their rate.
	hoursWarmUp = time.Minute
)

// While every control plane and Postgres are unavailable, customers with money notice nothing, whether a proxy has seen their keys or not. An
// operator can revoke a key, the NATS server that leads the stream of changes can fail, and a proxy can be killed on top of it. make chaos
// plays a minute, make outages half an hour.
func TestCustomersNoticeNothingWithoutControlPlanesAndPostgres(t *testing.T) {
	rig.Long(t)
	length := time.Minute
	if os.Getenv(outagesVariable) == "all" {
		length = 30 * time.Minute
		t.Parallel()
	}
	r := rig.Start(t, rig.Options{DataPlanes: 4, ControlPlanes: 2, NATSServers: 3, DataSettings: []string{"MGW_LEASE_OUTAGE_TARGET=30m"}})
	model := r.Model(t, rig.Model{Formats: []string{"chat"}, Directives: loadDirectives})
	c := startCustomers(t, r, model)
	victim, secret := c.accounts[0].NewKey(t, "")
	for proxy := range r.Proxies {
		r.AwaitStatus(t, rig.Request{Proxy: proxy, Path: "/v1/chat/completions", Key: secret, Body: question(model)}, http.StatusOK)
		c.answered.Add(1)
	}
	unseen := c.newKeys(t, 3)
	c.wait(t, hoursWarmUp)
	awaitKeyBucket(t, r)
	sessions := sumOf(t, r, "mgw_sessions_total")
	c.fail.Store(true)
	parts := append(r.ControlPlanes(), rig.Postgres)
	for _, part := range parts {
		r.Halt(t, part)
	}
	c.wait(t, length/3)
	c.askAll(t, r, unseen[0])
	c.answered.Add(revokeInOutage(t, r, secret, model))
	leader := r.Cluster.StreamLeader(subject.ChangeStream)
	r.Cluster.Kill(leader)
	c.wait(t, length/3)
	c.askAll(t, r, unseen[1])
	r.Cluster.Node(leader).Start()
	sessions -= value(t, r, rig.DataPlane(restarted), "mgw_sessions_total")
	c.killProxy(t, r, restarted)
	c.wait(t, length/3)
	c.askAll(t, r, unseen[2])
	if answer := r.Do(t, rig.Request{Proxy: restarted, Path: "/v1/chat/completions", Key: secret, Body: question(model)}); answer.Status != http.StatusUnauthorized {
		t.Errorf("revoked key at the restarted proxy: got %s; want 401", answer)
	}
	if said := r.Ops(t, rig.DataPlane1, "/readyz"); !strings.Contains(said, `"ready":true`) || !strings.Contains(said, "degraded: no control plane answers") {
		t.Errorf("/readyz says %s; want it ready and degraded", said)
	}
	if lapses, now := sumOf(t, r, "mgw_fresh_lapses_total"), sumOf(t, r, "mgw_sessions_total"); lapses != 0 || now != sessions {
		t.Errorf("proxies lapsed %v times and registered %v times in the outage; want neither", lapses, now-sessions)
	}
	if resumed := sumOf(t, r, "mgw_sessions_resumed_total"); resumed != 1 {
		t.Errorf("%v sessions were continued; want that of the killed proxy", resumed)
	}
	c.fail.Store(false)
	r.Resume(t, parts...)
	c.finish()
	t.Logf("%d requests were answered, %d of them while every control plane and Postgres were away for %s; slowest %s", c.answered.Load(), c.during.Load(), length, time.Duration(c.slowest.Load()))
	r.AwaitSettled(t)
	for _, a := range c.accounts {
		a.AwaitIdle(t)
	}
	settled, err := r.Number(t.Context(), `select count(*) from usage_records where status = 'completed'`)
	if err != nil || settled != c.answered.Load() {
		t.Errorf("%d requests were answered and %d settled, %v", c.answered.Load(), settled, err)
	}
	rig.Await(t, "the revocation in Postgres", func(ctx context.Context) error {
		found, err := r.Admin.GetKey(ctx, victim)
		if err == nil && found.Value.RevokedAt == nil {
			err = fmt.Errorf("%s is not revoked", victim)
		}
		return err
	})
	checkInvariants(t, r)
}

// restarted is the proxy that is killed in the outage.
const restarted = 2

// customers send requests to every proxy in turn.
type customers struct {
	model    string
	accounts []*rig.Account
	// proxies are locked for reading while a request to them runs, and for writing while no request is sent to them.
	proxies []sync.RWMutex
	stop    context.CancelFunc
	all     sync.WaitGroup
	// fail means that a request that is not answered is an error.
	fail atomic.Bool
	// answered counts the answered requests, during those in the outage; slowest is the longest time of one in the outage.
	answered, during, slowest atomic.Int64
}

func startCustomers(t *testing.T, r *rig.Rig, model string) *customers {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	c := &customers{model: model, stop: stop, proxies: make([]sync.RWMutex, len(r.Proxies))}
	for range hoursAccounts {
		c.accounts = append(c.accounts, r.Account(t, rig.AccountSpec{}))
	}
	for i, account := range c.accounts {
		c.all.Go(func() {
			next := time.NewTicker(hoursInterval)
			defer next.Stop()
			for n := i; ctx.Err() == nil; n++ {
				c.ask(t, r, n%len(r.Proxies), account.Key)
				select {
				case <-next.C:
				case <-ctx.Done():
				}
			}
		})
	}
	return c
}

// ask sends a request to a proxy, or to the next one if requests are not sent to it.
func (c *customers) ask(t *testing.T, r *rig.Rig, proxy int, key string) {
	t.Helper()
	for !c.proxies[proxy].TryRLock() {
		proxy = (proxy + 1) % len(c.proxies)
	}
	defer c.proxies[proxy].RUnlock()
	inOutage, began := c.fail.Load(), time.Now()
	answer, err := r.Try(t.Context(), rig.Request{Proxy: proxy, Path: "/v1/chat/completions", Key: key, Body: question(c.model)})
	took := time.Since(began)
	switch ok := err == nil && answer.Status == http.StatusOK; {
	case ok && inOutage:
		c.during.Add(1)
		c.slowest.Store(max(c.slowest.Load(), int64(took)))
		fallthrough
	case ok:
		c.answered.Add(1)
	case inOutage && c.fail.Load():
		t.Errorf("proxy %d: got %v, %v after %s; want 200", proxy, answer, err, took)
	}
}

// newKeys returns n sets of keys that no proxy has seen, each with a key of every account.
func (c *customers) newKeys(t *testing.T, n int) [][]string {
	t.Helper()
	sets := make([][]string, n)
	for i := range sets {
		for _, account := range c.accounts {
			_, key := account.NewKey(t, "")
			sets[i] = append(sets[i], key)
		}
	}
	return sets
}

// askAll sends a request with each key to every proxy.
func (c *customers) askAll(t *testing.T, r *rig.Rig, keys []string) {
	t.Helper()
	for _, key := range keys {
		for proxy := range c.proxies {
			c.ask(t, r, proxy, key)
		}
	}
}

// killProxy kills a proxy while no request is sent to it, and waits until the next process serves.
func (c *customers) killProxy(t *testing.T, r *rig.Rig, proxy int) {
	t.Helper()
	c.proxies[proxy].Lock()
	defer c.proxies[proxy].Unlock()
	r.Kill(t, rig.DataPlane(proxy))()
	began := time.Now()
	r.AwaitStatus(t, rig.Request{Proxy: proxy, Path: "/v1/chat/completions", Key: c.accounts[0].Key, Body: question(c.model)}, http.StatusOK)
	c.answered.Add(1)
	t.Logf("the killed proxy served again %s after it had been started", time.Since(began))
}

// wait lets the customers continue for a time.
func (c *customers) wait(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

func (c *customers) finish() {
	c.stop()
	c.all.Wait()
}

// revokePause is the time between two requests of a client while its key is revoked: all of them are paid by what the proxies hold.
const revokePause = 10 * time.Millisecond

// revokeInOutage revokes a key by NATS alone, while requests with it come to every proxy. It returns how many were answered.
func revokeInOutage(t *testing.T, r *rig.Rig, secret, model string) (answered int64) {
	t.Helper()
	var served atomic.Int64
	var last atomic.Pointer[time.Time]
	var all sync.WaitGroup
	for proxy := range r.Proxies {
		all.Go(func() {
			for { // until the proxy refuses it
				answer, err := r.Try(t.Context(), rig.Request{Proxy: proxy, Path: "/v1/chat/completions", Key: secret, Body: question(model)})
				if err != nil || answer.Status != http.StatusOK {
					if err != nil || answer.Status != http.StatusUnauthorized {
						t.Errorf("proxy %d: got %v, %v; want 401", proxy, answer, err)
					}
					now := time.Now()
					last.Store(&now)
					return
				}
				served.Add(1)
				time.Sleep(revokePause)
			}
		})
	}
	text, err := r.Gwctl(t, "keys", "revoke-direct",
		"--nats-url", r.State().NATSURL, "--hash", r.Hasher(t).Hash(secret).String()).CombinedOutput()
	if err != nil {
		t.Fatalf("%s%v", text, err)
	}
	confirmed := time.Now()
	all.Wait()
	t.Logf("the last proxy refused the key %s before gwctl said so", confirmed.Sub(*last.Load()))
	if last.Load().After(confirmed) {
		t.Error("a proxy admitted the key after gwctl had confirmed the revocation")
	}
	return served.Load()
}

// sumOf returns the sum of a metric over all proxies.
func sumOf(t *testing.T, r *rig.Rig, name string) (sum float64) {
	t.Helper()
	for proxy := range r.Proxies {
		sum += value(t, r, rig.DataPlane(proxy), name)
	}
	return sum
}
