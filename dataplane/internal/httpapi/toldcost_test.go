package httpapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/platform/testkit/wiresample"
	"modelgateway/shared/price"
)

const askCost = "X-Include-Cost"

// toldMembers are the members that tell the cost, with the comma before them.
var toldMembers = regexp.MustCompile(`,?"cost":([0-9.]+),"cost_currency":"USD"(,"cost_estimated":true)?`)

// checkTold compares the cost in an answer with the usage event. found reports whether there is one.
func checkTold(t *testing.T, name, body string, e *event.Usage) (found bool) {
	t.Helper()
	told := toldMembers.FindAllStringSubmatch(body, -1)
	if len(told) == 0 {
		return false
	}
	if len(told) != 1 || told[0][1] != e.Cost.String() || (told[0][2] != "") != e.Estimated {
		t.Errorf("%s: the answer tells %v; the event has %s, estimated %v:\n%s", name, told, e.Cost, e.Estimated, body)
	}
	for line := range strings.Lines(body) {
		data, isData := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if isData && data != "[DONE]" && !json.Valid([]byte(data)) {
			t.Errorf("%s: no JSON: %s", name, line)
		}
	}
	return true
}

// everyPrice sets prices of all kinds that differ from each other, a long context among them.
func everyPrice(m *catalogkv.Model) {
	if m.Type != catalogkv.Text {
		return
	}
	m.Prices[0].Sheet = price.Sheet{
		Version: 1,
		Rates: price.Rates{
			price.Input: 1_234_567_891, price.CachedInput: 123_456_789, price.CacheWrite5m: 1_543_209_877, price.CacheWrite1h: 2_469_135_782,
			price.CacheWrite30m: 1_600_000_003, price.CacheWrite12h: 3_000_000_001, price.CacheWriteOther: 1_700_000_009,
			price.Output: 9_876_543_211, price.Reasoning: 8_765_432_111, price.AudioOut: 40_000_000_001, price.ImageOut: 30_000_000_001,
		},
		Tiers:      []price.Tier{{AboveInput: 150, Rates: price.Rates{price.Input: 2_000_000_001, price.Output: 15_000_000_001}}},
		ServerTool: 10_000_001,
		Secondary: []price.SecondaryPrice{
			{Kind: price.ImageTool, Rates: price.Rates{price.Input: 7, price.Output: 9}},
			{Kind: price.Advisor, Rates: price.Rates{price.Input: 7, price.Output: 9}},
		},
	}
}

// becomeRich gives the client the key of an account that can pay for all answers of a test. They cost more than is reserved for
// them, so that what is held in the end does not follow from the events.
func (g *gateway) becomeRich() {
	const account = "acc_rich"
	g.plane.open(account, 1<<60, 1<<60, 10)
	g.key = g.issue("key_rich", account)
	g.t.Cleanup(func() { g.plane.set(func(p *controlPlane) { delete(p.accounts, account) }) })
}

// askedRequests are the paths and bodies of requests by format.
var askedRequests = map[string][2]string{
	"chat":      {"/v1/chat/completions", `{"model":"text","messages":[{"role":"user","content":"hi"}],"stream":%v}`},
	"responses": {"/v1/responses", `{"model":"text","input":"hi","stream":%v}`},
	"messages":  {"/v1/messages", `{"model":"text","messages":[{"role":"user","content":"hi"}],"max_tokens":50,"stream":%v}`},
	"images":    {"/v1/images/generations", `{"model":"image","prompt":"a cat"}`},
}

// askedBody returns the body of a request.
func askedBody(format string, stream bool) string {
	body := askedRequests[format][1]
	if !strings.Contains(body, "%v") {
		return body
	}
	return fmt.Sprintf(body, stream)
}

