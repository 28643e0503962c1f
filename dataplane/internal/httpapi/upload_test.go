package httpapi_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/limit"
	"modelgateway/shared/platform/testkit/await"
	"modelgateway/shared/wire"
)

const mib = 1 << 20

// spaces yields a number of spaces and then waits until the channel is closed.
func spaces(n int64, until <-chan struct{}) io.Reader {
	return io.MultiReader(io.LimitReader(spaceReader{}, n), blockingReader(until))
}

type spaceReader struct{}

var manySpaces = strings.Repeat(" ", 64<<10)

func (spaceReader) Read(p []byte) (int, error) { return copy(p, manySpaces), nil }

// startUpload begins to send a body with a declared length, all of it but the last byte, and waits until the gateway has
// taken its room. The upload ends with the test, or when stop is called.
func (g *gateway) startUpload(key string, length int64) (stop func()) {
	g.t.Helper()
	ctx, cancel := context.WithCancel(g.t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url+"/v1/images/generations", spaces(length-1, ctx.Done()))
	if err != nil {
		g.t.Fatal(err)
	}
	request.ContentLength = length
	request.Header.Set("X-Api-Key", key)
	want := g.budget.Used() + length
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if response, err := g.client.Do(request); err == nil {
			g.t.Errorf("an upload without an end was answered %d", response.StatusCode)
			_ = response.Body.Close()
		}
	}()
	await.Until(g.t, "the room of an upload", func() bool { return g.budget.Used() >= want })
	stop = func() {
		rest := g.budget.Used() - length
		cancel()
		<-ended
		await.Until(g.t, "the release of an upload's room", func() bool { return g.budget.Used() <= rest })
	}
	g.t.Cleanup(func() { cancel(); <-ended })
	return stop
}

// refusedUpload sends the headers of an upload, whose body the gateway must not ask for, and returns the answer.
func (g *gateway) refusedUpload(key string, length int64) answer {
	g.t.Helper()
	body := &countingReader{Reader: spaceReader{}}
	request, err := http.NewRequestWithContext(g.t.Context(), http.MethodPost, g.url+"/v1/images/generations", body)
	if err != nil {
		g.t.Fatal(err)
	}
	request.ContentLength = length
	request.Header.Set("X-Api-Key", key)
	request.Header.Set("Expect", "100-continue")
	response, err := g.client.Do(request)
	if err != nil {
		g.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	if body.n != 0 {
		g.t.Errorf("the gateway took %d bytes of a body before it refused it", body.n)
	}
	return answer{response.StatusCode, response.Header, string(data)}
}

var busy = apiError{Status: 503, Code: "service_unavailable", RetryAfter: "1"}

func TestUploadsBeyondTheBudgetAreRefused(t *testing.T) {
	t.Parallel()
	g := newGatewayWith(t, options{budget: 80 * mib}, jsonAnswer(http.StatusOK, chatJSON))
	g.plane.open("acc_2", 1_000_000, 1_000_000, 10)
	other := g.issue("key_2", "acc_2")
	stop := g.startUpload(g.key, 15*mib)
	if diff := cmp.Diff(busy, g.refusedUpload(g.key, 6*mib).apiError(t), ignoreTexts); diff != "" {
		t.Errorf("an upload beyond the account's share (-want +got):\n%s", diff)
	}
	g.startUpload(other, 50*mib)
	if diff := cmp.Diff(busy, g.refusedUpload(other, 20*mib).apiError(t), ignoreTexts); diff != "" {
		t.Errorf("an upload beyond the budget (-want +got):\n%s", diff)
	}
	if got := g.post("/v1/chat/completions", chatBody); got.status != http.StatusOK {
		t.Errorf("a small request beside large uploads: got %d %s", got.status, got.body)
	}
	stop()
	g.startUpload(g.key, 6*mib)
}

func TestChunkedUploadIsRefusedWhenItExceedsTheBudget(t *testing.T) {
	t.Parallel()
	g := newGatewayWith(t, options{budget: 80 * mib})
	g.startUpload(g.key, 15*mib)
	ended := make(chan struct{})
	response := g.begin(t.Context(), http.MethodPost, "/v1/images/generations", spaces(9*mib, ended))
	close(ended)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("got %d", response.StatusCode)
	}
}

