package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"modelgateway/dataplane/internal/provider"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
)

// dialect describes the streams of one format.
type dialect struct {
	path, body string
	// head begins a stream, text delivers textTokens, fault is an error event, end ends it.
	head, text, fault, end string
	// last occurs in the last event of a complete stream only; failed occur in a failed stream only, in this order.
	last   string
	failed []string
	// reported is the number of input tokens in the head, zero if it has none.
	reported int64
}

func dialects() map[string]dialect {
	return map[string]dialect{
		"chat": {
			path: "/v1/chat/completions", body: chatStreamBody,
			head: chatHead, text: chatText, fault: chatEventError, end: chatStop + chatUsage + chatDone,
			last: "[DONE]", failed: []string{`data: {"error":{`, `"request_id":"req_`, "data: [DONE]\n\n"},
		},
		"responses": {
			path: "/v1/responses", body: `{"model":"text","input":"hi","stream":true}`,
			head:  `event: response.created` + "\n" + `data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","created_at":1,"status":"in_progress","model":"up-model","output":[],"usage":null}}` + "\n\n",
			text:  `event: response.output_text.delta` + "\n" + `data: {"type":"response.output_text.delta","sequence_number":1,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"Hello there."}` + "\n\n",
			fault: `event: error` + "\n" + `data: {"type":"error","sequence_number":2,"error":{"type":"server_error","code":"server_error","message":"The server had an error","param":null}}` + "\n\n",
			end:   `event: response.completed` + "\n" + `data: {"type":"response.completed","sequence_number":2,"response":{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"up-model","output":[],"usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":0},"output_tokens":5,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":15}}}` + "\n\n",
			last:  "response.completed", failed: []string{"event: error\ndata: {\"type\":\"error\",", "event: response.failed\ndata: {\"type\":\"response.failed\","},
		},
		"messages": {
			path: "/v1/messages", body: `{"model":"text","messages":[{"role":"user","content":"hi"}],"max_tokens":50,"stream":true}`,
			head: `event: message_start` + "\n" + `data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"up-model","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"output_tokens":0}}}` + "\n\n" +
				`event: content_block_start` + "\n" + `data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}` + "\n\n",
			text:  `event: content_block_delta` + "\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello there."}}` + "\n\n",
			fault: `event: error` + "\n" + `data: {"type":"error","error":{"type":"api_error","message":"The server had an error"}}` + "\n\n",
			end: `event: message_delta` + "\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":5}}` + "\n\n" +
				`event: message_stop` + "\n" + `data: {"type":"message_stop"}` + "\n\n",
			last: "message_stop", failed: []string{"event: error\ndata: {\"type\":\"error\",\"error\":{", `"request_id":"req_`},
			reported: 10,
		},
	}
}

// checkFailed checks the end of a failed stream: complete events of its format that have the code and the request id.
func (d dialect) checkFailed(t *testing.T, response *http.Response, body, code string) {
	t.Helper()
	if response.StatusCode != http.StatusOK || !strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		t.Errorf("got %d %s", response.StatusCode, response.Header.Get("Content-Type"))
	}
	rest := body
	for _, want := range append(slices.Clip(d.failed), "") {
		_, after, ok := strings.Cut(rest, want)
		if rest = after; !ok {
			t.Fatalf("%q is missing, or in the wrong place, in\n%s", want, body)
		}
	}
	for _, want := range []string{code, response.Header.Get("X-Request-Id")} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is missing in\n%s", want, body)
		}
	}
	if d.last != "[DONE]" && strings.Contains(body, d.last) {
		t.Errorf("a failed stream looks complete:\n%s", body)
	}
	if !strings.HasSuffix(body, "\n\n") {
		t.Errorf("the last event is not ended:\n%s", body)
	}
	for line := range strings.Lines(body) {
		if data, ok := strings.CutPrefix(line, "data: "); ok && data != "[DONE]\n" && !json.Valid([]byte(data)) {
			t.Errorf("no JSON: %s", line)
		}
	}
}

// checkDelivered checks that the delivered text was charged.
func (d dialect) checkDelivered(t *testing.T, e event.Usage, status event.Status) {
	t.Helper()
	if e.Status != status || e.Rule != event.RuleEstimated || !e.Estimated || e.Usage.Output != textTokens || e.Usage.Input == 0 || int64(e.Cost) != e.Usage.Input+2*textTokens {
		t.Errorf("got event %+v", e)
	}
	if d.reported > 0 && e.Usage.Input != d.reported {
		t.Errorf("got input %d; reported were %d", e.Usage.Input, d.reported)
	}
}

