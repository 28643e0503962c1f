package httpapi_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"modelgateway/dataplane/internal/httpapi"
)

func TestRequestsThatAreNoHTTPGetAnEnvelope(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	address := g.serve()
	tests := []struct {
		request string
		status  int
	}{
		{"GET /% HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"GET /v1/models HTTP/1.1\r\n\r\n", 400},
		{"GET /v1/models HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400},
		{"GET /v1/models HTTP/1.1\r\nHost: x\r\nbad name: y\r\n\r\n", 400},
		{"POST /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
		{"nonsense\r\n\r\n", 400},
		{"GET /v1/models HTTP/9.9\r\nHost: x\r\n\r\n", 505},
		{"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
		{"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nExpect: nonsense\r\nContent-Length: 1\r\n\r\n", 417},
		{"GET /v1/models HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 200_000) + "\r\n\r\n", 431},
		{"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\nGET /% HTTP/1.1\r\nHost: x\r\n\r\n", 400}, // after a served request
	}
	for _, tt := range tests {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, tt.request); err != nil {
			t.Fatal(err)
		}
		in, got := bufio.NewReader(c), answer{}
		for range strings.Count(tt.request, " HTTP/") + strings.Count(tt.request, "nonsense\r\n\r\n") {
			response, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("%.40q: %v", tt.request, err)
			}
			data, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatalf("%.40q: %v", tt.request, err)
			}
			_ = response.Body.Close()
			got = answer{response.StatusCode, response.Header, string(data)}
		}
		_ = c.Close()
		if e := got.apiError(t); e.Status != tt.status || e.Final != (tt.status < 500) || (e.Code == "invalid_request") != (tt.status < 500) {
			t.Errorf("%.40q: got %+v; want %d", tt.request, e, tt.status)
		}
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	g := newGatewayWith(t, options{cfg: httpapi.Config{MaxConns: 2}})
	address := g.serve()
	dial := func() net.Conn {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	served := func(c net.Conn) *http.Response {
		if _, err := io.WriteString(c, "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response
	}
	first, second := dial(), dial()
	for _, c := range []net.Conn{first, second} {
		if got := served(c).StatusCode; got != http.StatusOK {
			t.Errorf("within the bound: got %d", got)
		}
	}
	third := dial()
	response, err := http.ReadResponse(bufio.NewReader(third), nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if e := (answer{response.StatusCode, response.Header, string(data)}).apiError(t); e.Status != 503 || e.RetryAfter != "1" {
		t.Errorf("beyond the bound: got %+v", e)
	}
	_, _ = third.Close(), first.Close()
	for { // until the gateway has seen that the first connection is closed
		c := dial()
		if _, err := io.WriteString(c, "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			_ = c.Close()
			continue
		}
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		_ = c.Close()
		if err == nil && response.StatusCode == http.StatusOK {
			_ = response.Body.Close()
			break
		}
	}
	_ = second.Close()
}