func TestAccountSendsNoMoreLargeBodiesThanItHasSlots(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.plane.open("acc_2", 1_000_000, 1_000_000, 2)
	key := g.issue("key_2", "acc_2")
	stop := g.startUpload(key, 2*mib)
	g.startUpload(key, 2*mib)
	want := apiError{Status: 429, Code: "rate_limit_exceeded", RetryAfter: "1"}
	if diff := cmp.Diff(want, g.refusedUpload(key, 2*mib).apiError(t), ignoreTexts); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := g.post("/v1/chat/completions", `{"model":"none"}`, "Authorization", "Bearer "+key).apiError(t); got.Status != http.StatusNotFound {
		t.Errorf("a small body: got %+v", got)
	}
	stop()
	g.startUpload(key, 2*mib)
}

// The slots of a key bound its uploads beside those of its account: another key goes on.
func TestKeySendsNoMoreLargeBodiesThanItHasSlots(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.plane.open("acc_2", 1_000_000, 1_000_000, 3)
	key, other := g.issue("key_2", "acc_2"), g.issue("key_3", "acc_2")
	g.plane.change(g.hasher.Hash(key), func(r *wire.KeyRecord) { r.KeyMaxConcurrent = 1 })
	stop := g.startUpload(key, 2*mib)
	refusal := g.refusedUpload(key, 2*mib).apiError(t)
	if refusal.Status != 429 || refusal.Code != "rate_limit_exceeded" || refusal.RetryAfter != "1" || !strings.Contains(refusal.Message, "This API key") {
		t.Errorf("a second upload: got %+v", refusal)
	}
	g.startUpload(other, 2*mib)
	g.startUpload(other, 2*mib)
	stop()
	g.startUpload(key, 2*mib) // the refused upload counts neither for the key nor for the account
}

// A window of a limit in which nothing is left refuses a large body before it is read, at whichever level the limit is.
func TestLargeBodyBeyondASpentLimitIsNotRead(t *testing.T) {
	t.Parallel()
	for _, scope := range []limit.Scope{limit.Account, limit.Project, limit.Key} {
		g := newGateway(t)
		spent := limit.Limit{ID: 7, Name: "lim_7", Scope: scope, Window: limit.Window{Period: limit.Forever}}
		span, err := (&limit.Windows{}).Current(&spent, time.Now().UnixMilli())
		if err != nil {
			t.Fatal(err)
		}
		g.plane.change(g.hasher.Hash(g.key), func(r *wire.KeyRecord) { r.Limits = []limit.Limit{spent} })
		g.plane.set(func(p *controlPlane) {
			id := wire.PoolID(limit.Pool(spent.ID, span.Number))
			p.allocator.Pools[id] = &allocator.Pool{ID: id, Kind: wire.Limit, Total: 5, Settled: 5, Generation: 1, Central: true}
		})
		refusal := g.refusedUpload(g.key, 2*mib)
		if got := refusal.apiError(t); got.Status != http.StatusForbidden || got.Code != "spend_limit_exceeded" {
			t.Errorf("%s: got %+v", scope, got)
		}
		if got := refusal.header.Get("X-Limit-Scope"); got != string(scope) {
			t.Errorf("the refusal names the scope %q; want %s", got, scope)
		}
	}
}

