package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/subject"
)

// startCluster starts a stack with three NATS servers, three proxies and two control planes. Known returns the servers that a part
// connects to; nil means all.
func startCluster(t *testing.T, known func(part string) []int) *rig.Rig {
	t.Helper()
	return rig.Start(t, rig.Options{
		DataPlanes: 3, ControlPlanes: 2, NATSServers: 3, KnownServers: known, ControlSettings: shortSessions(),
	})
}

// A NATS server that leads nothing is killed, and then the one that leads the usage stream. Requests fail only while the planes
// that were connected to it connect to another one; no event is lost or settled twice, and no revocation is missed.
func TestNATSServersOfAClusterAreKilledOneByOne(t *testing.T) {
	rig.Long(t)
	r := startCluster(t, nil)
	l := startLoadOn(t, r, clients)
	stopRevoking := revokeAllTheTime(t, r)
	for proxy := range r.Proxies {
		l.await(t, 20, on(proxy))
	}
	var connected [][2]time.Time
	for _, leads := range []bool{false, true} {
		victim := r.Cluster.StreamLeader(subject.UsageStream)
		if !leads {
			victim = (victim + 1) % r.Cluster.Len()
		}
		r.Cluster.Kill(victim)
		awaitPlanes(t, r)
		from := time.Now()
		for proxy := range r.Proxies {
			l.await(t, 40, on(proxy))
		}
		r.Cluster.StreamLeader(subject.UsageStream)
		r.Cluster.Node(victim).Start()
		for proxy := range r.Proxies {
			l.await(t, 40, on(proxy))
		}
		l.settled(t, l.endedCount()) // with the returned server, which may be needed for the next quorum
		connected = append(connected, [2]time.Time{from, time.Now()})
	}
	revoked := stopRevoking()
	asked := l.finish()
	for _, q := range asked {
		for _, span := range connected {
			if q.began.After(span[0]) && q.began.Before(span[1]) && !answered(q) {
				t.Errorf("failed %v after every plane was connected again: %v", q.began.Sub(span[0]), q)
			}
		}
	}
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
	t.Logf("%d keys were revoked meanwhile", revoked)
}

// awaitPlanes waits until every plane is connected to a running NATS server.
func awaitPlanes(t *testing.T, r *rig.Rig) {
	t.Helper()
	rig.Await(t, "all planes to be connected", func(context.Context) error {
		found := map[string]int{}
		for i := range r.Cluster.Len() {
			for _, name := range r.Cluster.Node(i).Clients() {
				kind, _, _ := strings.Cut(name, " ")
				found[kind]++
			}
		}
		if found["dataplane"] < len(r.Proxies) || found["controlplane"] < len(r.ControlPlanes()) {
			return fmt.Errorf("connected are %v", found)
		}
		return nil
	})
}

// revokeAllTheTime revokes keys, one after the other, that every proxy has used. After each revocation no proxy may accept the key.
func revokeAllTheTime(t *testing.T, r *rig.Rig) (stop func() (revoked int)) {
	t.Helper()
	account, model := r.Account(t, rig.AccountSpec{}), r.Model(t, rig.Model{Formats: []string{"chat"}})
	ctx, cancel := context.WithCancel(t.Context())
	var task sync.WaitGroup
	n := 0
	task.Go(func() {
		for ctx.Err() == nil && !t.Failed() {
			id, key := account.NewKey(t, "")
			for proxy := range r.Proxies {
				ask := rig.Request{Proxy: proxy, Path: "/v1/chat/completions", Key: key, Body: question(model)}
				if answer, err := r.Ask(t.Context(), ask); err != nil || answer.Status != http.StatusOK {
					t.Errorf("proxy %d before the revocation: got %v, %v; want 200", proxy, answer, err)
				}
			}
			account.Revoke(t, id)
			for proxy := range r.Proxies {
				ask := rig.Request{Proxy: proxy, Path: "/v1/chat/completions", Key: key, Body: question(model)}
				answer, err := r.Try(t.Context(), ask)
				if err != nil || answer.Status != http.StatusUnauthorized && answer.Status != http.StatusServiceUnavailable {
					t.Errorf("proxy %d after the revocation: got %v, %v; want 401 or 503", proxy, answer, err)
				}
			}
			n++
		}
	})
	return func() int { cancel(); task.Wait(); return n }
}

// The network separates one NATS server, which leads the usage stream, from the others. A proxy that is connected to it stops at
// the end of its session; nothing is admitted there after a revocation is effective, and all of its usage is settled.
func TestProxyOnTheMinorityOfNATSServersStops(t *testing.T) {
	rig.Long(t)
	const alone = 2
	r := startCluster(t, func(part string) []int {
		if part == rig.DataPlane(alone) {
			return []int{alone}
		}
		return []int{0, 1}
	})
	playRevocationBeyondReach(t, r, alone, func() (reconnect func()) { return r.Cluster.Cut(alone) })
}

// A NATS server returns with an old copy of its data, and then another one ends, so that the returned server is needed for the
// quorum. No event is lost or settled twice, and no revocation is missed.
func TestNATSServerReturnsWithAnOldStore(t *testing.T) {
	rig.Long(t)
	r := startCluster(t, nil)
	l := startLoadOn(t, r, clients)
	stopRevoking := revokeAllTheTime(t, r)
	l.await(t, 60, answered)
	old := r.Cluster.StreamLeader(subject.UsageStream)
	copied := filepath.Join(t.TempDir(), "old")
	r.Cluster.Kill(old)
	if err := os.CopyFS(copied, os.DirFS(r.Cluster.Node(old).Dir())); err != nil {
		t.Fatal(err)
	}
	r.Cluster.Node(old).Start()
	l.await(t, 100, answered)
	l.settled(t, l.endedCount())
	r.Cluster.Kill(old)
	dir := r.Cluster.Node(old).Dir()
	if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(copied))); err != nil {
		t.Fatal(err)
	}
	r.Cluster.Node(old).Start()
	awaitPlanes(t, r)
	l.await(t, 60, answered)
	other := (old + 1) % r.Cluster.Len()
	r.Cluster.Kill(other)
	awaitPlanes(t, r)
	for proxy := range r.Proxies {
		l.await(t, 40, on(proxy))
	}
	r.Cluster.Node(other).Start()
	revoked := stopRevoking()
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
	t.Logf("%d keys were revoked meanwhile", revoked)
}
