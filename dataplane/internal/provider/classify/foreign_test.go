package classify

import (
	"net/http"
	"testing"
)

func TestItemsOfOtherAccountsAreToldFromOtherRefusals(t *testing.T) {
	t.Parallel()
	tests := []struct {
		body string
		want bool
	}{
		{`{"error":{"message":"The encrypted content for item rs_1 could not be verified. Reason: Encrypted content could not be decrypted or parsed.","code":"invalid_encrypted_content"}}`, true},
		{`{"error":{"message":"The item is bad.","code":"invalid_encrypted_content"}}`, true},
		{`{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid ` + "`signature` in `thinking`" + ` block"}}`, true},
		{`{"error":{"code":400,"message":"Thought signature is not valid.","status":"INVALID_ARGUMENT"}}`, true},
		{`{"error":{"code":400,"message":"Function call is missing a thought_signature in functionCall parts.","status":"INVALID_ARGUMENT"}}`, false},
		{`{"error":{"message":"Encrypted content is not supported with this model.","param":"include"}}`, false},
		{`{"error":{"message":"temperature must be at most 2.","param":"temperature"}}`, false},
		{`{"error":{"message":"The model is overloaded"}}`, false},
	}
	for _, tt := range tests {
		if got := Classify(Answer{Format: "responses", Status: http.StatusBadRequest, Body: []byte(tt.body)}); got.ForeignItem != tt.want {
			t.Errorf("%s: got %v; want %v", tt.body, got.ForeignItem, tt.want)
		}
	}
	if got := Classify(Answer{Format: "responses", Status: http.StatusTooManyRequests, Body: []byte(tests[0].body)}); got.ForeignItem {
		t.Error("a rate limit counts as a refusal of an item")
	}
}
