package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"modelgateway/dataplane/internal/provider"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// pausingProvider sends the first part of a stream and, after a pause, the rest. Without a rest it sends nothing more.
type pausingProvider struct {
	first, rest string
	pause       time.Duration
}

func (p *pausingProvider) Do(ctx context.Context, _ *provider.Call) (*provider.Answer, error) {
	in, out := io.Pipe()
	context.AfterFunc(ctx, func() { _ = out.CloseWithError(context.Cause(ctx)) })
	first, rest, pause := p.first, p.rest, p.pause
	go func() {
		_, _ = io.WriteString(out, first)
		if rest == "" {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		_, _ = io.WriteString(out, rest)
		_ = out.Close()
	}()
	return &provider.Answer{
		Status: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: provider.NoAwait{ReadCloser: in}, Length: -1,
	}, nil
}

// readAndLeave sends a request and leaves when the marker has come.
func (g *gateway) readAndLeave(path, body, marker string) {
	g.t.Helper()
	c := g.ask(path, body)
	in := bufio.NewReader(c)
	for line := ""; !strings.Contains(line, marker); {
		var err error
		if line, err = in.ReadString('\n'); err != nil {
			g.t.Fatal(err)
		}
	}
	_ = c.Close()
}

func (g *gateway) ask(path, body string, headers ...string) net.Conn {
	g.t.Helper()
	c, more := g.dial(), strings.Join(append(headers, ""), "\r\n")
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\n%sContent-Length: %d\r\n\r\n%s", path, g.key, more, len(body), body); err != nil {
		g.t.Fatal(err)
	}
	return c
}

// reasoningUsage reports 1,000 tokens of input and 20,100 of output, of which nobody has seen 20,000.
const reasoningUsage = `"usage":{"prompt_tokens":1000,"completion_tokens":20100,"total_tokens":21100,"completion_tokens_details":{"reasoning_tokens":20000},` +
	`"input_tokens":1000,"output_tokens":20100,"output_tokens_details":{"reasoning_tokens":20000}}`

func responseEvent(kind, members string) string {
	return "event: response." + kind + "\n" + `data: {"type":"response.` + kind + `","sequence_number":1,` + members + "}\n\n"
}

