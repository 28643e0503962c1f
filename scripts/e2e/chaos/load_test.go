package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"testing"
	"time"

	"modelgateway/scripts/e2e/rig"
)

// A load is a number of clients, each of which sends one request after the other to one proxy,
// JSON and streams in turn.
type load struct {
	r       *rig.Rig
	model   string
	account *rig.Account

	stop    context.CancelFunc
	clients sync.WaitGroup

	mu sync.Mutex
	// asked has the requests that have ended, in the order of their ends. After each of them,
	// more is closed and replaced.
	asked []request
	more  chan struct{}
	// checked is the number of those that checkAllAnswered has seen.
	checked int
}

// A request is the client's view of one of its requests.
type request struct {
	proxy  int
	stream bool
	began  time.Time
	// status is 0 without a response; code is the code of an error.
	status int
	code   string
	// retryAfter is the header retry-after.
	retryAfter string
	// undecided is true for a 503 because the control plane did not decide within the timeout,
	// as it may be when the machine is busy.
	undecided bool
	// whole is true if the response is complete.
	whole bool
	// id is the request id of the gateway, answerID the id of the provider's answer.
	id, answerID string
	// told is the cost in the answer, empty if it has none; toldEstimated, whether it is called an estimate.
	told          string
	toldEstimated bool
}

func (q request) String() string {
	return fmt.Sprintf("proxy %d, stream %t: status %d %s, whole %t, %s", q.proxy, q.stream, q.status, q.code, q.whole, q.id)
}

// startLoad starts the clients. The test stops them with finish.
func startLoad(t *testing.T, clients int) *load {
	t.Helper()
	return startLoadOn(t, rig.Get(t), clients)
}

// startLoadOn is startLoad on a stack that belongs to the test.
func startLoadOn(t *testing.T, r *rig.Rig, clients int) *load {
	t.Helper()
	model := r.Model(t, rig.Model{Formats: []string{"chat"}, Directives: loadDirectives})
	return startLoadAt(t, r, clients, model, func(_ context.Context, client int) int { return client % len(r.Proxies) })
}

// loadDirectives make the simulator answer within some ten milliseconds.
const loadDirectives = "delay=10ms,chunk=2ms,out=20"

// startLoadAt starts clients that send requests for a model to the proxies that pick chooses.
func startLoadAt(t *testing.T, r *rig.Rig, clients int, model string, pick func(ctx context.Context, client int) (proxy int)) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &load{r: r, stop: stop, more: make(chan struct{}), model: model, account: r.Account(t, rig.AccountSpec{})}
	for i := range clients {
		l.clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				// The context does not end with the load, so that running requests complete.
				q := l.ask(context.WithoutCancel(ctx), pick(ctx, i), n%2 == 1)
				l.note(q)
				if q.status != 200 {
					pause(ctx)
				}
			}
		})
	}
	return l
}

// pause delays a client after a refusal.
func pause(ctx context.Context) {
	const between = 20 * time.Millisecond
	select {
	case <-ctx.Done():
	case <-time.After(between):
	}
}

func (l *load) note(q request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, q)
	close(l.more)
	l.more = make(chan struct{})
}

// await waits until n more requests have ended for which is returns true.
func (l *load) await(t *testing.T, n int, is func(request) bool) {
	t.Helper()
	l.mu.Lock()
	from := len(l.asked)
	l.mu.Unlock()
	rig.Await(t, fmt.Sprintf("%d requests under load", n), func(ctx context.Context) error {
		for {
			l.mu.Lock()
			found := 0
			for _, q := range l.asked[from:] {
				if is(q) {
					found++
				}
			}
			more := l.more
			l.mu.Unlock()
			if found >= n {
				return nil
			}
			select {
			case <-more:
			case <-ctx.Done():
				return fmt.Errorf("%d have ended", found)
			}
		}
	})
}

// finish waits for the running requests and returns all requests.
func (l *load) finish() []request {
	l.stop()
	l.clients.Wait()
	return l.asked
}

// ask sends one request.
func (l *load) ask(ctx context.Context, proxy int, stream bool) request {
	q := request{proxy: proxy, stream: stream, began: time.Now()}
	body := map[string]any{"model": l.model, "messages": []any{map[string]any{"role": "user", "content": "Are you still there?"}}, "stream": stream}
	answer, err := l.r.Try(ctx, rig.Request{
		Proxy:  proxy,
		Path:   "/v1/chat/completions",
		Key:    l.account.Key,
		Header: http.Header{"X-Include-Cost": {"1"}},
		Body:   body,
	})
	if answer == nil {
		return q
	}
	q.status, q.id, q.retryAfter = answer.Status, answer.RequestID(), answer.Header.Get("Retry-After")
	if q.status != 200 {
		q.undecided = q.status == 503 && time.Since(q.began) >= rig.DecisionTimeout
		var failed struct{ Error struct{ Code string } }
		q.whole = err == nil && json.Unmarshal(answer.Body, &failed) == nil
		q.code = failed.Error.Code
		return q
	}
	if found := toldCost.FindSubmatch(answer.Body); found != nil {
		q.told, q.toldEstimated = string(found[1]), len(found[2]) > 0
	}
	var first struct{ ID string }
	if stream {
		q.whole = err == nil && bytes.HasSuffix(bytes.TrimSpace(answer.Body), []byte("data: [DONE]")) && !bytes.Contains(answer.Body, []byte(`data: {"error"`))
		if events := answer.Events(); len(events) > 0 {
			q.whole = json.Unmarshal([]byte(events[0].Data), &first) == nil && q.whole
		}
	} else {
		err = errors.Join(err, json.Unmarshal(answer.Body, &first))
		q.whole = err == nil
	}
	q.answerID = first.ID
	return q
}

// toldCost finds the cost in an answer, which may have broken off behind it.
var toldCost = regexp.MustCompile(`"cost":([0-9.]+),"cost_currency":"USD"(,"cost_estimated":true)?`)

func answered(q request) bool { return q.status == 200 && q.whole }

// answeredOrUndecided is for requests that nothing hinders but a busy machine.
func answeredOrUndecided(q request) bool { return answered(q) || q.undecided }

func on(proxy int) func(request) bool {
	return func(q request) bool { return q.proxy == proxy && answered(q) }
}

// endedCount returns the number of requests that have ended.
func (l *load) endedCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.asked)
}
