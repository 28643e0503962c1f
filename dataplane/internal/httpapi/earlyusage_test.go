package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"modelgateway/shared/event"
)

// A client that leaves a stream after some text is charged for the delivered text, unless the provider has reported
// running totals with the text.
func TestUsageReportedBeforeTheTextDoesNotCoverIt(t *testing.T) {
	t.Parallel()
	const totals = `"usage":{"prompt_tokens":10,"completion_tokens":0,"total_tokens":10},"model"`
	running := strings.Replace(totals, `n_tokens":0,"total_tokens":10`, `n_tokens":2,"total_tokens":12`, 1)
	all := dialects()
	chat, responses := all["chat"], all["responses"]
	zero := strings.Replace(responses.head, `"usage":null`, `"usage":{"input_tokens":0,"output_tokens":0,"total_tokens":0}`, 1)
	before, _, _ := strings.Cut(responses.end, `"usage":{`)
	silent := before + `"usage":null}}` + "\n\n"
	tests := map[string]struct {
		d     dialect
		parts []string
		// whole: the provider ends the stream properly.
		whole bool
		// reported is the cost of the provider's totals; zero: the delivered text is charged.
		reported int64
		// input is the number of input tokens that the provider has reported.
		input int64
	}{
		"chat":                            {d: chat, parts: []string{strings.Replace(chatHead, `"model"`, totals, 1), chatText}, input: 10},
		"chat, running totals":            {d: chat, parts: []string{strings.Replace(chatHead, `"model"`, totals, 1), strings.Replace(chatText, `"model"`, running, 1)}, reported: 14},
		"chat, no totals at the end":      {d: chat, parts: []string{strings.Replace(chatHead, `"model"`, totals, 1), chatText, chatStop + chatDone}, whole: true, input: 10},
		"responses":                       {d: responses, parts: []string{zero, responses.text}},
		"responses, no totals at the end": {d: responses, parts: []string{zero, responses.text, silent}, whole: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			left := make(chan struct{})
			answer := stallAfter(left, tt.parts...)
			status := event.ClientGone
			if tt.whole {
				answer, status = streamAnswer(tt.parts...), event.Completed
				close(left)
			}
			g := newGateway(t, answer)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			response := g.begin(ctx, http.MethodPost, tt.d.path, strings.NewReader(tt.d.body))
			readUntilText(t, response.Body)
			if !tt.whole {
				leave()
			}
			e := g.spool.next(t)
			_ = response.Body.Close()
			<-left
			if tt.reported > 0 {
				if e.Rule != event.RuleReported || int64(e.Cost) != tt.reported || e.Status != status {
					t.Errorf("got event %+v; want a cost of %d", e, tt.reported)
				}
				return
			}
			tt.d.reported = tt.input
			tt.d.checkDelivered(t, e, status)
		})
	}
}
