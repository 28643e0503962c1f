package provider

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"modelgateway/dataplane/internal/provider/classify"
	"modelgateway/shared/apierr"
	contract "modelgateway/shared/catalog"
	"modelgateway/shared/lease"
)

// Failure is a call that did not succeed.
//
//nolint:errname // it is a judgement first, and an error for those who only pass it on
type Failure struct {
	// Client is what the client is told if no other route serves it.
	Client *apierr.Error
	// Failover tells that another route may serve the request.
	Failover bool
	// RouteAside and SecretAside are for how long the route or the credential should not be chosen; zero: it may.
	RouteAside, SecretAside time.Duration
	// Refusal says why the credential is set aside: lease.KeyRejected or lease.QuotaExhausted.
	Refusal string
	// Alarm tells that a person should look: the provider refuses our account or does not know our model name.
	Alarm bool
	// Class is the classifier's judgement, or the kind of time-out, for logs and metrics.
	Class string
	// Gone tells that the provider does not know what was asked for by its id.
	Gone bool
	// Unsent tells that nothing of the call has left: no connection was made.
	Unsent bool
	// Answered tells that the provider answered at all, so that it may have done billable work.
	Answered bool
	cause    error
}

// Error is for the log; it holds no text of the provider.
func (f *Failure) Error() string {
	text := "provider: " + f.Class
	if f.cause != nil {
		text += ": " + f.cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.cause }

const (
	// maxErrorBody bounds what is read of an error answer.
	maxErrorBody = 1 << 20
	// cooldown keeps a route that failed from being chosen. It is no longer than the least pause that a client is
	// told after a rate limit: who keeps to that finds the route again.
	cooldown = time.Second
	// maxCooldown bounds what a provider can ask for; secretAside is for a refused credential.
	maxCooldown = time.Minute
	secretAside = 5 * time.Minute
)

func unavailable() *apierr.Error {
	return apierr.New(http.StatusBadGateway, apierr.UpstreamUnavailable, "The model's providers are temporarily unavailable. Please try again.")
}

// Failed judges a call that got no answer.
func Failed(call *Call, err error) *Failure {
	f := &Failure{Client: unavailable(), Failover: true, RouteAside: cooldown, cause: err}
	switch {
	case errors.Is(err, ErrTotalTimeout): // nor has another route any time left
		f.Class, f.Failover = "timeout", false
	case errors.Is(err, ErrFirstByteTimeout), errors.Is(err, ErrIdleTimeout):
		f.Class = "timeout"
	case errors.Is(err, context.Canceled):
		f.Class, f.Failover, f.RouteAside = "canceled", false, 0
	default:
		f.Class = "connection"
	}
	var dial *net.OpError
	f.Unsent = errors.As(err, &dial) && dial.Op == "dial"
	f.cause = fmt.Errorf("call provider %s: %w", call.Provider.ID, quiet(err))
	return f
}

// quiet is an error without the words of a provider: the transport quotes what
// it could not understand. What is not known to be free of them is reduced to
// its type.
func quiet(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // without the URL
	}
	for _, known := range []error{
		ErrFirstByteTimeout, ErrIdleTimeout, ErrTotalTimeout, context.Canceled, context.DeadlineExceeded, io.ErrUnexpectedEOF, io.EOF,
	} {
		if errors.Is(err, known) {
			return known
		}
	}
	if network, ok := errors.AsType[net.Error](err); ok {
		return network
	}
	if certificate, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return certificate
	}
	return fmt.Errorf("%T", err) // its type is all that may be told
}

// Broken judges an answer that ended before it was whole.
func Broken(call *Call, err error) *Failure {
	f := Failed(call, err)
	f.Answered = true
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		f.Class = "cut"
	}
	return f
}

// Refused reads and judges an answer with an error status. The answer is
// closed by it.
func Refused(call *Call, a *Answer, cleaner classify.Cleaner) *Failure {
	defer func() { _ = a.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(a.Body, maxErrorBody))
	if err != nil && len(body) == 0 {
		return Broken(call, err)
	}
	f := Judge(call.Format, a.Status, a.Header, body, false, cleaner)
	f.Gone = call.Method == http.MethodGet && (a.Status == http.StatusNotFound || a.Status == http.StatusGone)
	return f
}

// Judge judges an error that a provider sent: as an answer, or, when stream is
// set, within a stream or a successful answer.
func Judge(f contract.Format, status int, h http.Header, body []byte, stream bool, cleaner classify.Cleaner) *Failure {
	v := classify.Classify(classify.Answer{Format: string(f), Status: status, Header: h, Body: body, Stream: stream, Cleaner: cleaner})
	failure := &Failure{
		Client: &apierr.Error{
			Status: v.Status, Code: apierr.Code(v.Code), Message: message(v), Param: v.Param, RetryAfter: v.RetryAfter,
		},
		Failover: v.Failover, Class: v.Class.String(), Answered: true,
		cause: fmt.Errorf("status %d, rule %d", status, v.Rule),
	}
	switch {
	case v.KeyRejected || v.QuotaExhausted:
		failure.SecretAside, failure.Alarm, failure.Refusal = secretAside, true, lease.KeyRejected
		if v.QuotaExhausted {
			failure.Refusal = lease.QuotaExhausted
		}
	case v.Class == classify.OurAccount:
		failure.RouteAside, failure.Alarm = maxCooldown, true
	case v.Class == classify.RateLimit, v.Class == classify.Unavailable:
		failure.RouteAside = min(max(v.Pause, cooldown), maxCooldown)
	}
	return failure
}

// message is what the client reads: the provider's cleaned words where they
// are about the client's own request, else ours.
func message(v classify.Verdict) string {
	if v.Message != "" {
		return v.Message
	}
	switch v.Class {
	case classify.RateLimit:
		return "The model is overloaded or rate-limited at the provider. Please try again later."
	case classify.OurAccount, classify.Unavailable:
		return unavailable().Message
	case classify.ContentPolicy:
		return "The request was refused by the model's content policy."
	case classify.ContextLength:
		return "Prompt is too long: it does not fit the model's context window."
	case classify.InvalidImage:
		return "The reference image could not be used by the model."
	case classify.NoImage:
		return "The model returned no image."
	default:
		return "The model's provider rejected the request."
	}
}
