package gwctl_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"modelgateway/controlplane/api"
	"modelgateway/controlplane/internal/gwctl"
	"modelgateway/shared/platform/apidoc"
)

// seen is a request that the server got.
type seen struct {
	Method, Path, Query, Body string
	Header                    http.Header
}

// fixture runs the tool against a test server.
type fixture struct {
	t        *testing.T
	dir      string
	env      map[string]string
	in       io.Reader
	document *apidoc.Document

	mu   sync.Mutex
	seen []seen
}

// setup returns a tool with a server that calls a function; nil responds with 204.
func setup(t *testing.T, answer http.HandlerFunc) *fixture {
	t.Helper()
	b := &fixture{t: t, dir: t.TempDir(), in: strings.NewReader(""), document: document(t)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		b.mu.Lock()
		b.seen = append(b.seen, seen{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, string(body), r.Header})
		b.mu.Unlock()
		if answer == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	b.env = map[string]string{"GWCTL_SERVER": server.URL, "GWCTL_TOKEN": "the token", "HOME": b.dir}
	return b
}

// run runs a command line.
func (b *fixture) run(args ...string) (code int, stdout, stderr string) {
	b.t.Helper()
	var out, errs bytes.Buffer
	code = gwctl.Run(b.t.Context(), gwctl.Config{
		In: b.in, Out: &out, Err: &errs, EnvFunc: func(name string) string { return b.env[name] },
		Dir: b.dir, Version: "v1", Document: b.document, FirstPause: time.Microsecond,
	}, args)
	return code, out.String(), errs.String()
}

// ok runs a command line that must succeed and returns its output.
func (b *fixture) ok(args ...string) string {
	b.t.Helper()
	code, out, errs := b.run(args...)
	if code != gwctl.ExitOK {
		b.t.Fatalf("gwctl %s: exit %d\n%s", strings.Join(args, " "), code, errs)
	}
	return out
}

// last returns the latest request.
func (b *fixture) last() seen {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.seen) == 0 {
		b.t.Fatal("nothing was sent")
	}
	return b.seen[len(b.seen)-1]
}

// file writes a file in the tool's directory and returns its path.
func (b *fixture) file(name, text string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return path
}

var parsed = sync.OnceValues(func() (*apidoc.Document, error) { return apidoc.Parse(api.Document) })

// document returns the API document.
func document(t *testing.T) *apidoc.Document {
	t.Helper()
	doc, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// answerJSON responds to every request with the same JSON.
func answerJSON(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

// problem responds to every request with a problem document.
func problem(status int, kind, more string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"type":"urn:modelgateway:problem:`+kind+`","title":"It is so","status":1,"instance":"req_1"`+more+`}`)
	}
}
