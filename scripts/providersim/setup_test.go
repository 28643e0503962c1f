package providersim

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// fixture is a running simulator and a client with a valid key.
type fixture struct {
	sim *Sim
	url string
}

func setup(t *testing.T, cfg Config) fixture {
	t.Helper()
	if cfg.IDPrefix == "" {
		cfg.IDPrefix = "t"
	}
	sim := New(cfg)
	srv := httptest.NewServer(sim)
	t.Cleanup(srv.Close)
	t.Cleanup(sim.Close) // runs first
	return fixture{sim, srv.URL}
}

var paths = map[Format]string{
	Chat: "/v1/chat/completions", Responses: "/v1/responses", Messages: "/v1/messages",
	Images: "/v1/images/generations", Videos: "/v1/videos",
}

func (b fixture) request(t *testing.T, method, path, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer test-key")
	r.Header.Set("Anthropic-Version", "2023-06-01")
	return r
}

func do(t *testing.T, r *http.Request) *http.Response {
	t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// call sends a request and returns the status and the body.
func (b fixture) call(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	resp := do(t, b.request(t, method, path, body))
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	return resp.StatusCode, string(got)
}

// ask posts a minimal request of a format; members are added or, when empty, removed.
func (b fixture) ask(t *testing.T, f Format, members map[string]string) (int, string) {
	t.Helper()
	return b.call(t, http.MethodPost, paths[f], bodyOf(f, members))
}

func bodyOf(f Format, change map[string]string) string {
	m := map[string]json.RawMessage{"model": json.RawMessage(`"sim"`)}
	switch f {
	case Chat:
		m["messages"] = json.RawMessage(`[{"role":"user","content":"hi"}]`)
	case Messages:
		m["messages"] = json.RawMessage(`[{"role":"user","content":"hi"}]`)
		m["max_tokens"] = json.RawMessage(`100`)
	case Responses:
		m["input"] = json.RawMessage(`"hi"`)
	default:
		m["prompt"] = json.RawMessage(`"a boat"`)
	}
	for name, value := range change {
		if value == "" {
			delete(m, name)
		} else {
			m[name] = json.RawMessage(value)
		}
	}
	return string(mustJSON(m))
}

// model returns the model member with directives.
func model(list string) map[string]string { return map[string]string{"model": `"sim@` + list + `"`} }

func streamed(list string) map[string]string {
	m := model(list)
	m["stream"] = "true"
	return m
}

// frame is an event of a stream.
type frame struct{ name, data string }

// readStream splits a stream, which must consist of complete events and comments. The error
// is the one that ended the body, nil for a complete body.
func readStream(t *testing.T, body io.Reader) (frames []frame, comments int, err error) {
	t.Helper()
	r := bufio.NewReader(body)
	var now frame
	open := false
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			if line != "" || open {
				t.Errorf("stream ends inside an event: %q", line)
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return frames, comments, err
		}
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "":
			if open {
				frames = append(frames, now)
			}
			now, open = frame{}, false
		case strings.HasPrefix(line, ":"):
			comments++
		case strings.HasPrefix(line, "event: ") && !open:
			now.name, open = strings.TrimPrefix(line, "event: "), true
		case strings.HasPrefix(line, "data: ") && now.data == "":
			now.data, open = strings.TrimPrefix(line, "data: "), true
		default:
			t.Fatalf("unexpected line %q in the stream", line)
		}
	}
}

// stream posts a request and returns the events of its answer.
func (b fixture) stream(t *testing.T, f Format, members map[string]string) []frame {
	t.Helper()
	resp := do(t, b.request(t, http.MethodPost, paths[f], bodyOf(f, members)))
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || !strings.HasPrefix(got, "text/event-stream") {
		t.Fatalf("stream answered %d %s", resp.StatusCode, got)
	}
	frames, _, err := readStream(t, resp.Body)
	if err != nil {
		t.Fatalf("read stream: %v", err)
	}
	return frames
}

// decode decodes JSON into a T and fails the test for unknown members.
func decode[T any](t *testing.T, data string) T {
	t.Helper()
	var v T
	dec := json.NewDecoder(strings.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("decode %s: %v", data, err)
	}
	return v
}

// last returns the newest journal entry.
func (b fixture) last(t *testing.T) Entry {
	t.Helper()
	entries := b.sim.Journal()
	if len(entries) == 0 {
		t.Fatal("journal is empty")
	}
	return entries[len(entries)-1]
}

// errorOf returns the error in a body of any format, as "type/code/param".
func errorOf(t *testing.T, f Format, body string) string {
	t.Helper()
	if f == Messages {
		e := decode[messagesError](t, body)
		if e.Type != "error" || e.RequestID == "" || e.Error.Message == "" {
			t.Errorf("incomplete error: %s", body)
		}
		return e.Error.Type
	}
	e := decode[struct {
		Error errorDetail `json:"error"`
	}](t, body).Error
	if e.Message == "" {
		t.Errorf("error without message: %s", body)
	}
	return fmt.Sprintf("%s/%s/%s", e.Type, deref(e.Code), deref(e.Param))
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
