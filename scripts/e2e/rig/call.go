package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A Request is a call of the public API.
type Request struct {
	// Proxy is the index of the data plane to call.
	Proxy int
	// Method defaults to POST with a body and to GET without.
	Method string
	// Path includes /v1.
	Path string
	// Key is sent as a bearer token unless it is empty.
	Key    string
	Header http.Header
	// Body is sent unchanged if it is a string or a reader, and as JSON otherwise.
	Body any
	// Length is the declared length of a reader. A reader without it is sent chunked.
	Length int64
}

// An Answer is a response of the API.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// client keeps as many idle connections as tests send concurrent requests, and no longer than usual clients. It neither asks for
// compression nor follows redirects.
var client = &http.Client{
	Transport: &http.Transport{
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       90 * time.Second,
		DisableCompression:    true,
		ExpectContinueTimeout: waitLimit,
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// Do is Ask for calls that must get a response.
func (r *Rig) Do(t *testing.T, q Request) *Answer {
	t.Helper()
	answer, err := r.Ask(t.Context(), q)
	if err != nil {
		t.Fatalf("%s: %v", q.Path, err)
	}
	return answer
}

// DecisionTimeout is how long a proxy waits for the control plane before it answers 503.
const DecisionTimeout = 2 * time.Second

// Ask calls the API and returns the whole response. Like a client, it retries after a 503 that
// came because the control plane did not decide within the timeout. Any other response is
// returned, and so is a 503 that came sooner.
func (r *Rig) Ask(ctx context.Context, q Request) (*Answer, error) {
	for limit := time.Now().Add(waitLimit); ; {
		began := time.Now()
		answer, err := r.Try(ctx, q)
		_, once := q.Body.(io.Reader)
		if err != nil || once || answer.Status != http.StatusServiceUnavailable || time.Since(began) < DecisionTimeout ||
			time.Now().After(limit) {
			return answer, err
		}
	}
}

// Try is Ask without retries, for calls that may fail. A response that breaks off is returned
// as far as it came, with the error.
func (r *Rig) Try(ctx context.Context, q Request) (*Answer, error) {
	response, err := r.Open(ctx, q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return &Answer{response.StatusCode, response.Header, body}, err
}

// AwaitStatus repeats a request until the response has a status, for changes that take a
// moment to reach the proxy.
func (r *Rig) AwaitStatus(t *testing.T, q Request, status int) *Answer {
	t.Helper()
	var answer *Answer
	Await(t, fmt.Sprintf("%s to answer %d", q.Path, status), func(ctx context.Context) (err error) {
		if answer, err = r.Try(ctx, q); err == nil && answer.Status != status {
			err = fmt.Errorf("got %s", answer)
		}
		return err
	})
	return answer
}

// Open calls the API and returns after the headers of the response. The caller closes the
// body.
func (r *Rig) Open(ctx context.Context, q Request) (*http.Response, error) {
	var body io.Reader
	switch b := q.Body.(type) {
	case nil:
	case string:
		body = strings.NewReader(b)
	case io.Reader:
		body = b
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}

	if q.Method == "" {
		q.Method = http.MethodGet
		if body != nil {
			q.Method = http.MethodPost
		}
	}

	request, err := http.NewRequestWithContext(ctx, q.Method, r.Proxies[q.Proxy]+q.Path, body)
	if err != nil {
		return nil, err
	}
	if q.Length > 0 {
		request.ContentLength = q.Length
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if q.Key != "" {
		request.Header.Set("Authorization", "Bearer "+q.Key)
	}

	for name, values := range q.Header {
		request.Header[http.CanonicalHeaderKey(name)] = values
	}

	return client.Do(request)
}

// RequestID returns the id that the gateway gave to the request.
func (a *Answer) RequestID() string { return a.Header.Get("X-Request-Id") }

// Decode reads the body as JSON into a value.
func (a *Answer) Decode(t *testing.T, to any) {
	t.Helper()
	if err := json.Unmarshal(a.Body, to); err != nil {
		t.Fatalf("the answer %d is not the JSON wanted: %v\n%s", a.Status, err, a.Body)
	}
}

// Problem is the error in a response, from either envelope.
type Problem struct {
	Status    int
	Type      string
	Code      string
	Param     string
	Message   string
	RequestID string
}

// Problem reads the error from either envelope.
func (a *Answer) Problem(t *testing.T) Problem {
	t.Helper()
	var envelope struct {
		RequestID string `json:"request_id"`
		Error     struct {
			Message, Type, Code, Param string
			RequestID                  string `json:"request_id"`
		} `json:"error"`
	}
	a.Decode(t, &envelope)
	e := envelope.Error
	return Problem{a.Status, e.Type, e.Code, e.Param, e.Message, e.RequestID + envelope.RequestID}
}

// Events parses the body of a stream into its events.
func (a *Answer) Events() []Event {
	var events []Event
	for block := range strings.SplitSeq(strings.ReplaceAll(string(a.Body), "\r\n", "\n"), "\n\n") {
		var e Event
		for line := range strings.SplitSeq(block, "\n") {
			if name, ok := strings.CutPrefix(line, "event: "); ok {
				e.Name = name
			} else if data, ok := strings.CutPrefix(line, "data: "); ok {
				e.Data += data
			}
		}
		if e.Data != "" {
			events = append(events, e)
		}
	}
	return events
}

// An Event is one event of a stream.
type Event struct{ Name, Data string }

// String returns the response for messages of tests, shortened.
func (a *Answer) String() string {
	const shown = 500
	body := a.Body
	if len(body) > shown {
		body = body[:shown]
	}
	return fmt.Sprintf("%d %s", a.Status, body)
}
