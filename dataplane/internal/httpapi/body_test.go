package httpapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

// countingReader records how much of it was read.
type countingReader struct {
	io.Reader
	n int
}

func (w *countingReader) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.n += n
	return n, err
}

// endlessReader yields the letter x without end.
type endlessReader struct{}

var manyX = strings.Repeat("x", 1<<20)

func (endlessReader) Read(p []byte) (int, error) { return copy(p, manyX), nil }

// blockingReader yields nothing until the channel is closed.
type blockingReader <-chan struct{}

func (b blockingReader) Read([]byte) (int, error) {
	<-b
	return 0, io.EOF
}

func TestBodyAboveTheLimitIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for path, limit := range map[string]int64{
		"/v1/chat/completions": 25 << 20, "/v1/responses": 25 << 20, "/v1/messages": 25 << 20, "/v1/images/generations": 70 << 20, "/v1/videos": 70 << 20,
	} {
		want := apiError{Status: 413, Code: "invalid_request", Final: true, Messages: path == "/v1/messages"}
		post := func(body io.Reader, length int64) answer {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+path, body)
			if err != nil {
				t.Fatal(err)
			}
			request.ContentLength = length
			request.Header.Set("X-Api-Key", g.key)
			if length > limit {
				request.Header.Set("Expect", "100-continue") // the client waits for permission to send
			}
			response, err := g.client.Do(request)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			defer func() { _ = response.Body.Close() }()
			data, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			return answer{response.StatusCode, response.Header, string(data)}
		}
		declared := &countingReader{Reader: endlessReader{}}
		if diff := cmp.Diff(want, post(declared, limit+1).apiError(t), ignoreTexts); diff != "" {
			t.Errorf("%s, declared (-want +got):\n%s", path, diff)
		}
		if declared.n != 0 {
			t.Errorf("%s: the gateway read %d bytes of a body that was declared too large", path, declared.n)
		}
		if path != "/v1/chat/completions" {
			continue // scripts/e2e sends bodies beyond the limit completely
		}
		// No byte follows the first one beyond the limit: the refusal must not wait.
		answered := make(chan struct{})
		chunked := io.MultiReader(io.LimitReader(endlessReader{}, limit+1), blockingReader(answered))
		if diff := cmp.Diff(want, post(chunked, -1).apiError(t), ignoreTexts); diff != "" {
			t.Errorf("%s, chunked (-want +got):\n%s", path, diff)
		}
		close(answered)
		exact := io.LimitReader(endlessReader{}, limit)
		if got := post(exact, limit).apiError(t); got.Status != http.StatusBadRequest {
			t.Errorf("%s, exactly the limit: got %d", path, got.Status)
		}
	}
}

func TestChunkedBodyIsForwardedWithItsLength(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusOK, chatJSON))
	body := `{"model":"text","messages":[{"role":"user","content":"` + strings.Repeat("x", 100_000) + `"}]}`
	response := g.begin(t.Context(), http.MethodPost, "/v1/chat/completions", onlyReader{strings.NewReader(body)})
	_ = response.Body.Close()
	calls := g.sims[0].received()
	if response.StatusCode != http.StatusOK || len(calls) != 1 {
		t.Fatalf("got %d, %d calls", response.StatusCode, len(calls))
	}
	if want := strings.Replace(body, `"text"`, `"up-model"`, 1); !strings.HasPrefix(calls[0].body, want[:len(want)-1]) || calls[0].header.Get("Content-Length") == "" {
		t.Errorf("got a body of %d bytes, length %s", len(calls[0].body), calls[0].header.Get("Content-Length"))
	}
}

type onlyReader struct{ io.Reader }

func TestInvalidBodiesAreRefused(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	tests := []struct {
		name, body, param, says string
	}{
		{"empty", ``, "", "not a valid JSON object"},
		{"no JSON", `hello`, "", "at byte 0"},
		{"array", `[]`, "", "not a valid JSON object"},
		{"null", `null`, "", "not a valid JSON object"},
		{"truncated", `{"model":"text","messages":[`, "", "not a valid JSON object"},
		{"something after it", `{"model":"text"} {}`, "", "at byte 17"},
		{"duplicate", `{"model":"text","model":"image"}`, "model", "'model' more than once"},
		{"duplicate by escape", `{"model":"text","mod\u0065l":"image"}`, "model", "more than once"},
		{"nested duplicate", `{"model":"text","messages":[{"role":"user"},{"role":"user","role":"system"}]}`, "messages[1].role", "more than once"},
		{"too deep", `{"model":"text","messages":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`, "", "not a valid JSON object"},
		{"invalid UTF-8", "{\"model\":\"te\xffxt\"}", "", "not a valid JSON object"},
		{"no model", `{"messages":[]}`, "model", "model"},
		{"model is null", `{"model":null}`, "model", "model"},
		{"model is not a string", `{"model":7}`, "model", "model"},
		{"model is empty", `{"model":""}`, "model", "model"},
	}
	for _, tt := range tests {
		for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/videos"} {
			got := g.post(path, tt.body).apiError(t)
			want := apiError{Status: 400, Code: "invalid_request", Param: tt.param, Final: true, Messages: path == "/v1/messages"}
			if diff := cmp.Diff(want, got, ignoreTexts); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", tt.name, path, diff)
			}
			if !strings.Contains(got.Message, tt.says) {
				t.Errorf("%s, %s: got message %q; want %q in it", tt.name, path, got.Message, tt.says)
			}
		}
	}
}

