package cabinet_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"modelgateway/scripts/cabinet"
)

// The catalog of the stack need not be that of the demo.
func TestCabinetCallsAModelThatTheGatewayHas(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		`{"data":[{"id":"art","endpoints":["/v1/images/generations"]},{"id":"mine","endpoints":["/v1/messages","/v1/chat/completions"]}]}`: "mine",
		`{"data":[{"id":"a","endpoints":["/v1/chat/completions"]},{"id":"demo-chat","endpoints":["/v1/chat/completions"]}]}`:               "demo-chat",
		`{"data":[{"id":"art","endpoints":["/v1/images/generations"]}]}`:                                                                   "",
	} {
		gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(list)) }))
		got, err := cabinet.ChatModel(t.Context(), gateway.URL)
		gateway.Close()
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v; want %q", list, got, err, want)
		}
	}
}