func TestFailureDuringAStreamIsAnEventAndDeliveredTextIsCharged(t *testing.T) {
	t.Parallel()
	for name, d := range dialects() {
		tests := []struct {
			name string
			// fail is the action of the provider after its text has reached the client.
			fail     http.HandlerFunc
			provider func(i int, p *catalogkv.Provider)
		}{
			{"error event", streamAnswer(d.fault), nil},
			{"error without an envelope", streamAnswer(`data: {"object":"error","message":"The server had an error","code":500}`+"\n\n", d.end), nil},
			{"error without the framing of an event", streamAnswer(`{"error":{"message":"The server had an error"}}`+"\n\n", d.end), nil},
			{"truncated", cutAfter(), nil},
			{"ended without its last event", streamAnswer(), nil},
			{"half an event", streamAnswer(d.text[:len(d.text)-20]), nil},
			{"silent", stall, func(_ int, p *catalogkv.Provider) { p.IdleTimeoutMS = 30 }},
			{"takes too long", nil, nil},
		}
		for _, tt := range tests {
			t.Run(name+", "+tt.name, func(t *testing.T) {
				t.Parallel()
				arrived := make(chan struct{})
				o := options{provider: tt.provider}
				if tt.fail == nil {
					o.providers = timeoutProvider{d.head + d.text, arrived}
				}
				g := newGatewayWith(t, o, func(w http.ResponseWriter, r *http.Request) {
					sendEvents(w, d.head+d.text)
					<-arrived
					tt.fail(w, r)
				}, jsonAnswer(200, chatJSON))
				response := g.begin(t.Context(), http.MethodPost, d.path, strings.NewReader(d.body))
				defer func() { _ = response.Body.Close() }()
				lines := readUntilText(t, response.Body)
				close(arrived)
				rest, err := io.ReadAll(lines)
				if err != nil {
					t.Fatal(err)
				}
				d.checkFailed(t, response, string(rest), "upstream_unavailable")
				d.checkDelivered(t, g.spool.next(t), event.Failed)
				if n := len(g.sims[1].received()); n != 0 {
					t.Error("another route was tried")
				}
			})
		}
	}
}

// timeoutProvider is a provider client whose answers exceed the time limit after their text has arrived.
type timeoutProvider struct {
	text    string
	arrived <-chan struct{}
}

func (e timeoutProvider) Do(context.Context, *provider.Call) (*provider.Answer, error) {
	body := io.MultiReader(strings.NewReader(e.text), timeoutReader(e.arrived))
	return &provider.Answer{Status: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: provider.NoAwait{ReadCloser: io.NopCloser(body)}, Length: -1}, nil
}

// timeoutReader yields the error of a passed time limit when the channel is closed.
type timeoutReader <-chan struct{}

func (e timeoutReader) Read([]byte) (int, error) {
	<-e
	return 0, provider.ErrTotalTimeout
}

// watchedWriter is a client that calls a function, which inspects the spool, whenever it gets bytes.
type watchedWriter struct {
	*httptest.ResponseRecorder
	onWrite func(p []byte)
}

func (w *watchedWriter) Write(p []byte) (int, error) {
	w.onWrite(p)
	return w.ResponseRecorder.Write(p)
}

func TestOutcomeIsRecordedBeforeTheLastByteIsSent(t *testing.T) {
	t.Parallel()
	type test struct {
		name, path, body, last string
		answer                 http.HandlerFunc
	}
	tests := []test{{"non-streaming", "/v1/chat/completions", chatBody, "Hello", jsonAnswer(200, chatJSON)}}
	for name, d := range dialects() {
		tests = append(tests, test{name, d.path, d.body, d.last, streamAnswer(d.head, d.text, d.end)})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, tt.answer)
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, tt.path, strings.NewReader(tt.body))
			r.Header.Set("X-Api-Key", g.key)
			seen := false
			w := &watchedWriter{httptest.NewRecorder(), func(p []byte) {
				if strings.Contains(string(p), tt.last) && !seen {
					seen = true
					if n := len(g.spool.all()); n != 1 {
						t.Errorf("%d usage events are recorded when %q is sent", n, p)
					}
				}
			}}
			g.handler.ServeHTTP(w, r)
			if !seen || w.Code != http.StatusOK {
				t.Errorf("got %d %s; want %q in it", w.Code, w.Body, tt.last)
			}
			if e := g.spool.next(t); e.Status != event.Completed || e.Usage.Input != 10 || e.Usage.Output != 5 || e.Cost != chatCost || e.Estimated {
				t.Errorf("got event %+v", e)
			}
		})
	}
}

