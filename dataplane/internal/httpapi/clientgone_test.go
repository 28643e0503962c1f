package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"modelgateway/dataplane/internal/httpapi"
	"modelgateway/dataplane/internal/httpapi/clientconn"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/platform/testkit/await"
)

// firstLine reads the first line of a stream.
func firstLine(t *testing.T, r io.Reader) *bufio.Reader {
	t.Helper()
	lines := bufio.NewReader(r)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return lines
}

// awaitClosed waits until the gateway can see that the client of the next request has closed the connection.
func (g *gateway) awaitClosed() {
	g.t.Helper()
	await.Until(g.t, "the end of the client's connection", clientconn.Of(<-g.served).ClosedByClient)
}

// readUntilText reads up to and including the text of the stream.
func readUntilText(t *testing.T, r io.Reader) *bufio.Reader {
	t.Helper()
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, "Hello there.") {
			return lines
		}
	}
}

func TestClientThatLeavesAStreamEndsTheCallAndIsChargedForDeliveredText(t *testing.T) {
	t.Parallel()
	for name, d := range dialects() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			left := make(chan struct{})
			g := newGateway(t, stallAfter(left, d.head, d.text))
			ctx, leave := context.WithCancel(t.Context())
			response := g.begin(ctx, http.MethodPost, d.path, strings.NewReader(d.body))
			readUntilText(t, response.Body)
			leave()
			_ = response.Body.Close()
			d.checkDelivered(t, g.spool.next(t), event.ClientGone)
			<-left // the call has ended
		})
	}
}

func TestClientThatLeavesBeforeTheFirstByteIsNotCharged(t *testing.T) {
	t.Parallel()
	entered, left := make(chan struct{}), make(chan struct{})
	g := newGateway(t, func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(left)
	})
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		response, err := g.try(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(chatStreamBody))
		if err == nil {
			_ = response.Body.Close()
		}
		done <- err
	}()
	<-entered
	leave()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if e := g.spool.next(t); e.Status != event.ClientGone || e.Cost != 0 || e.Rule != event.RuleNone || e.HTTPStatus != 499 {
		t.Errorf("got event %+v", e)
	}
	<-left
}

// A provider that has begun to answer has processed the prompt.
func TestClientThatLeavesBeforeTheTextIsChargedForTheInput(t *testing.T) {
	t.Parallel()
	for name, d := range dialects() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			left := make(chan struct{})
			g := newGateway(t, stallAfter(left, d.head))
			ctx, leave := context.WithCancel(t.Context())
			response := g.begin(ctx, http.MethodPost, d.path, strings.NewReader(d.body))
			firstLine(t, response.Body)
			leave()
			_ = response.Body.Close()
			e := g.spool.next(t)
			if e.Status != event.ClientGone || e.Usage.Input == 0 || int64(e.Cost) != e.Usage.Input || e.Usage.Output != 0 || e.Rule != event.RuleEstimated {
				t.Errorf("got event %+v", e)
			}
			if d.reported > 0 && e.Usage.Input != d.reported {
				t.Errorf("got input %d; reported were %d", e.Usage.Input, d.reported)
			}
			<-left
		})
	}
}

func TestStreamOfProviderThatKeepsBillingIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	g := newGatewayWith(t, options{provider: func(_ int, p *catalogkv.Provider) { p.KeepsBilling = true }},
		func(w http.ResponseWriter, _ *http.Request) {
			sendEvents(w, chatHead, chatText)
			<-gone
			sendEvents(w, chatText, chatText, chatStop, chatUsage, chatDone)
		})
	ctx, leave := context.WithCancel(t.Context())
	response := g.begin(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(chatStreamBody))
	firstLine(t, response.Body)
	leave()
	_ = response.Body.Close()
	g.awaitClosed()
	close(gone)
	if e := g.spool.next(t); e.Status != event.ClientGone || e.Cost != chatCost || e.Rule != event.RuleReported || e.Estimated {
		t.Errorf("got event %+v", e)
	}
}

