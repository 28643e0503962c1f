package chaos

import (
	"bufio"
	"net/http"
	"strings"
	"sync"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/money"
)

const credit = 100 * money.Unit

// clients is the number of concurrent requests, on all proxies together.
const clients = 12

// A proxy is killed twice while streams run through it. The part of each stream that was
// delivered is charged once, after the next process has recovered it from the spool.
func TestChaos_kill9_midstream(t *testing.T) {
	l := startLoad(t, clients)
	l.await(t, 60, answered)
	account := l.r.Account(t, rig.AccountSpec{})
	for range 2 {
		ids := openStreams(t, l.r, account, 3)
		restarted := l.r.Kill(t, rig.DataPlane1)
		l.await(t, 10, on(1)) // meanwhile the other proxies serve requests
		restarted()
		l.await(t, 20, on(0))
		for _, id := range ids {
			usage := l.r.AwaitUsage(t, id)
			if cost, err := money.Parse(usage.Cost); usage.Status != "aborted" || !usage.Estimated || cost <= 0 || err != nil {
				t.Errorf("an interrupted stream is charged %s as %s, estimated %t, %v; want the charge of the delivered part",
					usage.Cost, usage.Status, usage.Estimated, err)
			}
		}
	}
	asked := l.finish()
	for _, q := range asked {
		if answered(q) && q.told == "" {
			t.Errorf("the answer does not tell its cost: %v", q)
		}
		if q.proxy != 0 && !answeredOrUndecided(q) {
			t.Errorf("a proxy that was not killed did not answer: %v", q)
		}
		if q.proxy == 0 && q.status != 0 && q.status != 200 && q.status != 503 {
			t.Errorf("refused although money and slots are free: %v", q)
		}
	}
	checkBills(t, l, asked, credit)
	checkCharged(t, l.r, account)
}

// openStreams opens long streams at the first proxy and returns their ids when each has
// delivered words and the proxy has recorded its progress in the spool.
func openStreams(t *testing.T, r *rig.Rig, account *rig.Account, n int) (ids []string) {
	t.Helper()
	model := r.Model(t, rig.Model{Formats: []string{"chat"}, MaxOutputTokens: 20_000, Directives: "out=15000,chunk=20ms"}) // five minutes
	var readers sync.WaitGroup
	for range n {
		response, err := r.Open(t.Context(), rig.Request{Path: "/v1/chat/completions", Key: account.Key, Body: stream(model)})
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("got %v, %v; want a stream", response, err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		ids = append(ids, response.Header.Get("X-Request-Id"))
		readers.Go(func() {
			const enough = 120
			lines := bufio.NewScanner(response.Body)
			for seen := 0; seen < enough && lines.Scan(); {
				if strings.Contains(lines.Text(), `"content":"`) {
					seen++
				}
			}
		})
	}
	readers.Wait()
	return ids
}

// checkCharged checks that the balance of an account is its credit less the cost of its usage
// records, and that nothing is reserved. It waits for the settlement first: requests that have
// ended may still be unsettled.
func checkCharged(t *testing.T, r *rig.Rig, account *rig.Account) {
	t.Helper()
	r.AwaitSettled(t)
	balance := account.AwaitIdle(t)
	usage, err := account.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if total := sum(t, usage); balance != credit-total {
		t.Errorf("the balance is %v; want %v, the credit less the %v of the usage records", balance, credit-total, total)
	}
}

func sum(t *testing.T, usage []adminclient.UsageRecord) (total money.Nano) {
	t.Helper()
	for _, u := range usage {
		cost, err := money.Parse(u.Cost)
		if err != nil {
			t.Fatal(err)
		}
		total += cost
	}
	return total
}

func TestControlPlaneIsKilledUnderLoad(t *testing.T) {
	rig.Long(t)
	l := startLoad(t, clients)
	l.await(t, 60, answered)
	for _, part := range []string{rig.ControlPlane, rig.ControlPlane2} {
		restarted := l.r.Kill(t, part)
		restarted()
		l.await(t, 20, on(0))
		l.await(t, 20, on(1))
	}
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
}

func TestControlPlaneDoesNotAnswer(t *testing.T) {
	l := startLoad(t, clients)
	l.await(t, 60, answered)
	var resume []func()
	for _, part := range l.r.ControlPlanes() {
		resume = append(resume, l.r.Pause(t, part))
	}
	l.await(t, 2*clients, func(q request) bool { return q.status == 503 })
	for _, f := range resume {
		f()
	}
	l.await(t, 20, on(0))
	l.await(t, 20, on(1))
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
}

// Postgres is killed under load, then stopped in order.
func TestChaos_pg_restart_load(t *testing.T) {
	l := startLoad(t, clients)
	l.await(t, 60, answered)
	for _, end := range []func(*testing.T, string) func(){l.r.Kill, l.r.Interrupt} {
		restarted := end(t, rig.Postgres)
		restarted()
		l.await(t, 20, on(0))
		l.await(t, 20, on(3))
	}
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
}

// All parts are killed at once and start cold: no proxy has a session, a catalog or a cached
// key, and all of them start at the same time.
func TestChaos_restart_fleet_cold(t *testing.T) {
	rig.Long(t)
	l := startLoad(t, clients)
	l.await(t, 60, answered)
	all := append(append(l.r.DataPlanes(), l.r.ControlPlanes()...), rig.Postgres)
	for _, part := range all {
		l.r.Halt(t, part)
	}
	l.r.RestartNATS(t, nil)
	l.r.Resume(t, all...)
	for proxy := range l.r.Proxies {
		l.await(t, 10, on(proxy))
	}
	asked := l.finish()
	for _, q := range asked {
		if q.status != 0 && q.status != 200 && q.status != 503 {
			t.Errorf("refused although money and slots are free: %v", q)
		}
	}
	checkBills(t, l, asked, credit)
}

// checkOnlyUnavailable checks that every request was answered, or refused as unavailable, and
// never for a wrong reason.
func checkOnlyUnavailable(t *testing.T, asked []request) {
	t.Helper()
	refused := 0
	for _, q := range asked {
		switch {
		case answered(q):
		case q.status == 503 && q.code == "service_unavailable" && q.retryAfter != "" && q.whole:
			refused++
		default:
			t.Errorf("refused although money and slots are free: %v", q)
		}
	}
	t.Logf("%d requests got a 503", refused)
}
