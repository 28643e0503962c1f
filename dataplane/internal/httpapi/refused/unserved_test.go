package refused_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"modelgateway/dataplane/internal/httpapi/refused"
	"modelgateway/shared/apierr"
)

func TestTextOfAnUnservedRequestIsAnAnswerThatClosesTheConnection(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status int
		code   apierr.Code
		retry  bool // the client may try again later
		words  string
	}{
		{http.StatusBadRequest, apierr.InvalidRequest, false, "not valid HTTP: Bad Request."},
		{http.StatusRequestHeaderFieldsTooLarge, apierr.InvalidRequest, false, "not valid HTTP"},
		{http.StatusHTTPVersionNotSupported, apierr.None, false, "not valid HTTP"},
		{http.StatusServiceUnavailable, apierr.ServiceUnavailable, true, "too many connections"},
	} {
		e := refused.Unserved(tt.status)
		answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(refused.Text(e, "req_1"))), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		if err := answer.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if e.Code != tt.code || answer.StatusCode != tt.status || !answer.Close || !strings.Contains(string(body), tt.words) {
			t.Errorf("%d: got %s, %s %v close %v: %s", tt.status, e.Code, answer.Status, answer.Header, answer.Close, body)
		}
		if id := answer.Header.Get("X-Request-Id"); id != "req_1" || answer.Header.Get("Request-Id") != id {
			t.Errorf("%d: the ids are %v", tt.status, answer.Header)
		}
		if later := answer.Header.Get("Retry-After") != ""; later != tt.retry {
			t.Errorf("%d: Retry-After is %q", tt.status, answer.Header.Get("Retry-After"))
		}
	}
}