// Every sample answer tells the cost that is charged to the client who asks, and nothing else of it changes. Who does not ask
// sees no such member.
func TestSampleAnswersTellTheRecordedCost(t *testing.T) {
	t.Parallel()
	g := newGatewayWith(t, options{model: everyPrice}, jsonAnswer(http.StatusOK, "{}"))
	g.becomeRich()
	told := map[string]int{}
	err := fs.WalkDir(wiresample.Files(), ".", func(name string, entry fs.DirEntry, err error) error {
		request, known := askedRequests[path.Dir(name)]
		stream := path.Ext(name) == ".sse"
		if err != nil || entry.IsDir() || !known || stream && path.Dir(name) == "images" {
			return err
		}
		sample := string(wiresample.Read(t, name))
		if g.sims[0].setAnswer(jsonAnswer(http.StatusOK, sample)); stream {
			g.sims[0].setAnswer(streamAnswer(sample))
		}
		body := askedBody(path.Dir(name), stream)
		if path.Dir(name) == "chat" && stream {
			body = strings.TrimSuffix(body, "}") + `,"stream_options":{"include_usage":true}}`
		}
		plain := g.post(request[0], body)
		g.spool.next(t)
		asked := g.post(request[0], body, askCost, "1")
		e := g.spool.next(t)
		if plain.status != http.StatusOK {
			if plain.status != asked.status || strings.Contains(asked.body, `"cost"`) {
				t.Errorf("%s: a failure answers %d %s to who asks; %d to others", name, asked.status, asked.body, plain.status)
			}
			return nil
		}
		if toldMembers.MatchString(plain.body) {
			t.Errorf("%s: the cost is told to who does not ask: %s", name, plain.body)
		}
		if checkTold(t, name, asked.body, &e) {
			told[path.Dir(name)]++
		} else if e.Status == event.Completed {
			t.Errorf("%s: no cost in the answer: %s", name, asked.body)
		}
		if got := toldMembers.ReplaceAllString(asked.body, ""); got != plain.body && withoutAdded(got) != plain.body {
			t.Errorf("%s: more than the cost has changed:\n%s\nwithout asking:\n%s", name, asked.body, plain.body)
		}
		return nil
	})
	if err != nil || told["chat"] < 8 || told["responses"] < 6 || told["messages"] < 6 || told["images"] < 2 {
		t.Errorf("%v answers tell a cost, %v", told, err)
	}
}

// withoutAdded removes the usage that was added to an answer in one piece, or the chunk that was added to a stream.
func withoutAdded(body string) string {
	if strings.HasPrefix(body, "{") {
		return addedUsage.ReplaceAllString(body, "")
	}
	return addedChunk.ReplaceAllString(body, "")
}

var (
	addedUsage = regexp.MustCompile(`,"usage":\{("[a-z_]+":\d+,?)*\}`)
	addedChunk = regexp.MustCompile(`data: \{[^\n]*"choices":\[\],"usage":\{"prompt_tokens":\d+,"completion_tokens":\d+,"total_tokens":\d+\}\}\n\n`)
)

