package chaos

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/subject"
)

// A player starts a stack with the default durations, and returns it with a function
// that begins the outage. That one returns a function that ends it.
type player func(t *testing.T) (r *rig.Rig, begin func() (end func()))

// The proxy that the clients of an outage use.
const outageProxy = 0

func controlPlanesAway(t *testing.T) (*rig.Rig, func() func()) {
	t.Helper()
	r := rig.Start(t, rig.Options{ControlPlanes: 2})
	return r, halt(t, r, r.ControlPlanes()...)
}

func postgresAway(t *testing.T) (*rig.Rig, func() func()) {
	t.Helper()
	r := rig.Start(t, rig.Options{ControlPlanes: 2})
	return r, halt(t, r, rig.Postgres)
}

// halt returns a function that kills parts. The returned one starts them again.
func halt(t *testing.T, r *rig.Rig, parts ...string) func() func() {
	t.Helper()
	return func() func() {
		for _, part := range parts {
			r.Halt(t, part)
		}
		return func() { r.Resume(t, parts...) }
	}
}

func natsServerAway(t *testing.T) (*rig.Rig, func() func()) {
	t.Helper()
	r := rig.Start(t, rig.Options{ControlPlanes: 2, NATSServers: 3})
	return r, killServers(r, 1)
}

func natsQuorumAway(t *testing.T) (*rig.Rig, func() func()) {
	t.Helper()
	r := rig.Start(t, rig.Options{ControlPlanes: 2, NATSServers: 3})
	return r, killServers(r, 2)
}

// killServers returns a function that kills n NATS servers, the leader of the usage stream first, and waits until every plane is
// connected to another one. The returned one starts them again.
func killServers(r *rig.Rig, n int) func() func() {
	return func() func() {
		first := r.Cluster.StreamLeader(subject.UsageStream)
		for i := range n {
			r.Cluster.Kill((first + i) % r.Cluster.Len())
		}
		return func() {
			for i := range n {
				r.Cluster.Node((first + i) % r.Cluster.Len()).Start()
			}
		}
	}
}

func proxyCutOff(t *testing.T) (*rig.Rig, func() func()) {
	t.Helper()
	r := rig.Start(t, rig.Options{ControlPlanes: 2, Links: true})
	return r, func() func() { return r.Cut(t, rig.DataPlane(outageProxy)) }
}

// defaultWindow is that of a stack without settings.
const defaultWindow = 20 * time.Second

// outagesVariable is the environment variable that adds the outages of half an hour, if it is "all".
const outagesVariable = "OUTAGES"

// Each cell of the table of outages is played in real time, on a stack with the default durations. make chaos plays those of up
// to a minute, make outages all.
func TestOutages(t *testing.T) {
	halfHours := os.Getenv(outagesVariable) == "all"
	if halfHours {
		t.Parallel() // with the other test that takes half an hour
	}
	for i := range outages {
		o := &outages[i]
		for _, length := range lengths {
			t.Run(fmt.Sprintf("%s/%s", o.name, length), func(t *testing.T) {
				if i > 0 || length > lengths[0] {
					rig.Long(t)
				}
				if length > time.Minute {
					if !halfHours {
						t.Skipf("takes half an hour; set %s=all to run it, as make outages does", outagesVariable)
					}
					t.Parallel()
				}
				playOutage(t, o.play, length, o.cells[length])
			})
		}
	}
}

// longestRequest is how long the request runs that begins before the outage, if the outage is longer than that.
const longestRequest = time.Minute

// An outageClient is the client of one kind, with what it saw.
type outageClient struct {
	// keys are used in turn.
	keys []string
	seen []request
}