// A client that leaves a stream early pays what the provider reports for it, or about as much.
func TestClientThatLeavesAStreamPaysWhatWasMade(t *testing.T) {
	t.Parallel()
	chatPath, responsesPath, messagesPath := "/v1/chat/completions", "/v1/responses", "/v1/messages"
	thinking := strings.Replace(chatStreamBody, `{`, `{"reasoning_effort":"high",`, 1)
	limited := strings.Replace(thinking, `{`, `{"max_tokens":30000,`, 1)
	chatReport := `data: {"id":"c","model":"up-model","choices":[],` + reasoningUsage + "}\n\n"
	text := responseEvent("output_text.delta", `"delta":"Hello there."`)
	reasoning := responseEvent("output_item.added", `"item":{"type":"reasoning"}`) + responseEvent("output_item.done", `"item":{"type":"reasoning","encrypted_content":"x"}`)
	started := responseEvent("output_item.added", `"item":{"type":"message"}`) + text
	completed := responseEvent("completed", `"response":{"id":"r","status":"completed","model":"up-model","output":[{"type":"message"}],`+reasoningUsage+`}`)
	image := responseEvent("output_item.added", `"item":{"type":"image_generation_call"}`) +
		responseEvent("output_item.done", `"item":{"type":"image_generation_call","result":"`+strings.Repeat("A", 4000)+`"}`)
	version := responseEvent("image_generation_call.partial_image", `"item_id":"i","partial_image_b64":"`+strings.Repeat("A", 4000)+`"`)
	audio := `data: {"id":"c","choices":[{"index":0,"delta":{"audio":{"transcript":"Hello there.","data":"` + strings.Repeat("A", 30000) + `"}}}]}` + "\n\n"
	drawn := `data: {"id":"c","choices":[{"index":0,"delta":{"images":[{"image_url":{"url":"data:image/png;base64,AAAA"}}]}}]}` + "\n\n"
	responsesBody, messagesBody := `{"model":"text","input":"hi","stream":true}`, `{"model":"text","messages":[],"max_tokens":500,"stream":true}`
	pdf := `{"model":"text","stream":true,"messages":[{"role":"user","content":[{"type":"file","file":{"file_data":"data:application/pdf;base64,` +
		strings.Repeat("A", 400_000) + `"}}]}]}`
	searched := responseEvent("output_item.done", `"item":{"type":"web_search_call","status":"completed","action":{"type":"search"}}`)
	head := dialects()["messages"].head
	thought := "event: content_block_start\n" + `data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}` + "\n\n"
	blockStop := "event: content_block_stop\n" + `data: {"type":"content_block_stop","index":0}` + "\n\n"
	messagesReport := "event: message_delta\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},` + reasoningUsage + "}\n\n"
	tests := []struct {
		name, path, body string
		provider         pausingProvider
		marker           string
		rule             string
		most             time.Duration // from leaving to the charge
		least            price.Usage
	}{
		{
			"chat, hidden reasoning, usage at once", chatPath, thinking,
			pausingProvider{chatHead + chatText, chatStop + chatReport + chatDone, 30 * time.Millisecond},
			"Hello", event.RuleReported, time.Second,
			price.Usage{Input: 1000, Output: 20100},
		},
		{
			"chat, hidden reasoning, usage late", chatPath, thinking,
			pausingProvider{chatHead + chatText, chatStop + chatReport + chatDone, 50 * time.Second},
			"Hello", event.RuleReported, time.Minute,
			price.Usage{Input: 1000, Output: 20100},
		},
		{
			"chat, hidden reasoning, no usage", chatPath, limited,
			pausingProvider{first: chatHead + chatText},
			"Hello", event.RuleEstimated, time.Minute,
			price.Usage{Input: 1, Output: 30000},
		},
		{
			"chat, ended, usage within seconds", chatPath, chatStreamBody,
			pausingProvider{chatHead + chatText + chatStop, chatReport + chatDone, 4 * time.Second},
			`"stop"`, event.RuleReported, 5 * time.Second,
			price.Usage{Input: 1000, Output: 20100},
		},
		{
			"chat, ended, no usage", chatPath, chatStreamBody,
			pausingProvider{first: chatHead + chatText + chatStop},
			`"stop"`, event.RuleEstimated, 5 * time.Second,
			price.Usage{Input: 1, Output: 3},
		},
		{
			"chat, nothing known of the model, in the middle", chatPath, chatStreamBody,
			pausingProvider{chatHead + chatText, chatStop + chatReport + chatDone, 30 * time.Millisecond},
			"Hello", event.RuleEstimated, 0,
			price.Usage{Input: 1, Output: 3},
		},
		{
			"chat, after the role", chatPath, strings.Replace(chatStreamBody, "hi", strings.Repeat("words ", 20000), 1),
			pausingProvider{first: chatHead},
			"assistant", event.RuleEstimated, 5 * time.Second,
			price.Usage{Input: 30000},
		},
		{"chat, document", chatPath, pdf, pausingProvider{first: chatHead + chatText}, "Hello", event.RuleEstimated, 5 * time.Second, price.Usage{Input: 20000, Output: 3}},
		{"chat, audio", chatPath, chatStreamBody, pausingProvider{first: chatHead + strings.Repeat(audio, 20)}, "transcript", event.RuleEstimated, 5 * time.Second, price.Usage{Input: 1, Output: 13, AudioOut: 10}},
		{"chat, image", chatPath, chatStreamBody, pausingProvider{first: chatHead + drawn}, "images", event.RuleEstimated, 5 * time.Second, price.Usage{Input: 1, Output: 4160, ImageOut: 4160, Images: 1}},
		{
			"responses, hidden reasoning, usage at once", responsesPath, responsesBody,
			pausingProvider{reasoning + started, completed, 30 * time.Millisecond},
			"Hello", event.RuleReported, time.Second,
			price.Usage{Input: 1000, Output: 20100},
		},
		{
			"responses, hidden reasoning, no usage", responsesPath, responsesBody,
			pausingProvider{first: reasoning + started},
			"Hello", event.RuleEstimated, time.Minute,
			price.Usage{Input: 1, Output: 4096},
		},
		{
			"responses, image, no usage", responsesPath, responsesBody,
			pausingProvider{first: text + image},
			"result", event.RuleEstimated, 5 * time.Second,
			price.Usage{Input: 1, Output: 3, Secondary: price.Secondary{Images: 1, Output: 4160, ImageOut: 4160}},
		},
		{
			"responses, image, usage", responsesPath, responsesBody,
			pausingProvider{text + image, completed, time.Second},
			"result", event.RuleReported, time.Second,
			price.Usage{Input: 1000, Output: 20100},
		},
		{
			"responses, version of an image", responsesPath, responsesBody,
			pausingProvider{first: version + version},
			"partial_image_b64", event.RuleEstimated, 5 * time.Second,
			price.Usage{Input: 1, Secondary: price.Secondary{Images: 1, Output: 4160, ImageOut: 4160}},
		},
		{"responses, search", responsesPath, responsesBody, pausingProvider{first: searched + started}, "Hello", event.RuleEstimated, 5 * time.Second, price.Usage{Input: 1, Output: 3, ServerToolRequests: 1}},
		{"messages, text", messagesPath, messagesBody, pausingProvider{first: head + dialects()["messages"].text}, "Hello", event.RuleEstimated, 5 * time.Second, price.Usage{Input: 10, Output: 3}},
		{
			"messages, last block done, usage", messagesPath, messagesBody,
			pausingProvider{head + dialects()["messages"].text + blockStop, messagesReport, time.Second},
			"content_block_stop", event.RuleReported, time.Second,
			price.Usage{Input: 1000, Output: 20100},
		},
		{"messages, hidden thinking", messagesPath, messagesBody, pausingProvider{first: head + thought}, `"thinking"`, event.RuleEstimated, time.Minute, price.Usage{Input: 10, Output: 500}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, options{routes: 1, providers: &tt.provider, model: priceTools}, func(t *testing.T, g *gateway) {
				g.readAndLeave(tt.path, tt.body, tt.marker)
				left := time.Now()
				synctest.Wait()
				if n := g.plane.held(theAccount, slotsOffset); n != 0 {
					t.Errorf("%d slots are held after the client has left", n)
				}
				e := g.spool.next(t)
				if took := time.Since(left); took > tt.most {
					t.Errorf("the call ended after %s; want %s at most", took, tt.most)
				}
				got, least := e.Usage, tt.least
				if e.Status != event.ClientGone || e.Rule != tt.rule || e.Estimated != (tt.rule == event.RuleEstimated) || e.Cost == 0 {
					t.Errorf("got event %+v", e)
				}
				if got.TotalInput() < least.Input || got.Output < least.Output || got.AudioOut < least.AudioOut || got.ImageOut < least.ImageOut ||
					got.Images < least.Images || got.ServerToolRequests < least.ServerToolRequests || got.Secondary.Images < least.Secondary.Images ||
					got.Secondary.Output < least.Secondary.Output || got.Secondary.ImageOut < least.Secondary.ImageOut {
					t.Errorf("got usage %+v; want at least %+v", got, least)
				}
			})
		})
	}
}

