package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"modelgateway/shared/catalogkv"
)

// inOrder makes the routes be tried in their order.
func inOrder(m *catalogkv.Model) {
	for i := range m.Routes {
		m.Routes[i].Priority = i
	}
}

const (
	foreignItem = `{"error":{"message":"The encrypted content for item rs_1 could not be verified.","type":"invalid_request_error","code":"invalid_encrypted_content"}}`
	tooLong     = `{"error":{"message":"This model's maximum context length is 8 tokens","type":"invalid_request_error","code":"context_length_exceeded"}}`
	lacksStop   = `{"error":{"message":"Unsupported parameter: 'stop' is not supported with this model.","type":"invalid_request_error","param":"stop","code":"unsupported_parameter"}}`
	lacksValue  = `{"error":{"message":"Unsupported value: 'reasoning.effort' does not support 'minimal' with this model.","type":"invalid_request_error","param":"reasoning.effort","code":"unsupported_value"}}`
	badValue    = `{"error":{"message":"Invalid value: 'often'. Supported values are: 'low' and 'high'.","type":"invalid_request_error","param":"reasoning.effort","code":"invalid_value"}}`
	badRequest  = `{"error":{"message":"Invalid type for 'temperature': expected a number, but got a string instead.","type":"invalid_request_error","param":"temperature","code":"invalid_type"}}`
	overloaded  = `{"error":{"message":"Rate limit reached","type":"rate_limit_error","code":"rate_limit_exceeded"}}`
	answered    = `{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"up-model","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hello"}]}],"usage":{"input_tokens":10,"output_tokens":2,"total_tokens":12}}`
	withItem    = `{"model":"text","input":[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"abc"},{"role":"user","content":"hi"}]}`
)

// What one route refuses because of what it is, the next may take. If none does, the client gets a failure that a retry may cure
// if there was one, otherwise the refusal of the best route.
func TestRefusalsThatDependOnTheRouteAreFollowedByTheNextRoute(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		answers [2]http.HandlerFunc
		want    int
		code    string
	}{
		{"encrypted item", [2]http.HandlerFunc{jsonAnswer(400, foreignItem), jsonAnswer(200, answered)}, 200, ""},
		{"context window", [2]http.HandlerFunc{jsonAnswer(400, tooLong), jsonAnswer(200, answered)}, 200, ""},
		{"parameter", [2]http.HandlerFunc{jsonAnswer(400, lacksStop), jsonAnswer(200, answered)}, 200, ""},
		{"value", [2]http.HandlerFunc{jsonAnswer(400, lacksValue), jsonAnswer(200, answered)}, 200, ""},
		{"value, then limit", [2]http.HandlerFunc{jsonAnswer(400, lacksValue), jsonAnswer(429, overloaded)}, 429, "rate_limit_exceeded"},
		{"limit, then value", [2]http.HandlerFunc{jsonAnswer(429, overloaded), jsonAnswer(400, lacksValue)}, 429, "rate_limit_exceeded"},
		{"value, then parameter", [2]http.HandlerFunc{jsonAnswer(400, lacksValue), jsonAnswer(400, lacksStop)}, 400, "unsupported_value"},
		{"limit, then encrypted item", [2]http.HandlerFunc{jsonAnswer(429, overloaded), jsonAnswer(400, foreignItem)}, 429, "rate_limit_exceeded"},
		{"failure, then encrypted item", [2]http.HandlerFunc{jsonAnswer(503, `{}`), jsonAnswer(400, foreignItem)}, 502, "upstream_unavailable"},
		{"encrypted item, then limit", [2]http.HandlerFunc{jsonAnswer(400, foreignItem), jsonAnswer(429, overloaded)}, 429, "rate_limit_exceeded"},
		{"all", [2]http.HandlerFunc{jsonAnswer(400, tooLong), jsonAnswer(400, lacksStop)}, 400, "context_length_exceeded"},
		{"then another refusal", [2]http.HandlerFunc{jsonAnswer(400, tooLong), jsonAnswer(400, `{"error":{"message":"Your request was rejected by our safety system.","code":"content_policy_violation"}}`)}, 400, "content_policy_violation"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGatewayWith(t, options{model: inOrder}, tt.answers[0], tt.answers[1])
			got := g.post("/v1/responses", withItem)
			if got.status != tt.want || tt.code != "" && !strings.Contains(got.body, tt.code) {
				t.Errorf("got %d %s", got.status, got.body)
			}
		})
	}
}

// What is wrong by the rules of the format is wrong everywhere: the other routes are not asked.
func TestMistakesOfTheClientAreNotSentToOtherRoutes(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{badValue, badRequest} {
		g := newGatewayWith(t, options{model: inOrder}, jsonAnswer(400, refusal), jsonAnswer(200, answered))
		if got := g.post("/v1/responses", withItem).apiError(t); got.Status != http.StatusBadRequest || !strings.HasSuffix(got.Code, "_value") {
			t.Errorf("got %+v", got)
		}
		if n := len(g.sims[1].received()); n != 0 {
			t.Errorf("%d calls of the second route for %s", n, refusal)
		}
	}
}

// A conversation that was moved by a failure keeps the route that has made its items, though another one comes first again.
func TestRouteThatMadeAnEncryptedItemIsPreferred(t *testing.T) {
	t.Parallel()
	g := newGatewayWith(t, options{model: inOrder}, jsonAnswer(400, foreignItem), jsonAnswer(200, answered))
	for turn := range 3 {
		if got := g.post("/v1/responses", withItem); got.status != http.StatusOK {
			t.Fatalf("turn %d: got %d %s", turn, got.status, got.body)
		}
		if first, second := len(g.sims[0].received()), len(g.sims[1].received()); first != 1 || second != turn+1 {
			t.Errorf("turn %d: %d calls of the first route and %d of the second; want one that is refused, and %d", turn, first, second, turn+1)
		}
	}
	other := strings.Replace(withItem, "abc", "another", 1)
	if got := g.post("/v1/responses", other); got.status != http.StatusOK || len(g.sims[0].received()) != 2 {
		t.Errorf("another conversation: got %d, %d calls of the first route", got.status, len(g.sims[0].received()))
	}
}
