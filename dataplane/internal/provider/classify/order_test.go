package classify

import (
	"net/http"
	"testing"
	"time"
)

// Words about the request do not outweigh a status or a code that names a thing of the gateway's operator.
func TestStatusAndCodeOfOurOwnGoBeforeWords(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		status int
		body   string
		want   Class
	}{
		{"unpaid, words about the context", 402, `{"error":{"message":"Prompt tokens limit exceeded: 69120 > 36608"}}`, GatewayRefused},
		{"unpaid, words about an image", 402, `{"error":{"message":"The image is too large"}}`, GatewayRefused},
		{"unpaid by the code of an event", 200, `{"error":{"code":402,"message":"Prompt tokens limit exceeded: 9 > 8"}}`, GatewayRefused},
		{"stopped endpoint", 400, `{"error":{"code":"endpoint_stopped","message":"The value of model is invalid"}}`, GatewayRefused},
		{"rate of an account", 429, `{"error":{"code":"ModelAccountTpmRateLimitExceeded","message":"Please slow down"}}`, RateLimit},
		{"the same words without the code", 400, `{"error":{"message":"Prompt tokens limit exceeded: 69120 > 36608"}}`, ContextLength},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := Classify(Answer{Format: "chat", Status: tt.status, Body: []byte(tt.body)})
			if v.Class != tt.want || v.Class == GatewayRefused && (v.Message != "" || !v.Failover) {
				t.Errorf("got %s by rule %d with the text %q; want %s", v.Class, v.Rule, v.Message, tt.want)
			}
		})
	}
}

// A text of which nothing else is known is the operator's if it names a thing of the operator's and nothing of the request.
func TestUnknownTextBelongsToTheOwnerOfWhatItNames(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Class{
		"Your workspace has not joined this preview":             GatewayRefused,
		"The contract of this subscription is with another firm": GatewayRefused,
		"Ваш договор расторгнут":                                 GatewayRefused,
		"租户信息有变":                                                 GatewayRefused,
		"The tool message names another workspace":               OtherClient,
		"The metadata of the project has odd values":             OtherClient,
		"The stars are not right":                                OtherClient,
	} {
		if v := Classify(Answer{Format: "chat", Status: 400, Body: []byte(`{"error":{"message":"` + text + `"}}`)}); v.Class != want {
			t.Errorf("%s: got %s by rule %d; want %s", text, v.Class, v.Rule, want)
		}
	}
	if v := Classify(Answer{Format: "chat", Status: 400, Body: []byte(`{"error":{"message":"Odd: 'your workspace has not joined'"}}`)}); v.Class != OtherClient {
		t.Errorf("quoted words of the client led to %s by rule %d", v.Class, v.Rule)
	}
}

// Services in other countries, and gateways in front of several providers, name the members of their errors as they like.
func TestTextUnderAnUnknownNameIsRead(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]Class{
		`{"mensaje":"El contenido solicitado infringe nuestra política"}`:                             ContentPolicy,
		`{"error":{"type":"X","message":{"openai":"Incorrect API key provided: sk-x"}}}`:              GatewayRefused,
		`{"code":60201,"code_msg":"请求过于频繁，请稍后再试","trace_id":"t"}`:                                     RateLimit,
		`{"code":"Client specified an invalid argument","error":"Your team has not joined the beta"}`: GatewayRefused,
		`{"error":{"message":"tokens (9000) > context (8192)"}}`:                                      ContextLength,
	} {
		if v := Classify(Answer{Format: "chat", Status: 400, Body: []byte(body)}); v.Class != want {
			t.Errorf("%s: got %s by rule %d; want %s", body, v.Class, v.Rule, want)
		}
	}
}

func TestVendorMarksAreNoWordsOfTheText(t *testing.T) {
	t.Parallel()
	const reason = "The content field is a required field."
	for _, text := range []string{
		"<400> InternalError.Algo.InvalidParameter: " + reason,
		"litellm.BadRequestError: VendorException - <400> InternalError.Algo.InvalidParameter: " + reason,
		"Upstream error from Vendor: <400> InternalError.Algo.InvalidParameter: " + reason,
		"<400> InternalError.Algo.InvalidParameter: " + reason + " Received Model Group=large\\nAvailable Model Group Fallbacks=None",
	} {
		for _, status := range []int{http.StatusBadRequest, http.StatusOK, http.StatusInternalServerError} {
			v := Classify(Answer{Format: "chat", Status: status, Body: []byte(`{"error":{"message":"` + text + `","type":"invalid_request_error"}}`)})
			if v.Class != OtherClient || v.Status != http.StatusBadRequest {
				t.Errorf("%d %s: got %s, status %d by rule %d", status, text, v.Class, v.Status, v.Rule)
			}
		}
	}
	v := Classify(Answer{Format: "chat", Status: http.StatusBadRequest, Body: []byte(`{"message":"<400> InternalError.Algo.InvalidParameter: ` + reason + `"}`)})
	if v.Message != reason {
		t.Errorf("the client reads %q; want %q", v.Message, reason)
	}
	v = Classify(Answer{Format: "chat", Status: http.StatusInternalServerError, Body: []byte(`{"message":"<500> InternalError.Algo: An error occurred in model serving"}`)})
	if v.Class != Unavailable {
		t.Errorf("a failure of the vendor: got %s by rule %d", v.Class, v.Rule)
	}
}

func TestRussianIsReadWithAndWithoutDots(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"Срок действия ключа истёк", "Срок действия ключа истек"} {
		if v := Classify(Answer{Format: "chat", Status: 400, Body: []byte(`{"message":"` + text + `"}`)}); !v.KeyRejected {
			t.Errorf("%s: got %s by rule %d", text, v.Class, v.Rule)
		}
	}
	v := Classify(Answer{Format: "chat", Status: 429, Body: []byte(`{"message":"Слишком много запросов, повторите через 12 секунд"}`)})
	if v.Class != RateLimit || v.RetryAfter != 12*time.Second {
		t.Errorf("got %s, pause %v; want %s, 12s", v.Class, v.RetryAfter, RateLimit)
	}
}

func TestNamedValueIsNoUnsupportedParameter(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"reasoning_effort 'max' is not supported":                     "reasoning_effort",
		"tool_choice 'specified' is incompatible with thinking":       "tool_choice",
		"size 300x400 not allowed":                                    "size",
		"`duration` 7 is not supported":                               "duration",
		"temperature is not supported":                                "",
		"'top_k' is not supported with this model":                    "",
		"The model 'x-7' is not supported":                            "",
		"Parameter logit_bias is not supported by model-7 of 8 parts": "",
	} {
		if got := namedWithValue(text); got != want {
			t.Errorf("%s: got %q; want %q", text, got, want)
		}
	}
}
