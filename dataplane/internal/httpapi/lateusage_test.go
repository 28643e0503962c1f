package httpapi_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"modelgateway/shared/event"
)

// Some providers send the usage after the end that the format knows. It is read, and nothing of it reaches the client.
func TestUsageAfterTheEndIsCharged(t *testing.T) {
	t.Parallel()
	ds := dialects()
	for name, test := range map[string]struct {
		dialect dialect
		end     string
		after   []string
	}{
		"chat":               {ds["chat"], chatStop + chatDone, []string{chatUsage}},
		"chat with two ends": {ds["chat"], chatStop + chatDone, []string{chatDone, chatUsage, chatDone}},
		"responses": {
			ds["responses"],
			`data: {"type":"response.completed","response":{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"up-model","output":[]}}` + "\n\n",
			[]string{ds["responses"].end},
		},
		"messages": {
			ds["messages"], "event: message_stop\n" + `data: {"type":"message_stop"}` + "\n\n",
			[]string{ds["messages"].end},
		},
	} {
		for way, events := range map[string][]string{
			"at once": {test.dialect.head + test.dialect.text + test.end + strings.Join(test.after, "")},
			"later":   append([]string{test.dialect.head, test.dialect.text + test.end}, test.after...),
		} {
			t.Run(name+" "+way, func(t *testing.T) {
				t.Parallel()
				g := newGateway(t, streamAnswer(events...))
				got := g.post(test.dialect.path, test.dialect.body)
				if got.status != http.StatusOK || !strings.Contains(got.body, "Hello there.") || strings.Contains(got.body, chatDone+chatDone) {
					t.Errorf("got %d %s", got.status, got.body)
				}
				if _, after, ended := strings.Cut(got.body, test.dialect.last); !ended || strings.Contains(after, "tokens") {
					t.Errorf("after the end the client got %q", after)
				}
				if e := g.spool.next(t); e.Status != event.Completed || e.Cost != chatCost || e.Rule != event.RuleReported {
					t.Errorf("got event %+v", e)
				}
			})
		}
	}
}

// A provider that reports no usage and keeps the connection open keeps no client waiting.
func TestClientWaitsShortlyForUsageAfterTheEnd(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*pausingProvider{
		"nothing more follows":          {first: chatHead + chatText + chatStop + chatDone},
		"the connection ends at once":   {first: chatHead + chatText, rest: chatStop + chatDone},
		"usage follows after a minute":  {first: chatHead + chatText + chatStop + chatDone, rest: chatUsage, pause: time.Minute},
		"a second end, without a usage": {first: chatHead + chatText + chatStop + chatDone + chatDone},
	} {
		inBubble(t, options{routes: 1, providers: p}, func(t *testing.T, g *gateway) {
			c, asked := g.ask("/v1/chat/completions", chatStreamBody), time.Now()
			response, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			if took := time.Since(asked); err != nil || !strings.HasSuffix(string(body), chatDone) || strings.Count(string(body), chatDone) != 1 || took > time.Second {
				t.Errorf("%s: got %q, %v after %s", name, body, err, took)
			}
			if e := g.spool.next(t); e.Status != event.Completed || e.Rule != event.RuleEstimated || e.Doubt != "missing" || e.Cost == 0 {
				t.Errorf("%s: got event %+v", name, e)
			}
			_ = c.Close()
		})
	}
}
