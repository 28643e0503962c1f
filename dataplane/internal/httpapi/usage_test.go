package httpapi_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// A provider reports more than the request allows. The charge is an estimate, not what was reported.
func TestReportedUsageBeyondTheRequestIsEstimated(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, path, body, answer string
		status                   int
		want                     price.Usage
	}{
		{
			"output tokens", "/v1/chat/completions", `{"model":"text","max_tokens":1,"messages":[{"role":"user","content":"x"}]}`,
			strings.Replace(chatJSON, `"completion_tokens":5,"total_tokens":15`, `"completion_tokens":100000000,"total_tokens":100000010`, 1),
			http.StatusOK,
			price.Usage{Input: 10, Output: 3},
		},
		{
			"input tokens", "/v1/chat/completions", chatBody,
			strings.Replace(chatJSON, `"prompt_tokens":10`, `"prompt_tokens":50000000`, 1),
			http.StatusOK,
			price.Usage{Input: 8, Output: 5},
		},
		{
			"length of a video", "/v1/videos", videoBody,
			strings.Replace(providerVideo("completed"), `"seconds":"4"`, `"seconds":2147483647`, 1),
			http.StatusAccepted,
			price.Usage{Seconds: 4, Size: "720x1280"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGatewayWith(t, options{model: func(m *catalogkv.Model) { m.ContextWindow = 8000 }}, jsonAnswer(http.StatusOK, tt.answer))
			if got := g.post(tt.path, tt.body); got.status != tt.status {
				t.Fatalf("got %d %s", got.status, got.body)
			}
			e := g.spool.next(t)
			if diff := cmp.Diff(tt.want, e.Usage); diff != "" || !e.Estimated || e.Rule != event.RuleEstimated || e.Implausible() != "" || e.Cost <= 0 {
				t.Errorf("got event %+v, usage want -, got +:\n%s", e, diff)
			}
		})
	}
}

// Zeros and counts that are none say nothing about what was delivered. Only the side that cannot be true is estimated.
func TestReportWithoutSenseIsEstimated(t *testing.T) {
	t.Parallel()
	const usage = `"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}`
	estimate, input := price.Usage{Input: 8, Output: 3}, price.Usage{Input: 10, Output: 3}
	for report, want := range map[string]struct {
		price.Usage

		reason string
	}{
		`{}`: {estimate, "missing"},
		`{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`:                  {estimate, "low_output"},
		`{"prompt_tokens":10,"completion_tokens":0,"total_tokens":10}`:                {input, "low_output"},
		`{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11}`:                {input, "low_output"},
		`{"prompt_tokens":0,"completion_tokens":12,"total_tokens":12}`:                {price.Usage{Input: 8, Output: 12}, "no_input"},
		`{"prompt_tokens":-5,"completion_tokens":3}`:                                  {estimate, "unreadable"},
		`{"prompt_tokens":"ten","completion_tokens":3}`:                               {estimate, "unreadable"},
		`{"prompt_tokens":57.0,"completion_tokens":14417.92,"total_tokens":14474.92}`: {price.Usage{Input: 57, Output: 14418}, ""},
		`{"prompt_tokens":"10","completion_tokens":"5"}`:                              {price.Usage{Input: 10, Output: 5}, ""},
		`{"prompt_tokens":1000,"completion_tokens":60,"total_tokens":1110,"cached_tokens":50,"completion_tokens_details":{"reasoning_tokens":50}}`: {
			price.Usage{Input: 1000, CachedInput: 50, Output: 60, Reasoning: 50}, "ambiguous",
		},
	} {
		t.Run(report, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t,
				jsonAnswer(http.StatusOK, strings.Replace(chatJSON, usage, `"usage":`+report, 1)))
			check := func(how string) {
				t.Helper()
				e, doubts := g.spool.next(t), ""
				if want.reason != "" {
					doubts = want.reason
				}
				estimated := doubts != "" && doubts != "ambiguous"
				if diff := cmp.Diff(want.Usage, e.Usage); diff != "" || e.Estimated != estimated || e.Status != event.Completed {
					t.Errorf("%s: got event %+v, usage want -, got +:\n%s", how, e, diff)
				}
			}
			g.post("/v1/chat/completions", chatBody)
			check("in one piece")
			g.sims[0].setAnswer(streamAnswer(chatHead, chatText, chatStop, strings.Replace(chatUsage, usage, `"usage":`+report, 1), chatDone))
			g.post("/v1/chat/completions", chatStreamBody)
			check("streamed")
			if want.reason != "" {
				g.compare(`mgw_usage_doubts_total{provider="prv_0",reason="` + want.reason + `"} 2`)
			}
		})
	}
}