func TestMaintenanceRefusesRequests(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusOK, chatJSON))
	maintain := func(m *catalogkv.Maintenance) {
		g.set(subject.KindSettings, "", catalogkv.Settings{Currency: "USD", Maintenance: m})
		g.apply()
	}
	maintain(&catalogkv.Maintenance{Message: "Back at noon.", UntilUnix: time.Now().Add(time.Hour).Unix()})
	got := g.post("/v1/messages", `{"model":"text"}`).apiError(t)
	if got.Status != 503 || got.Code != "service_unavailable" || got.Type != "overloaded_error" || got.Message != "Back at noon." || got.Final {
		t.Errorf("got %+v", got)
	}
	if len(got.RetryAfter) != 4 { // within the hour
		t.Errorf("got Retry-After %q", got.RetryAfter)
	}
	g.plane.balance = wire.BalanceResponse{V: wire.Version, Status: wire.Done}
	maintain(&catalogkv.Maintenance{UntilUnix: time.Now().Add(100 * time.Hour).Unix()})
	if got := g.post("/v1/videos", `{"model":"video"}`).apiError(t); got.RetryAfter != "3600" || got.Message == "" {
		t.Errorf("maintenance that ends much later: got %+v", got)
	}
	for _, path := range []string{"/v1/models", "/v1/balance"} {
		if got := g.send(http.MethodGet, path, ""); got.status != http.StatusOK {
			t.Errorf("%s: got %d", path, got.status)
		}
	}
	for _, over := range []*catalogkv.Maintenance{nil, {UntilUnix: time.Now().Unix()}} {
		maintain(over)
		if got := g.post("/v1/chat/completions", `{"model":"text","messages":[]}`); got.status != http.StatusOK {
			t.Errorf("after the maintenance: got %d %s", got.status, got.body)
		}
	}
}