// Whatever counts a provider reports, the answer tells what the event has.
func TestGeneratedAnswersTellTheRecordedCost(t *testing.T) {
	t.Parallel()
	ds := dialects()
	g := newGatewayWith(t, options{model: everyPrice}, jsonAnswer(http.StatusOK, "{}"))
	g.becomeRich()
	r := rand.New(rand.NewPCG(33, 1))
	for n := range 60 {
		for _, f := range []string{"chat", "responses", "messages"} {
			in, out := "input_tokens", "output_tokens"
			if f == "chat" {
				in, out = "prompt_tokens", "completion_tokens"
			}
			usage := fmt.Sprintf(`{"%s":%d,"%s":%d,"%s_details":{"cached_tokens":%d},"%s_details":{"reasoning_tokens":%d},"cache_read_input_tokens":%d,"cost":%d}`,
				in, r.IntN(400), out, r.IntN(60), in, r.IntN(100), out, r.IntN(20), r.IntN(100)*(n%2), n)
			if r.IntN(8) == 0 {
				usage = []string{"null", "{}", `{"` + in + `":"?"}`}[r.IntN(3)]
			}
			whole := map[string]string{
				"chat":      `{"id":"c","object":"chat.completion","model":"up-model","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":` + usage + `}`,
				"responses": `{"id":"r","object":"response","model":"up-model","status":"completed","output":[{"type":"message"}],"usage":` + usage + `}`,
				"messages":  `{"id":"m","type":"message","model":"up-model","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","usage":` + usage + `}`,
			}[f]
			end := map[string]string{
				"chat":      chatStop + `data: {"id":"c","object":"chat.completion.chunk","model":"up-model","choices":[],"usage":` + usage + "}\n\n" + chatDone,
				"responses": `event: response.completed` + "\n" + `data: {"type":"response.completed","response":` + whole + "}\n\n",
				"messages":  `event: message_delta` + "\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":` + usage + "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
			}[f]
			for _, stream := range []bool{false, true} {
				g.sims[0].setAnswer(jsonAnswer(http.StatusOK, whole))
				if stream {
					g.sims[0].setAnswer(streamAnswer(ds[f].head, ds[f].text+end))
				}
				got := g.post(ds[f].path, askedBody(f, stream), askCost, "1")
				if got.status != http.StatusOK {
					t.Fatalf("%s %d, stream %v: %d %s for usage %s", f, n, stream, got.status, got.body, usage)
				}
				e := g.spool.next(t)
				name := fmt.Sprintf("%s %d, stream %v", f, n, stream)
				if e.Implausible() == "" && e.Status == event.Completed && !checkTold(t, name, got.body, &e) {
					t.Fatalf("%s: no cost in %s", name, got.body)
				}
			}
		}
	}
}

// A stream whose usage comes before its end, or never, tells what is recorded in the end.
func TestCostIsToldWhenItIsFinal(t *testing.T) {
	t.Parallel()
	const early = `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"up-model","choices":[{"index":0,"delta":{"content":"more"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}` + "\n\n"
	const (
		messagesUsage = `event: message_delta` + "\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}` + "\n\n"
		messagesStop  = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	)
	ds := dialects()
	for name, test := range map[string]struct {
		format string
		events []string
		// told is a part of the answer before the cost, empty for an answer without a cost.
		told string
	}{
		"usage with every chunk":     {"chat", []string{chatHead, early, early, chatText, chatStop, chatUsage, chatDone}, `"completion_tokens":5,"total_tokens":15,`},
		"no usage":                   {"chat", []string{chatHead, chatText, chatStop, chatDone}, `"object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":`},
		"usage after the end":        {"chat", []string{chatHead, chatText, chatStop + chatDone, chatUsage}, `"completion_tokens":5,"total_tokens":15,`},
		"no end":                     {"chat", []string{chatHead, chatText, chatStop, chatUsage}, `"completion_tokens":5,"total_tokens":15,`},
		"usage, then text":           {"chat", []string{chatHead, chatUsage, chatText, chatStop, chatDone}, `"choices":[],"usage":{"prompt_tokens":`},
		"a comment before the end":   {"messages", []string{ds["messages"].head, ds["messages"].text, messagesUsage, ": still here\n\n", messagesStop}, `"output_tokens":5,`},
		"a failure after the usage":  {"messages", []string{ds["messages"].head, ds["messages"].text, messagesUsage, ds["messages"].fault}, `"output_tokens":5,`},
		"a failure before the usage": {"chat", []string{chatHead, chatText, chatEventError}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, streamAnswer(test.events...))
			got := g.post(ds[test.format].path, askedBody(test.format, true), askCost, "true")
			e := g.spool.next(t)
			if got.status != http.StatusOK {
				return // the failure came with what is before it, so that another route was tried
			}
			if found := checkTold(t, name, got.body, &e); found != (test.told != "") {
				t.Fatalf("told %v in %s", found, got.body)
			}
			if test.told == "" {
				return
			}
			before := got.body[:toldMembers.FindStringIndex(got.body)[0]+1]
			before = before[strings.LastIndex(before, "data: "):]
			if !strings.Contains(before, test.told) || strings.Count(got.body, "Hello there.") != 1 {
				t.Errorf("the cost comes after %s in\n%s", before, got.body)
			}
			if e.Status == event.Completed && !strings.Contains(got.body[toldMembers.FindStringIndex(got.body)[1]:], ds[test.format].last) {
				t.Errorf("the end does not come last:\n%s", got.body)
			}
		})
	}
}

// A provider that keeps the connection open behind the usage keeps nobody waiting who asks for the cost: the end comes as if the
// provider had closed it, or with what follows in time.
func TestCostDoesNotWaitForAProviderThatKeepsTheConnectionOpen(t *testing.T) {
	t.Parallel()
	m := dialects()["messages"]
	delta, stop, _ := strings.Cut(m.end, "event: message_stop")
	stop = "event: message_stop" + stop
	for name, test := range map[string]struct {
		format   string
		provider pausingProvider
		// after is when the answer ends.
		after time.Duration
	}{
		"chat":                  {"chat", pausingProvider{first: chatHead + chatText + chatStop + chatUsage}, 5 * time.Second},
		"messages":              {"messages", pausingProvider{first: m.head + m.text + delta}, 5 * time.Second},
		"the end comes later":   {"messages", pausingProvider{first: m.head + m.text + delta, rest: stop, pause: 4 * time.Second}, 4 * time.Second},
		"text comes later":      {"chat", pausingProvider{chatHead + chatText + chatStop + chatUsage, chatText + chatUsage + chatDone, 4 * time.Second}, 4 * time.Second},
		"a comment comes later": {"messages", pausingProvider{m.head + m.text + delta, ": still here\n\n", 4 * time.Second}, 4 * time.Second},
	} {
		inBubble(t, options{routes: 1, providers: &test.provider}, func(t *testing.T, g *gateway) {
			c, asked := g.ask(dialects()[test.format].path, askedBody(test.format, true), "X-Include-Cost: 1"), time.Now()
			if err := c.SetDeadline(asked.Add(time.Minute)); err != nil { // signs of life keep it open without an end
				t.Fatal(err)
			}
			response, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			if took := time.Since(asked); err != nil || took < test.after || took > test.after+time.Second {
				t.Errorf("%s: %v after %s; want the end after %s:\n%s", name, err, took, test.after, body)
			}
			e := g.spool.next(t)
			if e.Status != event.Completed || !checkTold(t, name, string(body), &e) || !strings.Contains(string(body[len(body)-50:]), dialects()[test.format].last) {
				t.Errorf("%s: got event %+v, and\n%s", name, e, body)
			}
			_ = c.Close()
		})
	}
}

// The cost of a chat stream comes in the usage chunk, which who asks for the cost gets, too; nothing changes for others.
func TestCostOfAChatStreamComesInTheUsageChunk(t *testing.T) {
	t.Parallel()
	stream := []string{chatHead, chatText, chatStop, chatUsage, chatDone}
	g := newGateway(t, streamAnswer(stream...))
	all := strings.ReplaceAll(strings.Join(stream, ""), "up-model", "text")
	without := strings.ReplaceAll(all, strings.ReplaceAll(chatUsage, "up-model", "text"), "")
	ask := func(body string, headers ...string) string {
		t.Helper()
		got := g.post("/v1/chat/completions", body, headers...)
		e := g.spool.next(t)
		checkTold(t, body, got.body, &e)
		return got.body
	}
	withUsage := strings.TrimSuffix(askedBody("chat", true), "}") + `,"stream_options":{"include_usage":true}}`
	if got := ask(askedBody("chat", true)); got != without {
		t.Errorf("without asking: %s", got)
	}
	if got := ask(withUsage); got != all {
		t.Errorf("without asking for the cost: %s", got)
	}
	if got := ask(askedBody("chat", true), askCost, "1"); toldMembers.ReplaceAllString(got, "") != all || got == all {
		t.Errorf("by the header: %s", got)
	}
}

// An amount that could change is not told: the disk has refused the event, or an operator will decide about it.
func TestCostThatMayChangeIsNotTold(t *testing.T) {
	t.Parallel()
	ds := dialects()
	for name, d := range ds {
		g := newGateway(t, streamAnswer(d.head, d.text, d.end))
		g.spool.refuses.Store(true)
		if got := g.post(d.path, d.body, askCost, "1"); got.status != http.StatusOK || strings.Contains(got.body, `"cost`) || !strings.Contains(got.body, d.last) {
			t.Errorf("%s: %s", name, got.body)
		}
		g.spool.next(t)
		g.spool.refuses.Store(false)
		if got := g.post(d.path, d.body, askCost, "1"); !toldMembers.MatchString(got.body) {
			t.Errorf("%s: not told after the disk has room: %s", name, got.body)
		}
		g.spool.next(t)
	}
}
