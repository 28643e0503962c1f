package providersim

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDirectiveSyntax(t *testing.T) {
	t.Parallel()
	for _, list := range []string{"out=-1", "out=x", "out", "delay=5", "delay=-5s", "hang=1", "nothing", "message=%zz", "out=99999999999"} {
		if err := newDirectives(Config{}).apply(list); err == nil {
			t.Errorf("%q is accepted", list)
		}
	}
	d := newDirectives(Config{ChunkDelay: time.Second})
	for _, list := range []string{"", ",out=1,,delay=5ms", "out=2,message=a%2Cb%3D"} {
		if err := d.apply(list); err != nil {
			t.Fatalf("apply %q: %v", list, err)
		}
	}
	if d.out != 2 || d.delay != 5*time.Millisecond || d.chunk != time.Second || d.message != "a,b=" {
		t.Errorf("directives %+v", d)
	}
}

func TestDirectivesAreDescribed(t *testing.T) {
	t.Parallel()
	for name, help := range Directives() {
		if help == "" {
			t.Errorf("%s has no description", name)
		}
	}
	if len(Directives()) != len(directiveTable) {
		t.Error("a directive is in the table twice")
	}
}

func TestErrorDirectives(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		format Format
		list   string
		status int
		want   string // see errorOf; or the start of a raw body
	}{
		{"429", Chat, "status=429", 429, "requests/rate_limit_exceeded/"},
		{"429 messages", Messages, "status=429", 429, "rate_limit_error"},
		{"500", Responses, "status=500", 500, "server_error/server_error/"},
		{"529", Messages, "status=529", 529, "overloaded_error"},
		{"503 with a code", Chat, "status=503,code=busy", 503, "server_error/busy/"},
		{"400 with all", Images, "status=400,code=c,type=t,param=p,message=m", 400, "t/c/p"},
		{"402 messages", Messages, "status=402", 402, "billing_error"},
		{"404 videos", Videos, "status=404", 404, "invalid_request_error/model_not_found/"},
		{"error inside a 200", Chat, "status=200,code=odd", 200, "invalid_request_error/odd/"},
		{"canned", Chat, "body=quota", 429, "insufficient_quota/insufficient_quota/"},
		{"canned with another status", Chat, "body=context_length,status=413", 413, "invalid_request_error/context_length_exceeded/messages"},
		{"canned messages", Messages, "body=overloaded,status=529", 529, "overloaded_error"},
		{"html", Chat, "body=html", 502, "<html>"},
		{"a member that is unknown", Chat, "lacks=store+model", 400, "invalid_request_error/unknown_parameter/model"},
		{"array", Chat, "body=array", 400, "[{"},
		{"raw", Chat, "status=418,body=%7B%22odd%22%3A1%7D", 418, `{"odd":1}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{})
			status, body := b.ask(t, tt.format, model(tt.list))
			got := body
			if strings.HasPrefix(body, `{"error":{`) || strings.HasPrefix(body, `{"type":"error"`) {
				got = errorOf(t, tt.format, body)
			}
			if status != tt.status || !strings.HasPrefix(got, tt.want) {
				t.Errorf("answered %d %s; want %d %s", status, got, tt.status, tt.want)
			}
		})
	}
}

func TestEveryCannedBodyIsSent(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	for name, canned := range cannedBodies {
		status, body := b.ask(t, Chat, model("body="+name))
		if status != canned.status || body != canned.body {
			t.Errorf("%s answered %d %s", name, status, body)
		}
	}
	for name, canned := range cannedFaults {
		status, body := b.ask(t, Chat, model("body="+name))
		if status != canned.status || !strings.Contains(body, canned.code) {
			t.Errorf("%s answered %d %s", name, status, body)
		}
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	resp := do(t, b.request(t, http.MethodPost, paths[Chat], bodyOf(Chat, model("status=429,retry_after=7,header=x-should-retry:false"))))
	for name, want := range map[string]string{"Retry-After": "7", "X-Should-Retry": "false", "X-Request-Id": "req_t000001"} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s is %q; want %q", name, got, want)
		}
	}
	resp = do(t, b.request(t, http.MethodPost, paths[Messages], bodyOf(Messages, nil)))
	if got := resp.Header.Get("Request-Id"); got != "req_t000002" || b.last(t).RequestID != got {
		t.Errorf("Request-Id %q", got)
	}
}

func TestCutClosesTheStream(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, list    string
		events, words int64
	}{
		{"after the headers", "cut=0", 0, 0},
		{"in the text", "cut=3", 3, 2},
		{"after the last event", "cut=19", 19, 16},
		{"with keepalives between", "cut=3,keepalive", 3, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{})
			resp := do(t, b.request(t, http.MethodPost, paths[Chat], bodyOf(Chat, streamed(tt.list))))
			frames, _, err := readStream(t, resp.Body)
			if !errors.Is(err, io.ErrUnexpectedEOF) || int64(len(frames)) != tt.events {
				t.Errorf("read %d events, %v; want %d and an unexpected end", len(frames), err, tt.events)
			}
			e := b.last(t)
			if e.Outcome != OutcomeCut || e.Finished || e.EventsSent != tt.events || e.Delivered != tt.words || e.Counts != nil {
				t.Errorf("journal %+v", e)
			}
		})
	}
}

func TestCutClosesAJSONAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	resp := do(t, b.request(t, http.MethodPost, paths[Chat], bodyOf(Chat, model("cut=30"))))
	body, err := io.ReadAll(resp.Body)
	if !errors.Is(err, io.ErrUnexpectedEOF) || len(body) != 30 {
		t.Errorf("read %d bytes, %v; want 30 and an unexpected end", len(body), err)
	}
	if e := b.last(t); e.Counts != nil || e.BytesSent != 30 || e.Status != 200 {
		t.Errorf("journal %+v", e)
	}
}

func TestDropClosesWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]error{"drop": io.EOF, "drop,reset": syscall.ECONNRESET} {
		t.Run(list, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{})
			resp, err := http.DefaultClient.Do(b.request(t, http.MethodPost, paths[Chat], bodyOf(Chat, model(list))))
			if err == nil {
				resp.Body.Close()
			}
			if !errors.Is(err, want) {
				t.Errorf("error %v; want %v", err, want)
			}
			if e := b.last(t); e.Status != 0 || e.Outcome != OutcomeCut {
				t.Errorf("journal %+v", e)
			}
		})
	}
}

// The journal reports the client that leaves a stalled stream.
func TestStalledStreamEndsWithItsClient(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	ctx, leave := context.WithCancel(t.Context())
	resp := do(t, b.request(t, http.MethodPost, paths[Messages], bodyOf(Messages, streamed("stall=5"))).WithContext(ctx))
	buf := make([]byte, 1)
	for seen := 0; seen < 5; {
		if _, err := io.ReadFull(resp.Body, buf); err != nil {
			t.Fatal(err)
		}
		if buf[0] == '\n' {
			if _, err := io.ReadFull(resp.Body, buf); err != nil {
				t.Fatal(err)
			}
			if buf[0] == '\n' {
				seen++
			}
		}
	}
	if got := b.sim.Stats().InFlight; got != 1 {
		t.Errorf("%d requests in flight; want 1", got)
	}
	leave()
	if err := b.sim.WaitIdle(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := b.last(t)
	if !e.ClientGone || e.Finished || e.EventsSent != 5 || e.Outcome != OutcomeClientGone {
		t.Errorf("journal %+v", e)
	}
	if e.Counts == nil || *e.Counts != (Counts{Input: 8, Output: 1}) {
		t.Errorf("counts %+v; want those of message_start", e.Counts)
	}
}

func TestCloseEndsHangingRequests(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	resp := do(t, b.request(t, http.MethodPost, paths[Chat], bodyOf(Chat, streamed("stall=0"))))
	b.sim.Close()
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("read: %v; want an unexpected end", err)
	}
	if e := b.last(t); e.Outcome != OutcomeReleased || e.ClientGone {
		t.Errorf("journal %+v", e)
	}
	if status, _ := b.ask(t, Chat, nil); status != http.StatusOK {
		t.Errorf("after Close: status %d", status)
	}
}

func TestHangSendsNothing(t *testing.T) {
	t.Parallel()
	heard := make(chan struct{}, 2)
	b := setup(t, Config{Now: func() time.Time {
		heard <- struct{}{} // when the request begins, and when it ends
		return time.Time{}
	}})
	ctx, leave := context.WithCancel(t.Context())
	r := b.request(t, http.MethodPost, paths[Chat], bodyOf(Chat, model("hang"))).WithContext(ctx)
	done := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(r)
		if err == nil {
			resp.Body.Close()
		}
		done <- err
	}()
	<-heard
	leave()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("client error %v", err)
	}
	if err := b.sim.WaitIdle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := b.last(t); e.Outcome != OutcomeClientGone || e.Status != 0 {
		t.Errorf("journal %+v", e)
	}
}

// pauses records the pauses of a simulator.
type pauses struct {
	mu   sync.Mutex
	list []time.Duration
}

func (p *pauses) sleep(_ context.Context, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, d)
}

func TestDelaysAndChunkPauses(t *testing.T) {
	t.Parallel()
	ms := time.Millisecond
	tests := []struct {
		name   string
		cfg    Config
		change map[string]string
		want   []time.Duration
	}{
		{"none", Config{}, streamed("out=2"), nil},
		{"stream", Config{}, streamed("out=2,delay=50ms,chunk=20ms"), []time.Duration{50 * ms, 20 * ms, 20 * ms, 20 * ms, 20 * ms}},
		{"defaults", Config{Delay: 7 * ms, ChunkDelay: 3 * ms}, streamed("out=1"), []time.Duration{7 * ms, 3 * ms, 3 * ms, 3 * ms}},
		{"JSON only waits once", Config{ChunkDelay: 3 * ms}, model("delay=50ms"), []time.Duration{50 * ms}},
		{"slow JSON", Config{}, model("out=1,slow,chunk=1ms"), []time.Duration{ms, ms, ms, ms, ms, ms, ms, ms, ms}},
		{"error", Config{}, model("status=500,delay=9ms"), []time.Duration{9 * ms}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var p pauses
			tt.cfg.SleepFunc = p.sleep
			b := setup(t, tt.cfg)
			b.ask(t, Chat, tt.change)
			if diff := cmp.Diff(tt.want, p.list); diff != "" {
				t.Errorf("pauses (-want +got):\n%s", diff)
			}
		})
	}
}

// Each event reaches the client before the next one is created. The pause between two
// events waits until the client has read the first.
func TestEventsAreFlushed(t *testing.T) {
	t.Parallel()
	read := make(chan struct{})
	b := setup(t, Config{ChunkDelay: 1, SleepFunc: func(ctx context.Context, _ time.Duration) {
		select {
		case <-read:
		case <-ctx.Done():
		}
	}})
	resp := do(t, b.request(t, http.MethodPost, paths[Chat], bodyOf(Chat, streamed("out=1"))))
	buf := make([]byte, 64<<10)
	for range 3 {
		n, err := resp.Body.Read(buf)
		if err != nil || !strings.HasSuffix(string(buf[:n]), "\n\n") {
			t.Fatalf("read %q, %v; want one whole event", buf[:n], err)
		}
		read <- struct{}{}
	}
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "data: [DONE]\n\n" {
		t.Errorf("rest %q, %v", rest, err)
	}
}

func TestPlainJSONForAStream(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	for f := range contentMembers {
		resp := do(t, b.request(t, http.MethodPost, paths[f], bodyOf(f, streamed("plainjson"))))
		if got := resp.Header.Get("Content-Type"); got != "application/json" {
			t.Errorf("%s answered %s", f, got)
		}
	}
}

func TestKeepaliveOfEachFormat(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	resp := do(t, b.request(t, http.MethodPost, paths[Chat], bodyOf(Chat, streamed("out=2,keepalive"))))
	frames, comments, err := readStream(t, resp.Body)
	if err != nil || len(frames) != 5 || comments != 4 {
		t.Errorf("%d events, %d comments, %v; want 5 and 4", len(frames), comments, err)
	}
	pings := 0
	for _, f := range b.stream(t, Messages, streamed("out=2,keepalive")) {
		if f.name == "ping" {
			pings++
		}
	}
	if pings != 1+7 {
		t.Errorf("%d pings; want 8", pings)
	}
}