func TestNonStreamingAnswerIsReadToItsEndWithoutItsClient(t *testing.T) {
	t.Parallel()
	entered, gone := make(chan struct{}), make(chan struct{})
	g := newGateway(t, func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		select {
		case <-gone:
		case <-r.Context().Done():
			t.Error("the call was ended")
		}
		jsonAnswer(200, chatJSON)(w, r)
	})
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if response, err := g.try(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(chatBody)); err == nil {
			_ = response.Body.Close()
		}
	}()
	<-entered
	leave()
	<-done
	g.awaitClosed()
	close(gone)
	if e := g.spool.next(t); e.Status != event.Completed || e.Cost != chatCost || e.Rule != event.RuleReported {
		t.Errorf("got event %+v", e)
	}
}

func TestRevocationEndsStreamsWithAnErrorOfTheirFormat(t *testing.T) {
	t.Parallel()
	for name, d := range dialects() {
		for _, keeps := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				left := make(chan struct{})
				g := newGatewayWith(t, options{provider: func(_ int, p *catalogkv.Provider) { p.KeepsBilling = keeps }}, stallAfter(left, d.head, d.text))
				response := g.begin(t.Context(), http.MethodPost, d.path, strings.NewReader(d.body))
				defer func() { _ = response.Body.Close() }()
				lines := readUntilText(t, response.Body)
				g.revoke(g.key)
				rest, err := io.ReadAll(lines)
				if err != nil {
					t.Fatal(err)
				}
				d.checkFailed(t, response, string(rest), "invalid_api_key")
				d.checkDelivered(t, g.spool.next(t), event.Revoked)
				<-left
			})
		}
	}
}

func TestRevocationBeforeTheStreamIsAnError(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	g := newGateway(t, func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	}, streamAnswer(chatHead, chatDone))
	go func() {
		<-entered
		g.revoke(g.key)
	}()
	got := g.post("/v1/messages", `{"model":"text","messages":[],"max_tokens":5,"stream":true}`).apiError(t)
	if got.Status != 401 || got.Code != "invalid_api_key" || !got.Final || !got.Messages {
		t.Errorf("got %+v", got)
	}
	if e := g.spool.next(t); e.Status != event.Revoked || e.Cost != 0 || e.HTTPStatus != 401 {
		t.Errorf("got event %+v", e)
	}
	if n := len(g.sims[1].received()); n != 0 {
		t.Error("another route was tried")
	}
}

func TestNonStreamingAnswerIsDeliveredDespiteRevocation(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	g.sims[0].setAnswer(func(w http.ResponseWriter, r *http.Request) {
		g.revoke(g.key)
		jsonAnswer(200, chatJSON)(w, r)
	})
	if got := g.post("/v1/chat/completions", chatBody); got.status != http.StatusOK {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if e := g.spool.next(t); e.Status != event.Completed || e.Cost != chatCost {
		t.Errorf("got event %+v", e)
	}
}

// endlessStream is a provider whose stream ends when the gateway ends the call. It sends a text each millisecond.
type endlessStream struct{ left chan struct{} }

func (p *endlessStream) Do(ctx context.Context, _ *provider.Call) (*provider.Answer, error) {
	return &provider.Answer{
		Status: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Length: -1,
		Body: provider.NoAwait{ReadCloser: &endlessBody{ctx: ctx, left: p.left, rest: chatHead}},
	}, nil
}

type endlessBody struct {
	ctx  context.Context
	left chan struct{}
	rest string
}

func (b *endlessBody) Read(p []byte) (int, error) {
	if time.Sleep(time.Millisecond); b.ctx.Err() != nil {
		return 0, b.ctx.Err()
	}
	n := copy(p, b.rest)
	if b.rest = b.rest[n:]; b.rest == "" {
		b.rest = chatText
	}
	return n, nil
}

func (b *endlessBody) Close() error {
	select {
	case b.left <- struct{}{}:
	default: // it was closed before
	}
	return nil
}

func TestStalledClientCountsAsGone(t *testing.T) {
	t.Parallel()
	stream := new(endlessStream)
	inBubble(t, options{routes: 1, providers: stream}, func(t *testing.T, g *gateway) {
		stream.left = make(chan struct{}, 1) // of the bubble
		c := g.dial()
		_, err := fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
			g.key, len(chatStreamBody), chatStreamBody)
		if err != nil {
			t.Fatal(err)
		}
		const texts = 1000
		lines := bufio.NewReader(c)
		for range texts {
			readUntilText(t, lines)
		}
		if e := g.spool.next(t); e.Status != event.ClientGone || !e.Estimated || e.Usage.Output < texts*textTokens {
			t.Errorf("got event %+v", e)
		}
		<-stream.left
	})
}