func TestLargeBodyOfAnAccountWithoutMoneyIsNotRead(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.plane.spend(theAccount, balanceOffset, 0)
	want := apiError{Status: 402, Code: "insufficient_quota", Final: true}
	if diff := cmp.Diff(want, g.refusedUpload(g.key, 2*mib).apiError(t), ignoreTexts); diff != "" {
		t.Errorf("a balance of zero (-want +got):\n%s", diff)
	}
	g.plane.open("acc_2", 1_000_000, 0, 10)
	limited := g.issue("key_2", "acc_2")
	want = apiError{Status: 403, Code: "spend_limit_exceeded", Final: true}
	if diff := cmp.Diff(want, g.refusedUpload(limited, 2*mib).apiError(t), ignoreTexts); diff != "" {
		t.Errorf("a spend limit of zero (-want +got):\n%s", diff)
	}
	ended := make(chan struct{})
	chunked := g.begin(t.Context(), http.MethodPost, "/v1/images/generations", spaces(2*mib, ended))
	close(ended)
	_ = chunked.Body.Close()
	if chunked.StatusCode != http.StatusPaymentRequired {
		t.Errorf("an unfinished body without a declared length: got %d; want 402", chunked.StatusCode)
	}
	// The order of the checks is that of the contract for all other bodies.
	if got := g.post("/v1/chat/completions", `{"model":"none","x":"`+strings.Repeat("x", mib-100)+`"}`).apiError(t); got.Status != http.StatusNotFound {
		t.Errorf("a small body: got %+v", got)
	}
	g.plane.set(func(p *controlPlane) { p.down = true })
	g.startUpload(g.key, 2*mib) // nobody knows whether there is money
	g.plane.set(func(p *controlPlane) { p.down = false })
}

func TestRoomOfABodyIsFreeWhenItsStreamBegins(t *testing.T) {
	t.Parallel()
	streaming, end := make(chan struct{}), make(chan struct{})
	g := newGateway(t, func(w http.ResponseWriter, _ *http.Request) {
		sendEvents(w, chatHead)
		close(streaming)
		<-end
		sendEvents(w, chatText, chatStop, chatUsage, chatDone)
	})
	body := `{"model":"text","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("x", 100_000) + `"}]}`
	response := g.begin(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
	<-streaming
	await.Until(t, "the connection to the provider to release the body as well", func() bool { return g.budget.Used() == 0 })
	close(end)
	data, err := io.ReadAll(response.Body)
	if err != nil || !strings.HasSuffix(string(data), "data: [DONE]\n\n") {
		t.Errorf("got %s, %v", data, err)
	}
	_ = response.Body.Close()
}

func TestCompressedBodiesAreAccepted(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusOK, chatJSON))
	body := []byte(`{"model":"text","messages":[{"role":"user","content":"` + strings.Repeat("words ", 50_000) + `"}]}`)
	bomb := bytes.Repeat([]byte(" "), 26*mib)
	tests := []struct {
		name, encoding string
		body           []byte
		status         int
	}{
		{"gzip", "gzip", zipped(t, body), 200},
		{"two members", "GZIP", append(zipped(t, body[:1000]), zipped(t, body[1000:])...), 200},
		{"zstd", "zstd", zstandard(t, body), 200},
		{"none", "identity", body, 200},
		{"too large in the end", "gzip", zipped(t, bomb), 413},
		{"too large in the end", "zstd", zstandard(t, bomb), 413},
		{"not compressed", "gzip", body, 400},
		{"not compressed", "zstd", body, 400},
		{"cut", "gzip", zipped(t, body)[:100], 400},
		{"cut", "zstd", zstandard(t, body)[:30], 400},
		{"something after it", "gzip", append(zipped(t, body), "more"...), 400},
		{"another encoding", "br", body, 400},
		{"two encodings", "gzip, zstd", body, 400},
	}
	for _, tt := range tests {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+"/v1/chat/completions", bytes.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Api-Key", g.key)
		request.Header.Set("Content-Encoding", tt.encoding)
		response, err := g.client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		got := answer{response.StatusCode, response.Header, string(data)}
		if err != nil || got.status != tt.status {
			t.Errorf("%s, %s: got %d %s, %v; want %d", tt.encoding, tt.name, got.status, got.body, err, tt.status)
			continue
		}
		if tt.status != http.StatusOK {
			if e := got.apiError(t); e.Code != "invalid_request" || !e.Final || tt.status == http.StatusBadRequest && !strings.Contains(e.Message, "encoding") {
				t.Errorf("%s, %s: got %+v", tt.encoding, tt.name, e)
			}
			continue
		}
		calls := g.sims[0].received()
		last := calls[len(calls)-1]
		if want := strings.Replace(string(body), `"text"`, `"up-model"`, 1); !strings.HasPrefix(last.body, want[:len(want)-1]) || last.header.Get("Content-Encoding") != "" {
			t.Errorf("%s, %s: the provider got %d bytes with the encoding %q", tt.encoding, tt.name, len(last.body), last.header.Get("Content-Encoding"))
		}
	}
	if used := g.budget.Used(); used != 0 {
		t.Errorf("%d bytes of the budget are in use", used)
	}
}

