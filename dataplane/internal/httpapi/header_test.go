package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/catalogkv"
)

func TestKeyIsReadFromEitherHeader(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	const unknown = "mgw_0000000000000000000000000000000000000"
	tests := []struct {
		name, authorization, plain string
		want                       int
	}{
		{"bearer", "Bearer " + g.key, "", 200},
		{"scheme in lower case", "bearer " + g.key, "", 200},
		{"spaces around", "Bearer   " + g.key + " ", "", 200},
		{"x-api-key", "", g.key, 200},
		{"bearer takes precedence", "Bearer " + g.key, unknown, 200},
		{"bearer takes precedence even if it is wrong", "Bearer " + unknown, g.key, 401},
		{"another scheme is ignored", "Basic dXNlcjpwYXNz", g.key, 200},
		{"another scheme alone", "Basic dXNlcjpwYXNz", "", 401},
		{"key without scheme", g.key, "", 401},
		{"no key", "", "", 401},
		{"checksum is wrong", "Bearer " + g.key[:len(g.key)-1] + "!", "", 401},
	}
	g.plane.balance.Status = "done"
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := g.send(http.MethodGet, "/v1/balance", "", "Authorization", tt.authorization, "X-Api-Key", tt.plain)
			if got.status != tt.want {
				t.Errorf("got %d %s; want %d", got.status, got.body, tt.want)
			}
		})
	}
	if g.plane.unknownLoads != 0 {
		t.Errorf("malformed keys were looked up %d times; want never", g.plane.unknownLoads)
	}
}

func TestRevokedOrSuspendedKeyIsRefusedOnEveryEndpoint(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(g *gateway){
		"revoked":   func(g *gateway) { g.revoke(g.key) },
		"suspended": func(g *gateway) { g.suspend(g.key, theAccount) },
	} {
		g := newGateway(t, jsonAnswer(http.StatusOK, chatJSON))
		g.plane.balance.Status = "done"
		if got := g.send(http.MethodGet, "/v1/balance", ""); got.status != http.StatusOK {
			t.Fatalf("got %d", got.status)
		}
		end(g)
		for _, endpoint := range []string{
			"GET /v1/balance", "GET /v1/models", "GET /v1/videos/video_1", "GET /v1/videos/video_1/content", "POST /v1/chat/completions",
			"POST /v1/responses", "POST /v1/messages", "POST /v1/images/generations", "POST /v1/videos",
		} {
			method, path, _ := strings.Cut(endpoint, " ")
			got := g.send(method, path, "{}").apiError(t)
			want := apiError{Status: 401, Code: "invalid_api_key", Final: true, Messages: path == "/v1/messages"}
			if diff := cmp.Diff(want, got, ignoreTexts); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", name, endpoint, diff)
			}
		}
	}
}

func TestHeadersOfClientAndProviderAreNotForwarded(t *testing.T) {
	t.Parallel()
	leaky := func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Request-Id", "theirs")
		h.Set("Request-Id", "theirs")
		h.Set("Openai-Organization", "org-secret")
		h.Set("Set-Cookie", "a=b")
		h.Set("X-Ratelimit-Remaining-Requests", "1")
		h.Set("Anthropic-Organization-Id", "org")
		h.Set("Server", "theirs")
		h.Set("Retry-After", "9")
		jsonAnswer(http.StatusOK, chatJSON)(w, r)
	}
	tests := []struct {
		path, body string
		provider   func(p *catalogkv.Provider)
		want       http.Header
	}{
		{
			path: "/v1/chat/completions", body: `{"model":"text","messages":[]}`,
			want: http.Header{"Authorization": {"Bearer secret-0"}},
		},
		{
			path: "/v1/chat/completions", body: `{"model":"text","messages":[]}`,
			provider: func(p *catalogkv.Provider) { p.Auth, p.Headers = "x-api-key", map[string]string{"x-project": "p1"} },
			want:     http.Header{"X-Api-Key": {"secret-0"}, "X-Project": {"p1"}},
		},
		{
			path: "/v1/messages", body: `{"model":"text","messages":[],"max_tokens":5}`,
			want: http.Header{"Authorization": {"Bearer secret-0"}, "Anthropic-Version": {"2023-06-01"}},
		},
		{
			path: "/v1/messages", body: `{"model":"text","messages":[],"max_tokens":5}`,
			provider: func(p *catalogkv.Provider) { p.AnthropicVersion = "2024-01-01" },
			want:     http.Header{"Authorization": {"Bearer secret-0"}, "Anthropic-Version": {"2024-01-01"}},
		},
	}
	for _, tt := range tests {
		g := newGatewayWith(t, options{provider: func(_ int, p *catalogkv.Provider) {
			if tt.provider != nil {
				tt.provider(p)
			}
		}}, leaky)
		got := g.post(tt.path, tt.body,
			"X-Request-Id", "req_mine", "Anthropic-Beta", "tools", "Openai-Beta", "x", "Openai-Organization", "org-mine", "Anthropic-Version", "2000-01-01",
			"User-Agent", "sdk/1", "Cookie", "c=d", "X-Forwarded-For", "10.0.0.1", "Idempotency-Key", "k", "Accept-Encoding", "gzip", "X-Stainless-Lang", "go")
		if got.status != http.StatusOK && tt.path != "/v1/messages" { // the answer has the chat format
			t.Fatalf("got %d %s", got.status, got.body)
		}
		id := got.header.Get("X-Request-Id")
		if !strings.HasPrefix(id, "req_") || id == "req_mine" || got.header.Get("Request-Id") != id {
			t.Errorf("got ids %q and %q", id, got.header.Get("Request-Id"))
		}
		for _, name := range []string{"Openai-Organization", "Set-Cookie", "X-Ratelimit-Remaining-Requests", "Anthropic-Organization-Id", "Server", "Retry-After"} {
			if values, there := got.header[name]; there {
				t.Errorf("the provider's header %s reached the client: %q", name, values)
			}
		}
		calls := g.sims[0].received()
		if len(calls) == 0 {
			t.Fatal("no call")
		}
		want := http.Header{
			"Accept": {"application/json"}, "Accept-Encoding": {"identity"}, "User-Agent": {"modelgateway/1"}, "Content-Type": {"application/json"},
		}
		maps.Copy(want, tt.want)
		sent := calls[0].header
		delete(sent, "Content-Length")
		if diff := cmp.Diff(want, sent); diff != "" {
			t.Errorf("headers of the call (-want +got):\n%s", diff)
		}
	}
}