func TestFailureIsRecordedBeforeItsEventIsSent(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	sent := make(chan struct{})
	g.sims[0].setAnswer(func(w http.ResponseWriter, _ *http.Request) {
		sendEvents(w, chatHead+chatText)
		<-sent
		sendEvents(w, chatEventError)
	})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(chatStreamBody))
	r.Header.Set("X-Api-Key", g.key)
	writes := 0
	w := &watchedWriter{httptest.NewRecorder(), func(p []byte) {
		if writes++; writes == 1 {
			close(sent)
			return
		}
		if n := len(g.spool.all()); n != 1 || !strings.Contains(string(p), `"error"`) {
			t.Errorf("%d usage events are recorded when %q is sent", n, p)
		}
	}}
	g.handler.ServeHTTP(w, r)
	if writes != 2 {
		t.Errorf("got %d writes: %s", writes, w.Body)
	}
	dialects()["chat"].checkDelivered(t, g.spool.next(t), event.Failed)
}

func TestEventsAreForwardedAtOnce(t *testing.T) {
	t.Parallel()
	next := make(chan string)
	g := newGateway(t, func(w http.ResponseWriter, r *http.Request) {
		for {
			select {
			case part := <-next:
				if part == "" {
					return
				}
				sendEvents(w, part)
			case <-r.Context().Done():
				return
			}
		}
	})
	type begun struct {
		response *http.Response
		err      error
	}
	got := make(chan begun, 1)
	go func() {
		response, err := g.try(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(chatStreamBody))
		got <- begun{response, err}
	}()
	next <- chatHead
	b := <-got
	if b.err != nil {
		t.Fatal(b.err)
	}
	defer func() { _ = b.response.Body.Close() }()
	lines := bufio.NewReader(b.response.Body)
	expect := func(want string) {
		t.Helper()
		for _, line := range strings.SplitAfter(strings.TrimSuffix(want, "\n"), "\n") {
			if line == "" {
				line = "\n"
			}
			if got, err := lines.ReadString('\n'); err != nil || got != strings.ReplaceAll(line, "up-model", "text") {
				t.Fatalf("got %q, %v; want %q", got, err, line)
			}
		}
	}
	expect(chatHead)
	for _, part := range []string{": keep-alive\n\n", chatText, chatText, chatStop} {
		next <- part
		expect(strings.Replace(part, ": keep-alive", ":", 1))
	}
	next <- chatUsage + chatDone
	expect(chatDone)
	next <- ""
	if rest, err := io.ReadAll(lines); err != nil || len(rest) != 0 {
		t.Errorf("got %q, %v after the end", rest, err)
	}
}

// The provider keeps the connection open.
func TestStreamEndsWithItsLastEvent(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	g := newGateway(t, stallAfter(left, chatHead, chatText, chatStop, chatUsage, chatDone))
	got := g.post("/v1/chat/completions", chatStreamBody)
	if !strings.HasSuffix(got.body, chatDone) || got.status != http.StatusOK {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if e := g.spool.next(t); e.Status != event.Completed || e.Cost != chatCost {
		t.Errorf("got event %+v", e)
	}
	<-left
}

func TestMissingUsageIsEstimated(t *testing.T) {
	t.Parallel()
	piece, _, _ := strings.Cut(chatJSON, `,"usage"`)
	for name, answers := range map[string]http.HandlerFunc{
		"non-streaming": jsonAnswer(200, piece+"}"), "stream": streamAnswer(chatHead, chatText, chatStop, chatDone),
	} {
		g := newGateway(t, answers)
		body := chatBody
		if name == "stream" {
			body = chatStreamBody
		}
		if got := g.post("/v1/chat/completions", body); got.status != http.StatusOK {
			t.Errorf("%s: got %d %s", name, got.status, got.body)
		}
		e := g.spool.next(t)
		if e.Status != event.Completed || !e.Estimated || e.Rule != event.RuleEstimated || e.Usage.Output != textTokens || e.Usage.Input == 0 || int64(e.Cost) != e.Usage.Input+2*textTokens {
			t.Errorf("%s: got event %+v", name, e)
		}
	}
}

// A client of HTTP/1.0 knows no chunks: its stream ends with the connection.
func TestStreamToAClientWithoutChunksHasOnlyEvents(t *testing.T) {
	t.Parallel()
	b := newBareGateway(t, nil)
	const bursts = 3
	b.bursts.Store(bursts)
	request := bytes.Replace(b.streamRequest, []byte(" HTTP/1.1\r\n"), []byte(" HTTP/1.0\r\n"), 1)
	if _, err := b.client.Write(request); err != nil {
		t.Fatal(err)
	}
	for range bursts + 1 { // the last one is for the end
		b.next <- struct{}{}
	}
	text, err := io.ReadAll(b.client)
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := bytes.Cut(text, []byte("\r\n\r\n"))
	if n := bytes.Count(body, []byte("delta")); n != bursts*eventsPerBurst {
		t.Errorf("got %d events", n)
	}
	for line := range bytes.Lines(body) {
		if len(line) > 1 && !bytes.HasPrefix(line, []byte("data: ")) {
			t.Errorf("got the line %q", line)
		}
	}
}
