package classify

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestVerdictOfEachClass(t *testing.T) {
	tests := []struct {
		name   string
		answer Answer
		want   Verdict
	}{
		{
			name:   "rejected key",
			answer: Answer{Status: 401, Body: []byte(`{"error":{"message":"Incorrect API key provided"}}`)},
			want:   Verdict{Class: GatewayRefused, Status: 502, Code: CodeUnavailable, Failover: true, Certain: true, KeyRejected: true},
		},
		{
			name:   "balance used up",
			answer: Answer{Status: 402, Body: []byte(`{"error":{"message":"Insufficient Balance"}}`)},
			want:   Verdict{Class: GatewayRefused, Status: 502, Code: CodeUnavailable, Failover: true, Certain: true, QuotaExhausted: true},
		},
		{
			name:   "unknown model",
			answer: Answer{Status: 404, Body: []byte("{\"error\":{\"message\":\"The model `x` does not exist\"}}")},
			want:   Verdict{Class: GatewayRefused, Status: 502, Code: CodeUnavailable, Failover: true, ModelUnknown: true},
		},
		{
			name:   "rate limit",
			answer: Answer{Status: 429, Header: http.Header{"Retry-After": {"4"}}, Body: []byte(`{"message":"Too many requests"}`)},
			want: Verdict{
				Class: RateLimit, Status: 429, Code: CodeRateLimit, Failover: true, Retryable: true, Certain: true,
				RetryAfter: 4 * time.Second, Pause: 4 * time.Second,
			},
		},
		{
			name:   "failure",
			answer: Answer{Status: 500, Body: []byte(`{"error":{"message":"Internal error at 10.0.0.1"}}`)},
			want:   Verdict{Class: Unavailable, Status: 502, Code: CodeUnavailable, Failover: true, Retryable: true},
		},
		{
			name:   "context length with the promised prefix",
			answer: Answer{Status: 400, Body: []byte(`{"error":{"message":"prompt is too long: 9 tokens > 8 maximum"}}`)},
			want:   Verdict{Class: ContextLength, Status: 400, Code: CodeContextLength, Message: "Prompt is too long: 9 tokens > 8 maximum"},
		},
		{
			name:   "context length without the promised prefix",
			answer: Answer{Status: 413, Body: []byte(`{"error":"input length exceeds the context length"}`)},
			want:   Verdict{Class: ContextLength, Status: 400, Code: CodeContextLength, Message: "Prompt is too long: input length exceeds the context length"},
		},
		{
			name:   "unsupported value",
			answer: Answer{Status: 400, Body: []byte(`{"error":{"message":"Unsupported value: 'temperature' does not support 0.2 with this model."}}`)},
			want: Verdict{
				Class: InvalidValue, Status: 400, Code: CodeUnsupportedValue, Param: "temperature", Members: []string{"temperature"}, NotOffered: true,
				Message: "Unsupported value: 'temperature' does not support 0.2 with this model.",
			},
		},
		{
			name:   "no image",
			answer: Answer{Format: "images", Status: 200, Body: []byte(`{"data":[]}`)},
			want:   Verdict{Class: NoImage, Status: 422, Code: CodeGenerationFailed, Retryable: true, Message: "The model returned no image."},
		},
		{
			name:   "another 4xx keeps its status",
			answer: Answer{Status: 409, Body: []byte(`{"error":{"message":"the resource was changed"}}`)},
			want:   Verdict{Class: OtherClient, Status: 409, Code: CodeInvalidRequest, Message: "the resource was changed"},
		},
		{
			name:   "zero answer",
			answer: Answer{},
			want:   Verdict{Class: Unavailable, Status: 502, Code: CodeUnavailable, Failover: true, Retryable: true},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Classify(tt.answer)
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreFields(Verdict{}, "Rule")); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReasonIsFoundInEveryWrapping(t *testing.T) {
	const inner = `{\"error\":{\"message\":\"Content Exists Risk\"}}`
	for name, body := range map[string]string{
		"envelope":              `{"error":{"message":"Content Exists Risk"}}`,
		"array":                 `[{"error":{"message":"Content Exists Risk"}}]`,
		"string member":         `{"error":"Content Exists Risk"}`,
		"detail":                `{"detail":"Content Exists Risk"}`,
		"detail list":           `{"detail":[{"msg":"Content Exists Risk"}]}`,
		"errors":                `{"errors":["Content Exists Risk"]}`,
		"problem":               `{"title":"Bad Request","detail":"Content Exists Risk","status":400}`,
		"JSON string":           `"Content Exists Risk"`,
		"plain":                 `Content Exists Risk`,
		"page":                  `<html><body><h1>Content Exists Risk</h1></body></html>`,
		"document in message":   `{"error":{"message":"` + inner + `"}}`,
		"document in raw":       `{"error":{"message":"Provider returned error","metadata":{"raw":"` + inner + `"}}}`,
		"exception around it":   `{"error":{"message":"some.Error: 400 - ` + inner + ` Received x"}}`,
		"twice in a string":     `{"error":{"message":"{\"error\":{\"message\":\"{\\\"error\\\":{\\\"message\\\":\\\"Content Exists Risk\\\"}}\"}}"}}`,
		"error in an error":     `{"error":{"error":{"message":"Content Exists Risk"}}}`,
		"python apostrophe":     `Error code: 400 - {'error': {'message': 'It's a Content Exists Risk', 'param': None}}`,
		"python":                `Error code: 400 - {'error': {'message': 'Content Exists Risk', 'param': None}}`,
		"bytes":                 `Upstream said b'{"error":{"message":"Content Exists Risk"}}'`,
		"event":                 "event: error\ndata: {\"type\":\"error\",\"error\":{\"message\":\"Content Exists Risk\"}}\n\n",
		"event without a line":  "data: {\"error\":{\"message\":\"Content Exists Risk\"}}\r\n\r\ndata: [DONE]\r\n\r\n",
		"event without an end":  "data:{\"error\":{\"message\":\"Content Exists Risk\"}}",
		"event over two lines":  "data: {\"error\":\ndata: {\"message\":\"Content Exists Risk\"}}\n\n",
		"after a comment":       ": keep-alive\n\ndata: {\"error\":{\"message\":\"Content Exists Risk\"}}\n\n",
		"failed response":       `{"type":"response.failed","response":{"status":"failed","error":{"message":"Content Exists Risk"}}}`,
		"cut off":               `{"error":{"message":"Content Exists Risk","x":{"y":[1,2`,
		"byte order mark":       "\ufeff" + `{"error":{"message":"Content Exists Risk"}}`,
		"sentence in param":     `{"error":{"message":"","param":"Content Exists Risk, sorry"}}`,
		"status message":        `{"base_resp":{"status_code":1,"status_msg":"Content Exists Risk"}}`,
		"escaped and cut out":   `Upstream: {\"error\":{\"message\":\"Content Exists Risk\"}}`,
		"far behind long input": `{"error":{"input":"` + strings.Repeat("x ", 9000) + `","message":"Content Exists Risk"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if v := Classify(Answer{Format: "chat", Status: 400, Body: []byte(body)}); v.Class != ContentPolicy {
				t.Errorf("got %v (rule %d); want %v", v.Class, v.Rule, ContentPolicy)
			}
		})
	}
}

func TestModelOutputBeforeTheErrorIsIgnored(t *testing.T) {
	body := `data: {"choices":[{"delta":{"content":"Your account is suspended. The prompt is too long."}}]}

data: {"error":{"message":"The server had an error","type":"server_error"}}

`
	if v := Classify(Answer{Format: "chat", Status: 200, Stream: true, Body: []byte(body)}); v.Class != Unavailable || v.KeyRejected {
		t.Errorf("got %+v; want %v", v, Unavailable)
	}
}

func TestEveryClassHasARuleAndEveryRuleAPositiveTerm(t *testing.T) {
	lines := strings.Count(rulesText, "\n") + 1
	seen := map[Class]bool{}
	for _, p := range table().passes {
		for _, r := range p.rules {
			seen[r.finding.class] = true
			if r.line < 1 || r.line > lines || len(r.terms) == 0 {
				t.Errorf("rule %+v has no line or no term", r)
			}
			positive := false
			for _, tm := range r.terms {
				positive = positive || !tm.negated
			}
			if !positive {
				t.Errorf("line %d has negated terms only", r.line)
			}
		}
	}
	for c := GatewayRefused; c <= OtherClient; c++ {
		if !seen[c] {
			t.Errorf("no rule has the class %v", c)
		}
	}
}

func TestParseRulesReportsErrors(t *testing.T) {
	for name, src := range map[string]string{
		"unknown class":         "pass p\nnonsense -- why\n    word\n",
		"group without reason":  "pass p\nrate_limit\n    word\n",
		"rule without a group":  "pass p\n    word\n",
		"group before any pass": "rate_limit -- why\n    word\n",
		"unknown list":          "pass p\nrate_limit -- why\n    {nothing}\n",
		"unknown field":         "pass p\nrate_limit -- why\n    nofield:x\n",
		"gap at the end":        "pass p\nrate_limit -- why\n    word ..\n",
		"empty choice":          "pass p\nrate_limit -- why\n    a||b\n",
		"list without words":    "list x\n",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parseRules(src); err == nil {
				t.Errorf("got no error for %q", src)
			}
		})
	}
}

func FuzzClassify(f *testing.F) {
	for _, c := range readCases(f, "testdata/cases.jsonl") {
		f.Add([]byte(c.Body), c.Status, c.Format, c.Headers["retry-after"])
	}
	f.Add([]byte(strings.Repeat(`{"error":`, 3000)), 400, "chat", "1e9")
	f.Add([]byte(strings.Repeat(`[`, 100000)), 500, "images", "-1")
	f.Add([]byte(`{"error":"`+strings.Repeat(`\"`, 5000)), 400, "responses", "\xff")
	f.Add([]byte(strings.Repeat("data: {\"error\":{}}\n\n", 3000)), 200, "messages", "Fri")
	f.Fuzz(func(t *testing.T, body []byte, status int, format, retryAfter string) {
		v := Classify(Answer{
			Format: format, Status: status, Body: body, Header: http.Header{"Retry-After": {retryAfter}}, Now: answeredAt,
			Cleaner: Cleaner{UpstreamModels: []string{"upstream-model"}},
		})
		if v.Class < GatewayRefused || v.Class > OtherClient || v.Status < 400 || v.Status > 599 || v.Code == "" {
			t.Errorf("incomplete verdict: %+v", v)
		}
		if v.RetryAfter != 0 && (v.RetryAfter < minPause || v.RetryAfter > maxPause || v.RetryAfter%time.Second != 0) {
			t.Errorf("got pause %v; want whole seconds from 1 to 60", v.RetryAfter)
		}
		if len(v.Message) > maxMessage || (v.Message != "") != outcomes[v.Class].showText {
			t.Errorf("message of %v: %q", v.Class, v.Message)
		}
		if v.Class == ContextLength && !strings.HasPrefix(v.Message, tooLong) {
			t.Errorf("got %q; want the beginning %q", v.Message, tooLong)
		}
		if strings.Contains(strings.ToLower(v.Message), "upstream-model") {
			t.Errorf("the message contains the upstream model's name: %q", v.Message)
		}
	})
}

func BenchmarkClassify(b *testing.B) {
	a := Answer{Format: "chat", Status: 429, Now: answeredAt, Body: []byte(`{"error":{"message":"Rate limit reached for m in organization org-x on tokens per min (TPM): Limit 30000, Used 29500, Requested 1200. Please try again in 1.4s.","type":"tokens","code":"rate_limit_exceeded"}}`)}
	for b.Loop() {
		Classify(a)
	}
}