// The answer ends in the middle of a chunk, so the connection cannot be used for another one.
func TestConnectionOfAStalledClientIsClosed(t *testing.T) {
	t.Parallel()
	g := newGatewayWith(t, options{cfg: httpapi.Config{StallTimeout: 50 * time.Millisecond}}, func(w http.ResponseWriter, r *http.Request) {
		sendEvents(w, chatHead)
		many := strings.Repeat(chatText, 1000)
		for r.Context().Err() == nil {
			sendEvents(w, many)
		}
	})
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.api.Serve(listener) }()
	client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(client, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
		g.key, len(chatStreamBody), chatStreamBody)
	if err != nil {
		t.Fatal(err)
	}
	if e := g.spool.next(t); e.Status != event.ClientGone {
		t.Errorf("got event %+v", e)
	}
	got, room := []byte(nil), make([]byte, 1<<16)
	for err == nil {
		var n int
		n, err = client.Read(room)
		if got = append(got, room[:n]...); bytes.HasSuffix(got, []byte("0\r\n\r\n")) {
			t.Error("a truncated answer looks complete")
			break
		}
	}
	if err := errors.Join(client.Close(), g.api.Stop(context.WithoutCancel(t.Context()))); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// panicProvider panics when a provider is called, or when its answer is read.
type panicProvider struct{ answer *provider.Answer }

func (p panicProvider) Do(context.Context, *provider.Call) (*provider.Answer, error) {
	if p.answer == nil {
		panic("a programming error")
	}
	return p.answer, nil
}

// panicBody is a body that panics at its end.
type panicBody struct{ *strings.Reader }

func (p panicBody) Read(b []byte) (int, error) {
	if p.Len() == 0 {
		panic("a programming error")
	}
	return p.Reader.Read(b)
}

func (panicBody) Close() error { return nil }

func TestPanicIsAnsweredWith500(t *testing.T) {
	t.Parallel()
	for path, body := range map[string]string{"/v1/chat/completions": chatBody, "/v1/messages": `{"model":"text","messages":[],"max_tokens":1}`} {
		g := newGatewayWith(t, options{providers: panicProvider{}}, stall)
		got := g.post(path, body).apiError(t)
		if got.Status != 500 || got.Code != "" || got.Messages != (path == "/v1/messages") || strings.Contains(got.Message, "programming error") {
			t.Errorf("got %+v", got)
		}
		if e := g.spool.next(t); e.Status != event.Failed || e.Cost != 0 || e.HTTPStatus != 500 {
			t.Errorf("got event %+v", e)
		}
	}
}

func TestPanicClosesTheConnectionOfAStream(t *testing.T) {
	t.Parallel()
	g := newGatewayWith(t, options{providers: panicProvider{&provider.Answer{
		Status: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: provider.NoAwait{ReadCloser: panicBody{strings.NewReader(chatHead + chatText)}}, Length: -1,
	}}}, stall)
	response := g.begin(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(chatStreamBody))
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err == nil || !strings.Contains(string(data), "Hello") {
		t.Errorf("got %q, %v; want a truncated answer", data, err)
	}
	if e := g.spool.next(t); e.Status != event.Failed {
		t.Errorf("got event %+v", e)
	}
}
