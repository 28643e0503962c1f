package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
)

// told is a kind of request whose answer tells its cost.
type told struct {
	path string
	body map[string]any
	// end is in a whole answer only.
	end string
}

// toldPrices leave a fraction of a nano-unit at almost every count, which is rounded.
var toldPrices = map[string]any{"input": "1.234567", "cached_input": "0.103", "output": "2.500001"}

// toldKinds adds models and returns requests in every format, in JSON and as streams: with cached and reasoning tokens, without usage,
// after a route that failed, and for images.
func toldKinds(t *testing.T, r *rig.Rig) []told {
	t.Helper()
	var kinds []told
	text := []rig.Model{
		{Directives: "out=21,per_event=7"},
		{Directives: "out=33,cached=3,reasoning=5,per_event=11"},
		{Directives: "out=20,nousage,per_event=10"},
		{Routes: []rig.Route{{UpstreamModel: "failing@status=500", Priority: 1}, {UpstreamModel: "serving@out=17,per_event=9", Priority: 2}}},
	}
	for i := range text {
		text[i].Price = toldPrices
	}
	for _, model := range r.Models(t, text...) {
		question := []any{map[string]any{"role": "user", "content": "What did this answer cost?"}}
		for _, stream := range []bool{false, true} {
			ends := [3]string{`"finish_reason"`, `"output"`, `"stop_reason"`}
			if stream {
				ends = [3]string{"data: [DONE]", `"response.completed"`, `"message_stop"`}
			}
			kinds = append(kinds,
				told{"/v1/chat/completions", map[string]any{"model": model, "messages": question, "stream": stream}, ends[0]},
				told{"/v1/responses", map[string]any{"model": model, "input": question, "stream": stream}, ends[1]},
				told{"/v1/messages", map[string]any{"model": model, "messages": question, "max_tokens": 100, "stream": stream}, ends[2]})
		}
	}
	image := r.Model(t, rig.Model{Type: "image", Price: map[string]any{"images": []any{map[string]any{"price": "0.000012345"}}}})
	return append(kinds, told{"/v1/images/generations", map[string]any{"model": image, "prompt": "A receipt"}, `"data"`})
}

// receiptsVariable is the number of receipts to compare, 20,000 without it.
const receiptsVariable = "RECEIPTS"

func wantedReceipts(t *testing.T) int64 {
	t.Helper()
	text := os.Getenv(receiptsVariable)
	if text == "" {
		return 20_000
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		t.Fatalf("%s is %q; want a number", receiptsVariable, text)
	}
	return n
}

// What an answer tells as its cost is what is settled, in every format, while proxies, control planes and Postgres are killed. The
// answers are compared account by account.
func TestToldCostsAreThoseOfTheReceipts(t *testing.T) {
	rig.Long(t)
	r := rig.Get(t)
	kinds := toldKinds(t, r)
	const perAccount, killed = 20_000, 4
	parts := []string{
		rig.DataPlane1, rig.ControlPlane, rig.DataPlane2, rig.DataPlane(2), rig.Postgres, rig.DataPlane(3), rig.ControlPlane2,
	}
	var all, kills int64
	for wanted := wantedReceipts(t); all < wanted && !t.Failed(); {
		began := time.Now()
		c := startToldClients(t, r, kinds)
		n := min(wanted-all, perAccount)
		for range killed {
			c.await(t, n/(killed+1))
			restarted := r.Kill(t, parts[kills%int64(len(parts))])
			kills++
			restarted()
		}
		c.await(t, n-c.told.Load())
		all += c.finish(t)
		t.Logf("%d of %d receipts, %d kills; the last account took %s", all, wanted, kills, time.Since(began).Round(time.Second))
	}
	checkInvariants(t, r)
	t.Logf("%d told costs are those of the receipts, with %d kills", all, kills)
}

