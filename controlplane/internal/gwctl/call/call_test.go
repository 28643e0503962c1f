package call_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"modelgateway/controlplane/internal/gwctl/call"
)

// script responds to requests in order.
type script struct {
	answers []func() (*http.Response, error)
	at      []time.Time
	keys    []string
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.at = append(s.at, time.Now())
	s.keys = append(s.keys, r.Header.Get(call.IdempotencyHeader))
	next := s.answers[min(len(s.at), len(s.answers))-1]
	return next()
}

func status(code int, headers ...string) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		h := http.Header{}
		for i := 0; i < len(headers); i += 2 {
			h.Set(headers[i], headers[i+1])
		}
		return &http.Response{StatusCode: code, Status: http.StatusText(code), Header: h, Body: io.NopCloser(strings.NewReader("{}"))}, nil
	}
}

func broken() (*http.Response, error) { return nil, errors.New("connection reset") }

func do(ctx context.Context, s *script, timeout time.Duration) (*http.Response, error) {
	c := call.Client{
		Server: "http://server/", HTTP: &http.Client{Transport: s}, Timeout: timeout,
		TokenFunc: func(context.Context) (string, error) { return "token", nil },
	}
	return c.Do(ctx, call.Request{Method: http.MethodPost, Path: "/x"})
}

func TestPausesGrowAndTheKeyIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []func() (*http.Response, error){broken, status(502), status(503), broken, status(200)}}
		answer, err := do(t.Context(), s, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		for i, key := range s.keys {
			if key == "" || key != s.keys[0] {
				t.Errorf("request %d has the key %q; want %q", i, key, s.keys[0])
			}
		}
		for i := 1; i < len(s.at); i++ {
			least := 100 * time.Millisecond << (i - 1)
			if pause := s.at[i].Sub(s.at[i-1]); pause < least || pause > 3*least {
				t.Errorf("pause %d is %v; want %v to %v", i, pause, least, 3*least)
			}
		}
	})
}

func TestRetryAfterIsRespected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []func() (*http.Response, error){status(503, "Retry-After", "7"), status(503, "Retry-After", "3600"), status(204)}}
		answer, err := do(t.Context(), s, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if first, second := s.at[1].Sub(s.at[0]), s.at[2].Sub(s.at[1]); first != 7*time.Second || second != 10*time.Second {
			t.Errorf("pauses %v and %v; want 7s, and 10s instead of an hour", first, second)
		}
	})
}

func TestTimeoutCoversAllAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := do(t.Context(), &script{answers: []func() (*http.Response, error){status(503, "Retry-After", "9")}}, 5*time.Second)
		lost, ok := errors.AsType[*call.UnreachableError](err)
		if !ok || lost.Key == "" || time.Since(began) != 5*time.Second {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
	})
}

// A response that has begun has no time limit, because exports are long.
func TestTimeoutEndsWhenTheResponseBegins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reader, writer := io.Pipe()
		s := &script{answers: []func() (*http.Response, error){func() (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: reader, Header: http.Header{}}, nil
		}}}
		answer, err := do(t.Context(), s, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(time.Hour)
			_, _ = writer.Write([]byte("late"))
			_ = writer.Close()
		}()
		if text, err := io.ReadAll(answer.Body); string(text) != "late" || err != nil {
			t.Errorf("got %q, %v", text, err)
		}
		_ = answer.Body.Close()
	})
}

func TestRequestFailsAfterTheLastAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []func() (*http.Response, error){status(503)}}
		_, err := do(t.Context(), s, 0)
		if problem, ok := errors.AsType[*call.ProblemError](err); !ok || problem.Status != 503 || len(s.at) != 5 {
			t.Errorf("got %v after %d requests", err, len(s.at))
		}
	})
}