// priceTools gives the text model prices for the tools of the provider.
func priceTools(m *catalogkv.Model) {
	if m.Type == catalogkv.Text {
		m.Prices[0].Sheet.ServerTool = 10
		m.Prices[0].Sheet.Secondary = []price.SecondaryPrice{{Kind: price.ImageTool, Rates: price.Rates{price.Input: 5_000_000, price.Output: 40_000_000}}}
	}
}

// firstProvider answers the first call with the answer of a handler, and streams afterwards.
type firstProvider struct {
	pausingProvider
	first  string
	called atomic.Bool
}

func (p *firstProvider) Do(ctx context.Context, call *provider.Call) (*provider.Answer, error) {
	if p.called.Swap(true) {
		return p.pausingProvider.Do(ctx, call)
	}
	kind := "application/json"
	if p.first[0] != '{' {
		kind = "text/event-stream"
	}
	return &provider.Answer{
		Status: http.StatusOK,
		Header: http.Header{"Content-Type": {kind}},
		Body:   provider.NoAwait{ReadCloser: io.NopCloser(strings.NewReader(p.first))},
		Length: -1,
	}, nil
}

// Once a report of a model has had more reasoning than was shown, its streams are read on, whatever they show. Those of a model
// that shows all of it end with their client.
func TestReportsShowWhetherAModelHidesItsReasoning(t *testing.T) {
	t.Parallel()
	chatPath, messagesPath := "/v1/chat/completions", "/v1/messages"
	limited := strings.Replace(chatStreamBody, "{", `{"max_tokens":30000,`, 1)
	report := `data: {"id":"c","model":"up-model","choices":[],` + reasoningUsage + "}\n\n"
	summarized := dialects()["messages"].head +
		"event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"A summary."}}` + "\n\n"
	ended := "event: message_delta\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":1000,"output_tokens":20100,` +
		`"output_tokens_details":{"thinking_tokens":20000}}}` + "\n\nevent: message_stop\n" + `data: {"type":"message_stop"}` + "\n\n"
	thinks := `{"model":"text","messages":[],"max_tokens":30000,"stream":true}`
	for name, tt := range map[string]struct {
		path, first, firstBody, body string
		provider                     pausingProvider
		marker, rule                 string
		took                         time.Duration
	}{
		"stream": {
			chatPath, chatHead + chatText + chatStop + report + chatDone, limited, limited,
			pausingProvider{chatHead + chatText, chatStop + report + chatDone, 30 * time.Second},
			"Hello", event.RuleReported, 30 * time.Second,
		},
		"in one piece": {
			chatPath, strings.Replace(chatJSON, `"usage"`, reasoningUsage+`,"other"`, 1), strings.Replace(limited, `true`, `false`, 1), limited,
			pausingProvider{chatHead + chatText, chatStop + report + chatDone, 30 * time.Second},
			"Hello", event.RuleReported, 30 * time.Second,
		},
		"summary": {
			messagesPath, summarized + ended, thinks, thinks,
			pausingProvider{summarized, ended, 30 * time.Second},
			"summary", event.RuleReported, 30 * time.Second,
		},
		"nothing hidden": {
			chatPath, chatHead + chatText + chatStop + chatUsage + chatDone, limited, limited,
			pausingProvider{chatHead + chatText, chatStop + report + chatDone, time.Second},
			"Hello", event.RuleEstimated, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, options{routes: 1, providers: &firstProvider{pausingProvider: tt.provider, first: tt.first}}, func(t *testing.T, g *gateway) {
				response, err := http.ReadResponse(bufio.NewReader(g.ask(tt.path, tt.firstBody)), nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
					t.Errorf("the first answer has status %d, error %v", response.StatusCode, err)
				}
				g.spool.next(t)
				g.readAndLeave(tt.path, tt.body, tt.marker)
				left := time.Now()
				if e := g.spool.next(t); e.Rule != tt.rule || time.Since(left) != tt.took {
					t.Errorf("charged as %s after %s; want %s after %s", e.Rule, time.Since(left), tt.rule, tt.took)
				}
			})
		})
	}
}

// An account has at most as many calls that are read on as it has slots, and a server that stops waits for them.
func TestCallsThatAreReadOnAreBoundedAndAwaited(t *testing.T) {
	t.Parallel()
	report := `data: {"id":"c","model":"up-model","choices":[],` + reasoningUsage + "}\n\n"
	p := &pausingProvider{chatHead + chatText + chatStop, report + chatDone, 3 * time.Second}
	inBubble(t, options{routes: 1, providers: p}, func(t *testing.T, g *gateway) {
		g.plane.open("acc_two", 1_000_000, 1_000_000, 2)
		g.key = g.issue("key_2", "acc_two")
		for range 3 {
			g.readAndLeave("/v1/chat/completions", chatStreamBody, `"stop"`)
			synctest.Wait()
		}
		if e := g.spool.next(t); e.Rule != event.RuleEstimated || e.Status != event.ClientGone {
			t.Errorf("the oldest call: got event %+v", e)
		}
		if err := g.api.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		for range 2 {
			if e := g.spool.next(t); e.Rule != event.RuleReported || e.Usage.Output != 20100 {
				t.Errorf("got event %+v", e)
			}
		}
	})
}

// slowEndProvider sends the usage of a stream some time after its text, and its end some time after that. ended reports
// whether the call was still running then.
type slowEndProvider struct{ ended atomic.Bool }

func (p *slowEndProvider) Do(ctx context.Context, _ *provider.Call) (*provider.Answer, error) {
	in, out := io.Pipe()
	context.AfterFunc(ctx, func() { _ = out.CloseWithError(context.Cause(ctx)) })
	go func() {
		_, _ = io.WriteString(out, chatHead+chatText)
		time.Sleep(time.Second)
		_, _ = io.WriteString(out, chatStop+chatUsage)
		time.Sleep(time.Second)
		_, err := io.WriteString(out, chatDone)
		p.ended.Store(err == nil)
		_ = out.Close()
	}()
	return &provider.Answer{
		Status: http.StatusOK,
		Header: http.Header{"Content-Type": {"text/event-stream"}},
		Body:   provider.NoAwait{ReadCloser: in},
		Length: -1,
	}, nil
}

// untypedProvider answers without a media type and sends nothing.
type untypedProvider struct{}

func (untypedProvider) Do(ctx context.Context, _ *provider.Call) (*provider.Answer, error) {
	in, out := io.Pipe()
	context.AfterFunc(ctx, func() { _ = out.CloseWithError(context.Cause(ctx)) })
	return &provider.Answer{Status: http.StatusOK, Body: provider.NoAwait{ReadCloser: in}, Length: -1}, nil
}

// Whether the answer is a stream is known by its first bytes, for which the client does not wait. The provider has the input.
func TestClientThatLeavesBeforeTheKindOfTheAnswerIsKnownPaysTheInput(t *testing.T) {
	t.Parallel()
	inBubble(t, options{routes: 1, providers: untypedProvider{}}, func(t *testing.T, g *gateway) {
		c := g.ask("/v1/chat/completions", chatStreamBody)
		synctest.Wait()
		_ = c.Close()
		if e := g.spool.next(t); e.Status != event.ClientGone || e.Rule != event.RuleEstimated || e.Doubt != "interrupted" || e.Usage.Input == 0 || e.Cost == 0 {
			t.Errorf("got event %+v", e)
		}
	})
}

// Such a provider charges for the whole stream, and may take a cut one for a failure.
func TestProviderThatKeepsBillingIsReadOnBehindItsUsage(t *testing.T) {
	t.Parallel()
	p := &slowEndProvider{}
	o := options{
		routes:    1,
		providers: p,
		provider:  func(_ int, p *catalogkv.Provider) { p.KeepsBilling = true },
	}
	inBubble(t, o, func(t *testing.T, g *gateway) {
		g.readAndLeave("/v1/chat/completions", chatStreamBody, "Hello")
		if e := g.spool.next(t); e.Status != event.ClientGone || e.Rule != event.RuleReported {
			t.Errorf("got event %+v", e)
		}
		time.Sleep(time.Minute)
		if !p.ended.Load() {
			t.Error("the call was cancelled before its end")
		}
	})
}