// toldClients send requests to all proxies with the key of one account.
type toldClients struct {
	r       *rig.Rig
	account *rig.Account
	stop    context.CancelFunc
	running sync.WaitGroup
	// told is the number of answers that told their cost.
	told atomic.Int64

	mu    sync.Mutex
	asked []request
	// faults has answers that do not tell one cost.
	faults []string
}

func startToldClients(t *testing.T, r *rig.Rig, kinds []told) *toldClients {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	c := &toldClients{r: r, stop: stop, account: r.Account(t, rig.AccountSpec{Slots: 10_000})}
	const clients = 32
	for client := range clients {
		c.running.Go(func() {
			for n := client; ctx.Err() == nil; n++ {
				q := c.ask(context.WithoutCancel(ctx), n%len(r.Proxies), kinds[rand.IntN(len(kinds))])
				if !answered(q) {
					pause(ctx)
				}
			}
		})
	}
	return c
}

func (c *toldClients) ask(ctx context.Context, proxy int, kind told) request {
	q := request{proxy: proxy}
	answer, err := c.r.Try(ctx, rig.Request{
		Proxy:  proxy,
		Path:   kind.path,
		Key:    c.account.Key,
		Header: http.Header{"X-Include-Cost": {"1"}},
		Body:   kind.body,
	})
	if answer == nil {
		return q
	}
	q.status, q.id = answer.Status, answer.RequestID()
	if q.status != http.StatusOK {
		return q
	}
	q.whole = err == nil && strings.Contains(string(answer.Body), kind.end) && !strings.Contains(string(answer.Body), `"error":{`)
	found := toldCost.FindAllSubmatch(answer.Body, -1)
	for _, cost := range found {
		q.told, q.toldEstimated = string(cost[1]), len(cost[2]) > 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(found) > 1 || q.whole && len(found) == 0 {
		c.faults = append(c.faults, fmt.Sprintf("%s tells its cost %d times: %v\n%s", kind.path, len(found), q, answer))
	}
	c.asked = append(c.asked, q)
	if q.told != "" {
		c.told.Add(1)
	}
	return q
}

// await waits until n more answers have told their cost. It fails if none comes for as long as any wait may take.
func (c *toldClients) await(t *testing.T, n int64) {
	t.Helper()
	for wanted := c.told.Load() + n; c.told.Load() < wanted; {
		seen := c.told.Load()
		rig.Await(t, "answers that tell their cost", func(context.Context) error {
			if c.told.Load() == seen {
				return fmt.Errorf("%d came, none since", seen)
			}
			return nil
		})
	}
}

// finish ends the clients and compares what was told with what is settled. It returns the number of told costs.
func (c *toldClients) finish(t *testing.T) int64 {
	t.Helper()
	c.stop()
	c.running.Wait()
	for _, fault := range c.faults {
		t.Error(fault)
	}
	c.r.AwaitSessions(t)
	c.r.AwaitSettled(t)
	checkCharged(t, c.r, c.account)
	usage, err := c.account.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	charged := map[string]adminclient.UsageRecord{}
	for _, u := range usage {
		if _, found := charged[u.RequestID]; found {
			t.Errorf("%s is charged twice", u.RequestID)
		}
		charged[u.RequestID] = u
	}
	checkTold(t, c.asked, charged)
	checkReceipt(t, c.r, c.asked)
	return c.told.Load()
}

// checkReceipt compares one told cost in a thousand with the receipt, which is computed anew from quantities and prices.
func checkReceipt(t *testing.T, r *rig.Rig, asked []request) {
	t.Helper()
	const every = 1000
	for i := 0; i < len(asked); i += every {
		q := asked[i]
		if q.told == "" {
			continue
		}
		answer, err := r.Admin.GetUsage(t.Context(), q.id)
		if err != nil {
			t.Fatal(err)
		}
		if u := answer.Value; !sameMoney(q.told, u.Receipt.Cost) || !sameMoney(q.told, u.Cost) {
			t.Errorf("%v tells a cost of %s; charged %s, receipt %s", q, q.told, u.Cost, u.Receipt.Cost)
		}
	}
}