// A report of one token for a long prompt is not believed, whatever the format. Tools do not count: a provider may ignore them.
func TestInputFarBelowThePromptIsEstimated(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a long prompt ", 400)
	for name, d := range dialects() {
		for _, stream := range []bool{true, false} {
			if !stream && name != "chat" {
				continue
			}
			low := regexp.MustCompile(`(prompt_tokens|input_tokens)":\d+`).ReplaceAllString(d.head+d.text+d.end, `$1":1`)
			low = regexp.MustCompile(`total_tokens":\d+`).ReplaceAllString(low, `total_tokens":0`)
			answer, body := streamAnswer(low), d.body
			if !stream {
				answer, body = jsonAnswer(http.StatusOK, strings.Replace(chatJSON, `"prompt_tokens":10,"completion_tokens":5,"total_tokens":15`, `"prompt_tokens":1,"completion_tokens":5`, 1)), chatBody
			}
			g := newGateway(t, answer)
			for text, want := range map[string]bool{"short": false, long: true} {
				changed := strings.Replace(strings.Replace(body, `"hi"`, `"`+text+`"`, 1), `"messages":[]`, `"messages":[{"role":"user","content":"`+text+`"}]`, 1)
				if got := g.post(d.path, changed); got.status != http.StatusOK {
					t.Fatalf("%s: got %d %s", name, got.status, got.body)
				}
				e := g.spool.next(t)
				if e.Estimated != want || want && (e.Doubt != "low_input" || e.Usage.TotalInput() < 1000) || !want && e.Usage.TotalInput() != 1 {
					t.Errorf("%s, stream %v, %d bytes: got event %+v", name, stream, len(text), e)
				}
			}
		}
	}
}

// A document without a report of usage costs what one of its length usually has, not what it reserves.
func TestDocumentWithoutAReportCostsItsUsualTokens(t *testing.T) {
	t.Parallel()
	const length = 400_000
	pdf := `{"model":"text","messages":[{"role":"user","content":[{"type":"file","file":{"file_data":"data:application/pdf;base64,` +
		strings.Repeat("A", length) + `"}}]}]}`
	address := `{"model":"text","messages":[{"role":"user","content":[{"type":"file","file":{"file_url":"https://x/y.pdf"}}]}]}`
	g := newGateway(t, jsonAnswer(http.StatusOK, regexp.MustCompile(`,"usage":\{[^}]*\}`).ReplaceAllString(chatJSON, "")))
	for body, want := range map[string][2]int64{pdf: {length / 16, length/16 + 1100}, address: {100_000, 101_100}} {
		if got := g.post("/v1/chat/completions", body); got.status != http.StatusOK {
			t.Fatalf("got %d %s", got.status, got.body)
		}
		if e := g.spool.next(t); e.Usage.Input < want[0] || e.Usage.Input > want[1] || !e.Estimated {
			t.Errorf("%.120s: got event %+v; want an input of %d", body, e, want[0])
		}
	}
}

// The answer of an image model that is priced by tokens is never free.
func TestUsageOfImagesPricedByTokensIsEstimated(t *testing.T) {
	t.Parallel()
	const data = `"data":[{"b64_json":"aGk="}]`
	for report, want := range map[string]price.Usage{
		``: {Images: 1, Input: 2, Output: 1056, ImageOut: 1056},
		`,"usage":{"input_tokens":0,"output_tokens":0}`:             {Images: 1, Input: 2, Output: 1056, ImageOut: 1056},
		`,"usage":{"input_tokens":57.0,"output_tokens":14417.92}`:   {Images: 1, Input: 57, Output: 14418, ImageOut: 14418},
		`,"usage":{"prompt_tokens":57,"completion_tokens":4160}`:    {Images: 1, Input: 57, Output: 4160, ImageOut: 4160},
		`,"usage":{"input_tokens":[],"output_tokens":4160}`:         {Images: 1, Input: 2, Output: 1056, ImageOut: 1056},
		`,"usage":{"input_tokens":12,"output_tokens":999999999999}`: {Images: 1, Input: 12, Output: 1056, ImageOut: 1056},
	} {
		t.Run(report, func(t *testing.T) {
			t.Parallel()
			g := newGatewayWith(t, options{model: func(m *catalogkv.Model) {
				if m.Type == catalogkv.Image {
					m.Prices = []catalogkv.ScheduledPrice{{Sheet: price.Sheet{Version: 2, Rates: price.Rates{price.Input: 1_000_000, price.Output: 2_000_000}}}}
				}
			}}, jsonAnswer(http.StatusOK, `{"created":1,`+data+report+`}`))
			g.post("/v1/images/generations", `{"model":"image","prompt":"a cat"}`)
			e := g.spool.next(t)
			if diff := cmp.Diff(want, e.Usage); diff != "" || e.Estimated != (want.Output == 1056) {
				t.Errorf("got event %+v, usage want -, got +:\n%s", e, diff)
			}
		})
	}
}