func playOutage(t *testing.T, play player, length time.Duration, want [4]view) {
	t.Helper()
	r, begin := play(t)
	account := r.Account(t, rig.AccountSpec{})
	model := r.Model(t, rig.Model{Formats: []string{"chat"}})
	h := rig.NewBlockingProvider(t, r)
	collectIdleUnits(t, r, account.Key, model, outageProxy, rig.DataPlane(outageProxy))
	_, withLimit := account.NewKey(t, "50")
	ask := func(key string) rig.Request {
		return rig.Request{Proxy: outageProxy, Path: "/v1/chat/completions", Key: key, Body: question(model)}
	}
	collectIdleUnits(t, r, withLimit, model, outageProxy, rig.DataPlane(outageProxy))
	clients := map[string]*outageClient{used: {keys: []string{account.Key}}, limited: {keys: []string{withLimit}}, unused: {}}
	const unusedKeys = 20
	for range unusedKeys {
		_, key := account.NewKey(t, "")
		clients[unused].keys = append(clients[unused].keys, key)
	}
	awaitKeyBucket(t, r)
	blocked := crowd(t, r, 1, account.Key, h.Model, outageProxy)
	h.Await(t, 1)
	end := begin()
	began := time.Now()
	defer time.AfterFunc(min(length, longestRequest), h.Release).Stop()
	watchOutage(t, r, clients, ask, length)
	if status := <-blocked; status != http.StatusOK {
		t.Errorf("%s: got %d; want 200, as the table says %q", running, status, want[0])
	}
	end()
	for _, c := range clients {
		r.AwaitStatus(t, ask(c.keys[len(c.keys)-1]), http.StatusOK)
	}
	for i, kind := range kinds[1:] {
		checkView(t, kind, clients[kind].seen, began, want[i+1])
	}
	r.AwaitSettled(t)
	account.AwaitIdle(t)
	usage, err := account.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	billed := map[string]int{}
	for _, u := range usage {
		billed[u.RequestID]++
	}
	for _, c := range clients {
		for _, q := range c.seen {
			if q.status == http.StatusOK && billed[q.id] != 1 {
				t.Errorf("%v was billed %d times; want once", q, billed[q.id])
			}
		}
	}
	checkInvariants(t, r)
}

// watchOutage lets each client send requests until the outage is over.
func watchOutage(t *testing.T, r *rig.Rig, clients map[string]*outageClient, ask func(key string) rig.Request, length time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	const requests = 40 // of each client; more would only need more of the machine
	var all sync.WaitGroup
	for c := range maps.Values(clients) {
		all.Go(func() {
			next := time.NewTicker(length / requests)
			defer next.Stop()
			for n := 0; ctx.Err() == nil; n++ {
				q := request{began: time.Now()}
				if answer, err := r.Try(t.Context(), ask(c.keys[n%len(c.keys)])); err == nil {
					q.status, q.id = answer.Status, answer.RequestID()
				}
				c.seen = append(c.seen, q)
				select {
				case <-next.C:
				case <-ctx.Done():
				}
			}
		})
	}
	all.Wait()
}

// checkView compares what a client saw with the table. A proxy lapses within the window after the outage began; half of that is left
// at least, since heartbeats come far more often.
func checkView(t *testing.T, kind string, seen []request, began time.Time, want view) {
	t.Helper()
	var wrong []request
	for _, q := range seen {
		after := q.began.Sub(began)
		fine := q.status == http.StatusOK || q.status == http.StatusServiceUnavailable
		switch want {
		case served:
			fine = q.status == http.StatusOK
		case unavailable:
			fine = q.status == http.StatusServiceUnavailable
		case untilLapse:
			fine = fine && servedFor(defaultWindow, after, q.status)
		}
		if !fine {
			wrong = append(wrong, q)
		}
	}
	if len(wrong) == 0 && len(seen) > 0 {
		return
	}
	var all []string
	for _, q := range seen {
		all = append(all, fmt.Sprintf("%.1fs:%d", q.began.Sub(began).Seconds(), q.status))
	}
	t.Errorf("%s: the table says %q; %d of %d requests saw something else: %v", kind, want, len(wrong), len(seen), all)
}

// servedFor reports whether a status is one of a client that is served for up to a time.
func servedFor(limit, after time.Duration, status int) bool {
	return (after > limit/2 || status == http.StatusOK) && (after < limit || status == http.StatusServiceUnavailable)
}
