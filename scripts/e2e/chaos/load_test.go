package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"modelgateway/scripts/e2e/rig"
)

// A load is a number of clients that ask one request after the other, JSON and
// streams in turn, each on one proxy.
type load struct {
	r       *rig.Rig
	model   string
	account *rig.Account

	stop    context.CancelFunc
	clients sync.WaitGroup

	mu sync.Mutex
	// asked are all requests that ended, in that order; more is closed, and made
	// anew, with each of them.
	asked []request
	more  chan struct{}
}

// A request is what a client knows about one of its requests.
type request struct {
	proxy  int
	stream bool
	began  time.Time
	// status is 0 when no answer came, code the code of an error.
	status int
	code   string
	// retryAfter is the header of that name.
	retryAfter string
	// whole: the answer came to its proper end.
	whole bool
	// id is the gateway's, answerID the provider's.
	id, answerID string
}

func (q request) String() string {
	return fmt.Sprintf("proxy %d, stream %t: status %d %s, whole %t, %s", q.proxy, q.stream, q.status, q.code, q.whole, q.id)
}

// startLoad starts the clients. The test ends them with finish.
func startLoad(t *testing.T, clients int) *load {
	t.Helper()
	return startLoadOn(t, rig.Get(t), clients)
}

// startLoadOn starts them on a stack of the test's own.
func startLoadOn(t *testing.T, r *rig.Rig, clients int) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &load{
		r: r, stop: stop, more: make(chan struct{}),
		model:   r.Model(t, rig.Model{Formats: []string{"chat"}, Directives: "delay=10ms,chunk=2ms,out=20"}),
		account: r.Account(t, rig.AccountSpec{}),
	}
	for i := range clients {
		l.clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				// A request that has begun is seen to its end.
				q := l.ask(context.WithoutCancel(ctx), i%len(r.Proxies), n%2 == 1)
				l.note(q)
				if q.status != 200 {
					pause(ctx)
				}
			}
		})
	}
	return l
}

// pause keeps a client that is turned away from asking as fast as it can.
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

// await waits until n more requests ended for which is says yes.
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
				return fmt.Errorf("%d came", found)
			}
		}
	})
}

// finish lets the running requests end and returns all of them.
func (l *load) finish() []request {
	l.stop()
	l.clients.Wait()
	return l.asked
}

// ask asks one request.
func (l *load) ask(ctx context.Context, proxy int, stream bool) request {
	q := request{proxy: proxy, stream: stream, began: time.Now()}
	body := map[string]any{"model": l.model, "messages": []any{map[string]any{"role": "user", "content": "Are you still there?"}}, "stream": stream}
	answer, err := l.r.Try(ctx, rig.Request{Proxy: proxy, Path: "/v1/chat/completions", Key: l.account.Key, Body: body})
	if answer == nil {
		return q
	}
	q.status, q.id, q.retryAfter = answer.Status, answer.RequestID(), answer.Header.Get("Retry-After")
	if q.status != 200 {
		var failed struct{ Error struct{ Code string } }
		q.whole = err == nil && json.Unmarshal(answer.Body, &failed) == nil
		q.code = failed.Error.Code
		return q
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

func answered(q request) bool { return q.status == 200 && q.whole }

func on(proxy int) func(request) bool {
	return func(q request) bool { return q.proxy == proxy && answered(q) }
}

// sofar is the number of requests that have ended.
func (l *load) sofar() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.asked)
}