// Other routes serve the request. If there are none, the request is refused because no route is available.
func TestProviderUnderMaintenanceGetsNoCalls(t *testing.T) {
	t.Parallel()
	closed := map[int]*catalogkv.Maintenance{0: {UntilUnix: time.Now().Add(time.Hour).Unix()}, 1: {UntilUnix: time.Now().Unix()}}
	build := func() *gateway {
		return newGatewayWith(t, options{provider: func(i int, p *catalogkv.Provider) { p.Maintenance = closed[i] }},
			jsonAnswer(http.StatusOK, chatJSON), jsonAnswer(http.StatusOK, chatJSON))
	}
	g := build()
	if got := g.post("/v1/chat/completions", `{"model":"text","messages":[]}`); got.status != http.StatusOK || len(g.sims[0].received()) != 0 {
		t.Errorf("got %d, and %d requests at the provider under maintenance", got.status, len(g.sims[0].received()))
	}
	closed[1] = &catalogkv.Maintenance{}
	g = build()
	for _, path := range []string{"/v1/chat/completions", "/v1/images/generations", "/v1/videos"} {
		body := map[string]string{"/v1/chat/completions": `{"model":"text","messages":[]}`, "/v1/images/generations": `{"model":"image","prompt":"x"}`, "/v1/videos": `{"model":"video","prompt":"x"}`}[path]
		got := g.post(path, body).apiError(t)
		if len(got.RetryAfter) != 4 { // the maintenance of the first provider ends within the hour
			t.Errorf("%s: got Retry-After %q", path, got.RetryAfter)
		}
		got.RetryAfter = ""
		if diff := cmp.Diff(apiError{Status: 503}, got, ignoreTexts); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

func TestUnknownOrHiddenModelIsNotFound(t *testing.T) {
	t.Parallel()
	g := newGatewayWith(t, options{model: func(m *catalogkv.Model) {
		if m.ID == "text" {
			for i := range m.Routes {
				m.Routes[i].Formats = []catalogkv.Format{catalogkv.Chat}
			}
		}
	}}, jsonAnswer(http.StatusOK, chatJSON))
	sheet := []catalogkv.ScheduledPrice{{Sheet: price.Sheet{Version: 9, Rates: price.Rates{price.Input: 1, price.Output: 1}}}}
	way := []catalogkv.Route{{ID: "rte_x", Provider: "prv_0", UpstreamModel: "up-model", Formats: []catalogkv.Format{catalogkv.Chat}, Enabled: true}}
	for _, m := range []catalogkv.Model{
		{ID: "disabled", Public: true},
		{ID: "private", Enabled: true},
		{ID: "unpriced", Enabled: true, Public: true},
		{ID: "later", Enabled: true, Public: true, Prices: []catalogkv.ScheduledPrice{{EffectiveUnix: time.Now().Add(time.Hour).Unix(), Sheet: sheet[0].Sheet}}},
		{ID: "closed", Enabled: true, Public: true, Maintenance: &catalogkv.Maintenance{Message: "Upgrading."}},
	} {
		m.Type, m.Routes = catalogkv.Text, way
		if m.Prices == nil && m.ID != "unpriced" {
			m.Prices = sheet
		}
		g.set(subject.KindModel, m.ID, m)
	}
	g.set(subject.KindGrant, "acc_2", catalogkv.Grant{AccountID: "acc_2", Models: []string{"private"}})
	g.apply()
	g.plane.open("acc_2", 1_000_000, 1_000_000, 10)
	other := "Bearer " + g.issue("key_2", "acc_2")
	notFound := apiError{Status: 404, Code: "model_not_found", Param: "model", Final: true}
	tests := []struct {
		name, path, model string
		want              apiError
	}{
		{"does not exist", "/v1/chat/completions", "none", notFound},
		{"is disabled", "/v1/chat/completions", "disabled", notFound},
		{"is not open to the account", "/v1/chat/completions", "private", notFound},
		{"image on a text endpoint", "/v1/chat/completions", "image", notFound},
		{"text on the image endpoint", "/v1/images/generations", "text", notFound},
		{"text on the video endpoint", "/v1/videos", "text", notFound},
		{"no route speaks the format", "/v1/responses", "text", notFound},
		{"has no price", "/v1/chat/completions", "unpriced", apiError{Status: 503}},
		{"has no price yet", "/v1/chat/completions", "later", apiError{Status: 503}},
		{"is under maintenance", "/v1/chat/completions", "closed", apiError{Status: 503, Code: "service_unavailable", RetryAfter: "1"}},
	}
	for _, tt := range tests {
		got := g.post(tt.path, `{"model":"`+tt.model+`"}`).apiError(t)
		if diff := cmp.Diff(tt.want, got, ignoreTexts); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	if got := g.post("/v1/chat/completions", `{"model":"private","messages":[]}`, "Authorization", other); got.status != http.StatusOK {
		t.Errorf("model granted to the account: got %d %s", got.status, got.body)
	}
	long := "x" + strings.Repeat("é", 1000) // the limit falls into the middle of a rune
	if got := g.post("/v1/chat/completions", `{"model":"`+long+`"}`).apiError(t); len(got.Message) > 500 || strings.Contains(got.Message, "\ufffd") {
		t.Errorf("long model name: got message %q", got.Message)
	}
}

func TestErrorsUseTheEnvelopeOfTheFormat(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusOK, chatJSON))
	for path, want := range map[string]string{
		"/v1/chat/completions": `{"error":{"message":"The parameter \"logit_biases\" is not supported.","type":"invalid_request_error","code":"unsupported_parameter","param":"logit_biases","request_id":"ID"}}`,
		"/v1/messages":         `{"type":"error","error":{"message":"The parameter \"logit_biases\" is not supported.","type":"invalid_request_error","code":"unsupported_parameter","param":"logit_biases"},"request_id":"ID"}`,
	} {
		got := g.post(path, `{"model":"text","messages":[],"max_tokens":1,"logit_biases":1}`)
		if body := strings.Replace(got.body, got.header.Get("X-Request-Id"), "ID", 1); body != want {
			t.Errorf("%s:\ngot  %s\nwant %s", path, body, want)
		}
	}
}

// A large body reaches the provider in parts: those that stay as received, and the changes.
func TestLargeBodyIsForwardedWithItsChanges(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusOK, chatJSON))
	for range 2 {
		if got := g.post("/v1/chat/completions", largeBody); got.status != http.StatusOK {
			t.Fatalf("got %d %s", got.status, got.body)
		}
	}
	small := strings.Replace(largeBody, strings.Repeat("words ", 50_000), "words", 1)
	if got := g.post("/v1/chat/completions", small); got.status != http.StatusOK {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	calls := g.sims[0].received()
	for _, call := range calls[:2] {
		if got := strings.Replace(call.body, strings.Repeat("words ", 50_000), "words", 1); got != calls[2].body || got == small {
			t.Errorf("got %s; want as the small body %s", got, calls[2].body)
		}
	}
}
