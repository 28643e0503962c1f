package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"modelgateway/shared/catalogkv"
)

// A provider reports more than the request allows. The event says so, hence the control plane quarantines it instead of
// charging it, and nothing of the account waits for an operator.
func TestReportedUsageBeyondTheRequestIsMarkedImplausible(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, path, body, answer string
		status                   int
		want                     string
	}{
		{
			"output tokens", "/v1/chat/completions", `{"model":"text","max_tokens":1,"messages":[{"role":"user","content":"x"}]}`,
			strings.Replace(chatJSON, `"completion_tokens":5,"total_tokens":15`, `"completion_tokens":100000000,"total_tokens":100000010`, 1),
			http.StatusOK, "output is 100000000",
		},
		{
			"input tokens", "/v1/chat/completions", chatBody,
			strings.Replace(chatJSON, `"prompt_tokens":10`, `"prompt_tokens":50000000`, 1),
			http.StatusOK, "50000000 input tokens",
		},
		{
			"length of a video", "/v1/videos", videoBody,
			strings.Replace(providerVideo("completed"), `"seconds":"4"`, `"seconds":2147483647`, 1),
			http.StatusAccepted, "seconds is 2147483647",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGatewayWith(t, options{model: func(m *catalogkv.Model) { m.ContextWindow = 8000 }}, jsonAnswer(http.StatusOK, tt.answer))
			if got := g.post(tt.path, tt.body); got.status != tt.status {
				t.Fatalf("got %d %s", got.status, got.body)
			}
			e := g.spool.next(t)
			if got := e.Implausible(); !strings.Contains(got, tt.want) {
				t.Errorf("the event is implausible because of %q; want %q", got, tt.want)
			}
			g.admit.Stop(t.Context())
			if held := g.plane.held(theAccount, balanceOffset); held != 0 {
				t.Errorf("%d nano-units of the balance are outstanding; want none", held)
			}
		})
	}
}
