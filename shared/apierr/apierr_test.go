package apierr

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestTypesFollowTheStatus(t *testing.T) {
	t.Parallel()
	tests := []struct {
		status           int
		common, messages string
	}{
		{400, "invalid_request_error", "invalid_request_error"},
		{401, "authentication_error", "authentication_error"},
		{402, "insufficient_quota", "billing_error"},
		{403, "permission_error", "permission_error"},
		{404, "invalid_request_error", "not_found_error"},
		{413, "invalid_request_error", "request_too_large"},
		{422, "invalid_request_error", "invalid_request_error"},
		{429, "rate_limit_error", "rate_limit_error"},
		{500, "server_error", "api_error"},
		{502, "server_error", "api_error"},
		{503, "server_error", "overloaded_error"},
	}
	for _, tt := range tests {
		e := New(tt.status, InvalidRequest, "")
		if e.Type() != tt.common || e.MessagesType() != tt.messages {
			t.Errorf("%d: got %s and %s; want %s and %s", tt.status, e.Type(), e.MessagesType(), tt.common, tt.messages)
		}
	}
}

func TestEnvelopesHideTheCause(t *testing.T) {
	t.Parallel()
	e := &Error{Status: 400, Code: UnsupportedParameter, Message: `no "x"`, Param: "tools[0].type", Cause: errors.New("inside")}
	if got, want := string(e.Envelope("req_1")), `{"error":{"message":"no \"x\"","type":"invalid_request_error","code":"unsupported_parameter","param":"tools[0].type","request_id":"req_1"}}`; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got, want := string(e.MessagesEnvelope("req_1")), `{"type":"error","error":{"message":"no \"x\"","type":"invalid_request_error","code":"unsupported_parameter","param":"tools[0].type"},"request_id":"req_1"}`; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	empty := &Error{Status: 400, Code: UnsupportedParameter, ParamIsEmpty: true, Details: []byte(`{"a":["b"]}`)}
	if got, want := string(empty.MessagesEnvelope("req_1")), `{"type":"error","error":{"message":"","type":"invalid_request_error","code":"unsupported_parameter","param":"","details":{"a":["b"]}},"request_id":"req_1"}`; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got := string(empty.Envelope("req_1")); strings.Contains(got, "details") || !strings.Contains(got, `"param":""`) {
		t.Errorf("got %s", got)
	}
	if got := string(New(503, None, "no route").Envelope("req_1")); strings.Contains(got, "code") || strings.Contains(got, "null") {
		t.Errorf("an empty code is in the envelope: %s", got)
	}
	if !strings.Contains(e.Error(), "inside") || !errors.Is(e, e.Cause) {
		t.Error("the cause is not in the log text")
	}
}

func TestRetryAfterAndPermanence(t *testing.T) {
	t.Parallel()
	tests := []struct {
		e    *Error
		want int
	}{
		{New(429, RateLimitExceeded, ""), 1},
		{&Error{Status: 429, RetryAfter: 1500 * time.Millisecond}, 2},
		{New(503, ServiceUnavailable, ""), 1},
		{New(503, None, ""), 0},
		{New(402, InsufficientQuota, ""), 0},
	}
	for _, tt := range tests {
		if got := tt.e.RetryAfterSeconds(); got != tt.want {
			t.Errorf("%v: got %d; want %d", tt.e, got, tt.want)
		}
	}
	for status, want := range map[int]bool{400: true, 401: true, 402: true, 403: true, 404: true, 408: true, 409: true, 413: true, 422: false, 429: false, 500: false, 502: false, 503: false} {
		if got := New(status, None, "").Permanent(); got != want {
			t.Errorf("Permanent of %d: got %v", status, got)
		}
	}
}

// Clients write prompts into any place of a body. What a message repeats of it reaches the client, and not the log.
func TestLogTextHasNoWordsOfTheClient(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"The model 'my secret' does not exist.":                               "404 model_not_found: The model '…' does not exist.",
		`The parameter "my secret" is required.`:                              `404 model_not_found: The parameter "…" is required.`,
		"The model 'it's my 'secret'' is not the account's.":                  "404 model_not_found: The model '…'s.",
		"The rest of this API key's spend limit is reserved: 0.1 is reserved": "404 model_not_found: The rest of this API key's spend limit is reserved: 0.1 is reserved",
		"Plain.": "404 model_not_found: Plain.",
	} {
		if got := New(404, ModelNotFound, message).Error(); got != want {
			t.Errorf("got %q; want %q", got, want)
		}
	}
}
