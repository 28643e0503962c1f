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

func TestMessagesThatMislead(t *testing.T) {
	t.Parallel()
	tests := []struct {
		format, body string
		status       int
		want         Class
	}{
		{"chat", `{"error":"Fetching image from URL failed: 404"}`, 412, InvalidImage},
		{"chat", `{"error":{"code":"InvalidParameter","message":"Download the media resource timed out during the data inspection process."}}`, 400, InvalidImage},
		{"chat", `{"error":{"message":"Download of the image model timed out"}}`, 500, Unavailable},
		{"responses", `{"error":{"code":"BadRequest","message":"Model gpt-5-pro is enabled only for api versions 2025-03-01-preview and later"}}`, 400, GatewayRefused},
		{"chat", `{"error":{"message":"Please pick another one","param":"model"}}`, 400, GatewayRefused},
		{"chat", `{"error":{"message":"The model crashed on shard 7"}}`, 400, Unavailable},
		{"chat", `{"error":{"message":"The deployment is degraded"}}`, 500, Unavailable},
		{"chat", `{"error":{"message":"Please pick another one","param":"messages[0].model"}}`, 400, OtherClient},
		{"chat", `{"error":{"message":"Provider rejected the request (400): the account is suspended"}}`, 400, GatewayRefused},
		{"chat", `{"error":{"message":"Value error, the stars are not right"}}`, 400, OtherClient},
		{"chat", `{"error":{"message":"Quota exhausted"}}`, 400, GatewayRefused},
		{"chat", `{"error":{"message":"Quota exhausted for this minute"}}`, 400, RateLimit},
		{"chat", `<html><head><title>Web server is returning an unknown error</title></head></html>`, 400, Unavailable},
		{"chat", `<html><head><title>413 Request Entity Too Large</title></head></html>`, 413, OtherClient},
	}
	for _, tt := range tests {
		v := Classify(Answer{Format: tt.format, Status: tt.status, Body: []byte(tt.body)})
		if v.Class != tt.want {
			t.Errorf("%s: got %s by rule %d; want %s", tt.body, v.Class, v.Rule, tt.want)
		}
	}
}
