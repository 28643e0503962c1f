package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/provider/classify"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
)

func call() *Call {
	c := &Call{Format: catalogkv.Chat}
	c.Choice.Route = &catalog.Route{Provider: &catalog.Provider{}}
	c.Provider.ID = "prv"
	return c
}

// failureFields is a Failure without its texts.
type failureFields struct {
	Class                                               string
	Status                                              int
	Code                                                apierr.Code
	Failover, Alarm, Answered, Unsent, Gone             bool
	RouteCooldown, CredentialCooldown, ClientRetryAfter time.Duration
}

func fieldsOf(f *Failure) failureFields {
	return failureFields{
		f.Class, f.Client.Status, f.Client.Code, f.Failover, f.Alarm, f.Answered, f.Unsent, f.Gone, f.RouteCooldown, f.CredentialCooldown, f.Client.RetryAfter,
	}
}

func TestCallFailure(t *testing.T) {
	t.Parallel()
	unavailable := failureFields{Status: 502, Code: apierr.UpstreamUnavailable, Failover: true, RouteCooldown: minCooldown}
	with := func(change func(j *failureFields)) failureFields {
		j := unavailable
		change(&j)
		return j
	}
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	tests := []struct {
		name string
		err  error
		want failureFields
	}{
		{"dial", refused, with(func(j *failureFields) { j.Class, j.Unsent = "connection", true })},
		{"reset", &net.OpError{Op: "read", Err: errors.New("reset")}, with(func(j *failureFields) { j.Class = "connection" })},
		{"first byte", fmt.Errorf("x: %w", ErrFirstByteTimeout), with(func(j *failureFields) { j.Class = "timeout" })},
		{"idle", ErrIdleTimeout, with(func(j *failureFields) { j.Class = "timeout" })},
		{"total", ErrTotalTimeout, with(func(j *failureFields) { j.Class = "timeout" })},
		{"first token", ErrFirstTokenTimeout, with(func(j *failureFields) { j.Class = "timeout" })},
		{"cancelled", context.Canceled, with(func(j *failureFields) { j.Class, j.Failover, j.RouteCooldown = "canceled", false, 0 })},
	}
	for _, tt := range tests {
		f := CallFailure(call(), tt.err)
		if diff := cmp.Diff(tt.want, fieldsOf(f)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if f.Unwrap() == nil || !strings.HasPrefix(f.Error(), "provider: "+tt.want.Class+": call provider prv: ") {
			t.Errorf("%s: %v", tt.name, f)
		}
	}
}

func TestTruncatedFailure(t *testing.T) {
	t.Parallel()
	for err, class := range map[error]string{io.ErrUnexpectedEOF: "truncated", io.EOF: "truncated", ErrIdleTimeout: "timeout", errors.New("?"): "connection"} {
		f := TruncatedFailure(call(), err)
		if f.Class != class || !f.Answered || !f.Failover {
			t.Errorf("%v: got %+v; want class %s, answered", err, fieldsOf(f), class)
		}
	}
}

type leakyError struct{}

func (leakyError) Error() string { return "the provider said: secret words" }

// The error contains no address either, but errors.Is still finds the cause.
func TestErrorContainsNoTextOfTheProvider(t *testing.T) {
	t.Parallel()
	timeout := &net.DNSError{Err: "no such host", Name: "provider.example"}
	tests := []struct {
		err  error
		is   error
		want string
	}{
		{leakyError{}, nil, "provider: connection: call provider prv: provider.leakyError"},
		{&url.Error{Op: "Get", URL: "http://secret words", Err: leakyError{}}, nil, "provider: connection: call provider prv: provider.leakyError"},
		{fmt.Errorf("secret words: %w", ErrIdleTimeout), ErrIdleTimeout, "provider: timeout: call provider prv: " + ErrIdleTimeout.Error()},
		{fmt.Errorf("secret words: %w", io.ErrUnexpectedEOF), io.ErrUnexpectedEOF, "provider: connection: call provider prv: unexpected EOF"},
		{fmt.Errorf("secret words: %w", timeout), timeout, "provider: connection: call provider prv: lookup provider.example: no such host"},
	}
	for _, tt := range tests {
		f := CallFailure(call(), tt.err)
		if got := f.Error(); got != tt.want {
			t.Errorf("got %q; want %q", got, tt.want)
		}
		if tt.is != nil && !errors.Is(f, tt.is) {
			t.Errorf("%v is not %v", f, tt.is)
		}
	}
}

func TestStatusFailure(t *testing.T) {
	t.Parallel()
	body := func(code, message string) string {
		return fmt.Sprintf(`{"error":{"message":%q,"type":"x","code":%q}}`, message, code)
	}
	tests := []struct {
		name   string
		status int
		header http.Header
		body   string
		method string
		want   failureFields
	}{
		{
			"gateway key rejected", 401, nil, body("invalid_api_key", "Incorrect API key provided: sk-secret"), "",
			failureFields{Class: "gateway_refused", Status: 502, Code: apierr.UpstreamUnavailable, Failover: true, Alarm: true, Answered: true, CredentialCooldown: refusedCredentialCooldown},
		},
		{
			"unknown upstream model name", 404, nil, body("model_not_found", "The model `up` does not exist"), "",
			failureFields{Class: "gateway_refused", Status: 502, Code: apierr.UpstreamUnavailable, Failover: true, Alarm: true, Answered: true, RouteCooldown: maxCooldown},
		},
		{
			"rate limit", 429,
			http.Header{"Retry-After": {"7"}},
			body("rate_limit_exceeded", "Rate limit reached"), "",
			failureFields{Class: "rate_limit", Status: 429, Code: apierr.RateLimitExceeded, Failover: true, Answered: true, RouteCooldown: 7 * time.Second, ClientRetryAfter: 7 * time.Second},
		},
		{
			"rate limit without a pause", 429, nil, body("rate_limit_exceeded", "Rate limit reached"), "",
			failureFields{Class: "rate_limit", Status: 429, Code: apierr.RateLimitExceeded, Failover: true, Answered: true, RouteCooldown: minCooldown},
		},
		{
			"down", 503, nil, "<html>secret</html>", "",
			failureFields{Class: "unavailable", Status: 502, Code: apierr.UpstreamUnavailable, Failover: true, Answered: true, RouteCooldown: minCooldown},
		},
		{
			"invalid request", 400, nil, body("context_length_exceeded", "This model's maximum context length is 10 tokens."), "",
			failureFields{Class: "context_length", Status: 400, Code: apierr.ContextLengthExceeded, Failover: true, Answered: true},
		},
		{
			"a job that is gone", 404, nil, "{}", http.MethodGet,
			failureFields{Class: "other_client", Status: 404, Code: apierr.InvalidRequest, Answered: true, Gone: true},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := call()
			c.Method = tt.method
			closed := &closeRecorder{Reader: strings.NewReader(tt.body)}
			f := StatusFailure(c, &Answer{Status: tt.status, Header: tt.header, Body: NoAwait{closed}}, classify.Cleaner{})
			if diff := cmp.Diff(tt.want, fieldsOf(f)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !closed.closed {
				t.Error("the answer is not closed")
			}
			if strings.Contains(f.Error(), "secret") || strings.Contains(f.Client.Message, "secret") || f.Client.Message == "" {
				t.Errorf("error %q, message %q", f, f.Client.Message)
			}
		})
	}
}

// closeRecorder records that it was closed, and fails where the test wants it.
type closeRecorder struct {
	io.Reader
	closed bool
}

func (c *closeRecorder) Close() error {
	c.closed = true
	return nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestStatusFailureOfATruncatedBody(t *testing.T) {
	t.Parallel()
	if f := StatusFailure(call(), &Answer{Status: 500, Body: NoAwait{&closeRecorder{Reader: broken{}}}}, classify.Cleaner{}); f.Class != "truncated" {
		t.Errorf("class %s; want truncated", f.Class)
	}
	// The bytes before the truncation are classified.
	half := io.MultiReader(strings.NewReader(`{"error":{"code":"invalid_api_key","message":"no"}}`), broken{})
	if f := StatusFailure(call(), &Answer{Status: 401, Body: NoAwait{&closeRecorder{Reader: half}}}, classify.Cleaner{}); f.CredentialCooldown == 0 {
		t.Errorf("got %+v; want a cooldown of the credential", fieldsOf(f))
	}
}

func TestBodyIsFreedWithItsLastReference(t *testing.T) {
	t.Parallel()
	var freed atomic.Int64
	b := NewBody([]byte("body"), func() { freed.Add(1) })
	var wg sync.WaitGroup
	for range 10 {
		b.Retain()
		r := b.NewReader()
		wg.Go(func() {
			got, err := io.ReadAll(r)
			if string(got) != "body" || err != nil || freed.Load() != 0 {
				t.Errorf("got %q, %v, freed %d times", got, err, freed.Load())
			}
			b.Release()
		})
	}
	b.Release()
	wg.Wait()
	if freed.Load() != 1 || b.Len() != 4 {
		t.Errorf("freed %d times; want once", freed.Load())
	}
	NewBody(nil, nil).Release()
}

func TestBodyOfPartsIsTheirConcatenation(t *testing.T) {
	t.Parallel()
	for _, parts := range [][][]byte{nil, {[]byte("one")}, {[]byte("one"), []byte("two"), []byte("three")}} {
		freed := false
		b, want := NewBodyOf(parts, func() { freed = true }), string(slices.Concat(parts...))
		read, err := io.ReadAll(b.NewReader())
		if err != nil || string(read) != want || b.Len() != len(want) || string(b.AppendTo([]byte("> "))) != "> "+want {
			t.Errorf("read %q, %v, appended %q, length %d; want %q", read, err, b.AppendTo(nil), b.Len(), want)
		}
		if got := slices.Concat(b.AppendParts([][]byte{[]byte("> ")})...); string(got) != "> "+want {
			t.Errorf("the parts are %q", got)
		}
		if b.Release(); !freed {
			t.Error("the body was not freed")
		}
	}
}