func TestUnknownEndpointsAndMethodsAreNotFound(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	tests := []struct {
		endpoint string
		messages bool
	}{
		{endpoint: "GET /"},
		{endpoint: "GET /v1"},
		{endpoint: "POST /v1/embeddings"},
		{endpoint: "POST /v1/messages/count_tokens", messages: true},
		{endpoint: "POST /v1/messages/batches", messages: true},
		{endpoint: "GET /v1/messages", messages: true},
		{endpoint: "GET /v1/chat/completions"},
		{endpoint: "HEAD /v1/chat/completions"},
		{endpoint: "OPTIONS /v1/chat/completions"},
		{endpoint: "OPTIONS /v1/models"},
		{endpoint: "DELETE /v1/videos/video_1"},
		{endpoint: "GET /v1/videos"},
		{endpoint: "GET /v1/models/text"},
		{endpoint: "POST /v1/models"},
		{endpoint: "GET /v1/models/"},
		{endpoint: "GET /v1%2Fmodels"},
		{endpoint: "GET /v2/models"},
		{endpoint: "GET /v1/videos//content"},
		{endpoint: "TRACE /v1/models"},
		{endpoint: "BREW /v1/models"},
	}
	for _, tt := range tests {
		method, target, _ := strings.Cut(tt.endpoint, " ")
		got := g.send(method, target, "")
		if got.header.Get("Allow") != "" {
			t.Errorf("%s: got an Allow header", tt.endpoint)
		}
		if method == http.MethodHead {
			if got.status != http.StatusNotFound || !strings.HasPrefix(got.header.Get("X-Request-Id"), "req_") {
				t.Errorf("%s: got %d", tt.endpoint, got.status)
			}
			continue
		}
		want := apiError{Status: 404, Code: "not_found", Final: true, Messages: tt.messages}
		if diff := cmp.Diff(want, got.apiError(t), ignoreTexts); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.endpoint, diff)
		}
	}
}

func TestRepeatedSlashesAndQueriesAreAccepted(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusOK, chatJSON))
	for _, endpoint := range []string{
		"POST /v1/chat/completions?beta=true", "POST //v1/chat/completions", "POST /v1//chat///completions", "GET /v1/models?limit=1000&after_id=x", "HEAD /v1/models",
	} {
		method, target, _ := strings.Cut(endpoint, " ")
		got := g.send(method, target, `{"model":"text","messages":[]}`)
		if got.status != http.StatusOK {
			t.Errorf("%s: got %d %s", endpoint, got.status, got.body)
		}
		if method == http.MethodHead && (got.body != "" || got.header.Get("Content-Length") == "0") {
			t.Errorf("HEAD: got length %s, body %q", got.header.Get("Content-Length"), got.body)
		}
	}
	for _, call := range g.sims[0].received() {
		if call.target != "/v1/chat/completions" {
			t.Errorf("the provider was called at %s", call.target)
		}
	}
}

// net/http would answer OPTIONS * by itself.
func TestOptionsAsteriskIsNotFound(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusOK, chatJSON))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.api.Serve(listener) }()
	client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(client, "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := (answer{response.StatusCode, response.Header, string(body)}).apiError(t); got.Status != http.StatusNotFound || got.Code != "not_found" {
		t.Errorf("got %+v", got)
	}
	if err := errors.Join(response.Body.Close(), client.Close(), g.api.Stop(context.WithoutCancel(t.Context())), <-served); err != nil {
		t.Error(err)
	}
}