func zipped(t *testing.T, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zstandard(t *testing.T, text []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	return w.EncodeAll(text, nil)
}

// Many clients read nothing before they have sent their whole request.
func TestRefusalReachesClientsThatSendEverythingFirst(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.plane.open("acc_2", 0, 1_000_000, 10)
	poor := g.issue("key_2", "acc_2")
	address := g.serve()
	large := bytes.Repeat([]byte("x"), 28*mib)
	tests := []struct {
		name, path, key string
		chunked         bool
		body            []byte
		status          int
	}{
		{"too large", "/v1/chat/completions", g.key, false, large, 413},
		{"too large", "/v1/messages", g.key, true, large, 413},
		{"no key", "/v1/chat/completions", "", false, large, 401},
		{"no key", "/v1/chat/completions", "", true, large, 401},
		{"no such path", "/v1/none", g.key, false, large, 404},
		{"no money", "/v1/images/generations", poor, false, large, 402},
	}
	for _, tt := range tests {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		length := fmt.Sprintf("Content-Length: %d", len(tt.body))
		if tt.chunked {
			length = "Transfer-Encoding: chunked"
			tt.body = fmt.Appendf(nil, "%x\r\n%s\r\n0\r\n\r\n", len(tt.body), tt.body)
		}
		_, err = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\n%s\r\n\r\n", tt.path, tt.key, length)
		if err == nil {
			_, err = c.Write(tt.body)
		}
		if err != nil {
			t.Fatalf("%s, chunked %v: send: %v", tt.name, tt.chunked, err)
		}
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s, chunked %v: %v", tt.name, tt.chunked, err)
		}
		data, err := io.ReadAll(response.Body)
		_, _ = response.Body.Close(), c.Close()
		if err != nil || response.StatusCode != tt.status || !response.Close {
			t.Errorf("%s, chunked %v: got %d, closed %v: %s, %v; want %d", tt.name, tt.chunked, response.StatusCode, response.Close, data, err, tt.status)
		}
	}
}

// serve serves the API on a port of its own, without the harness in front of it, until the end of the test.
func (g *gateway) serve() (address string) {
	g.t.Helper()
	l := listen(g.t)
	served := make(chan error, 1)
	go func() { served <- g.api.Serve(l) }()
	g.t.Cleanup(func() {
		if err := g.api.Stop(context.Background()); err != nil {
			g.t.Error(err)
		}
		if err := <-served; err != nil {
			g.t.Error(err)
		}
	})
	return l.Addr().String()
}

// The list of members needs many times the memory of a body with tiny members.
func TestMembersOfABodyCountForTheBudget(t *testing.T) {
	t.Parallel()
	g := newGatewayWith(t, options{budget: 80 * mib}, jsonAnswer(http.StatusOK, chatJSON))
	var body strings.Builder
	body.WriteString(`{"model":"text","messages":[]`)
	for i := range 100_000 {
		fmt.Fprintf(&body, `,"m%d":0`, i)
	}
	body.WriteString("}")
	status := func() int { return g.post("/v1/chat/completions", body.String()).status }
	if got := status(); got == http.StatusServiceUnavailable {
		t.Errorf("with room: got %d", got)
	}
	others := g.budget.Begin("somebody")
	if err := others.Grow(64 * mib); err != nil {
		t.Fatal(err)
	}
	if got := status(); got != http.StatusServiceUnavailable {
		t.Errorf("with room for the body and not for its members: got %d; want 503", got)
	}
	others.Release()
	await.Until(t, "the release of all bodies", func() bool { return g.budget.Used() == 0 })
}
