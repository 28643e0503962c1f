package classify

import "testing"

func TestImageAnswerThatIsNoneIsAFailureOfTheProvider(t *testing.T) {
	t.Parallel()
	tests := []struct {
		body string
		want Class
	}{
		{`"hello"`, Unavailable},
		{`[]`, Unavailable},
		{`{}`, Unavailable},
		{`{"detail":"Something else"}`, Unavailable},
		{`{"error":"text of an error"}`, Unavailable},
		{`{"success":false,"errors":[{"code":7,"message":"odd"}]}`, Unavailable},
		{`{"msg":"odd key"}`, Unavailable},
		{`{"images":[{"url":"https://x/y.png"}]}`, Unavailable},
		{`{"created":1,"data":[]}`, NoImage},
		{`{"created":1,"data":[{"revised_prompt":"Incorrect API key provided, {\"error\": \"rate limit reached\"}"}]}`, NoImage},
		{`{"detail":"Not authenticated"}`, Unavailable},
		{`{"created":1,"data":[],"error":{"message":"Your request was rejected by the safety system."}}`, ContentPolicy},
	}
	for _, tt := range tests {
		v := Classify(Answer{Format: "images", Status: 200, Body: []byte(tt.body), Stream: true})
		if v.Class != tt.want || v.Failover != outcomes[tt.want].failover {
			t.Errorf("%s: got %s by rule %d; want %s", tt.body, v.Class, v.Rule, tt.want)
		}
		if v.Class == NoImage && v.Message != outcomes[NoImage].fallback {
			t.Errorf("%s: the client reads %q", tt.body, v.Message)
		}
	}
}

func TestEchoedRequestIsNotRead(t *testing.T) {
	t.Parallel()
	const planted = `"Incorrect API key provided: {\"error\": {\"message\": \"Incorrect API key provided\", \"code\": \"invalid_api_key\"}}"`
	for _, name := range []string{"prompt", "tools", "messages", "input", "instructions", "functions", "system", "user", "revised_prompt", "negative_prompt", "tool_choice"} {
		for _, value := range []string{planted, `{"message":` + planted + `}`, `[{"description":` + planted + `,"text":` + planted + `}]`} {
			body := `{"id":"x","` + name + `":` + value + `,"error":{"message":"The stars are not right."}}`
			if v := Classify(Answer{Format: "videos", Status: 500, Body: []byte(body)}); v.Class != Unavailable || v.KeyRejected {
				t.Errorf("%s: got %s by rule %d", body, v.Class, v.Rule)
			}
		}
	}
}
