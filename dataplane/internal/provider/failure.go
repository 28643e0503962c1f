package provider

import (
	"bytes"
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
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/wire"
)

// Failure is a call that did not succeed.
//
//nolint:errname // callers use it mainly as a result
type Failure struct {
	// Client is the error for the client if no other route serves the request.
	Client *apierr.Error
	// Failover reports whether another route may serve the request.
	Failover bool
	// OfRoute reports whether another route may take the request that this one refuses: it lacks a parameter, does not offer a
	// value, or has a smaller context window. OfAccount reports that another account may: this one cannot verify an encrypted item
	// or a signature. Both come with Failover, and have no consequence for the route.
	OfRoute, OfAccount bool
	// Members are the members of the request that the provider refuses, nil if it names none or has another reason.
	Members []string
	// RouteCooldown and CredentialCooldown are the cooldowns that the route and the credential should get; zero:
	// none.
	RouteCooldown, CredentialCooldown time.Duration
	// Refusal is the reason for which the provider refuses the credential: wire.KeyRejected or wire.QuotaExhausted,
	// or wire.SourceFailed if the gateway could not renew it.
	Refusal string
	// Alarm reports whether an operator has to act: the provider refuses the gateway's account or does not know the
	// model.
	Alarm bool
	// Doubtful reports whether the request alone may have caused the failure: by its words, which providers repeat in error
	// texts, or because it made the provider fail. Consequences for other accounts then need a failure of another account,
	// too.
	Doubtful bool
	// Class is the error class of the classifier, or the kind of time-out, for logs and metrics.
	Class string
	// Limit is the time limit that has ended the call, one of the values of the label of a metric; empty if none has.
	Limit string
	// Gone reports whether the provider does not have, or no longer has, the resource that was requested by id.
	Gone bool
	// Unsent reports whether nothing was sent, because no connection could be made.
	Unsent bool
	// Answered reports whether the provider sent any answer, even an error.
	Answered bool
	cause    error
}

// Error returns a text for the log. It contains no text of the provider.
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
	// maxErrorBody bounds how much of an error answer is read, in bytes.
	maxErrorBody = 1 << 20
	// minCooldown is the cooldown of a failed route. It is at most as long as the shortest Retry-After that a client
	// gets for a rate limit: a client that waits that long can use the route again.
	minCooldown = time.Second
	// maxCooldown bounds the pause that a provider can ask for.
	maxCooldown = time.Minute
	// refusedCredentialCooldown is the cooldown of a credential that the provider refuses.
	refusedCredentialCooldown = 5 * time.Minute
)

func unavailable() *apierr.Error {
	return apierr.New(
		http.StatusBadGateway,
		apierr.UpstreamUnavailable,
		"The model is temporarily unavailable at its providers. Please try again.",
	)
}

// CallFailure returns the Failure of a call that got no answer.
func CallFailure(call *Call, err error) *Failure {
	f := &Failure{
		Client:        unavailable(),
		Failover:      true,
		RouteCooldown: minCooldown,
		cause:         err,
	}

	f.Limit = limitOf(err)
	switch {
	case f.Limit != "":
		f.Class = "timeout"
	case errors.Is(err, context.Canceled):
		f.Class, f.Failover, f.RouteCooldown = "canceled", false, 0
	default:
		f.Class = "connection"
	}

	var dial *net.OpError
	f.Unsent = errors.As(err, &dial) && (dial.Op == "dial" || dial.Op == "proxyconnect")
	f.Doubtful = !f.Unsent
	f.cause = fmt.Errorf("call provider %s: %w", call.Provider.ID, withoutProviderText(err))

	return f
}

// limitOf returns the name of the time limit that an error reports.
func limitOf(err error) string {
	for limit, known := range map[string]error{
		"first_byte": ErrFirstByteTimeout, "first_token": ErrFirstTokenTimeout, "idle": ErrIdleTimeout, "total": ErrTotalTimeout,
	} {
		if errors.Is(err, known) {
			return limit
		}
	}
	return ""
}

// NoTurnFailure returns the Failure of a call that was not made, because the provider limits the rate and other accounts
// have their turns. cooldown is the rest of the pause that the provider asked for.
func NoTurnFailure(cooldown time.Duration) *Failure {
	e := apierr.New(http.StatusTooManyRequests, apierr.RateLimitExceeded, message(classify.Verdict{Class: classify.RateLimit}))
	e.RetryAfter = min(max(cooldown, minCooldown), maxCooldown)
	return &Failure{
		Client:   e,
		Failover: true,
		Unsent:   true,
		Class:    classify.RateLimit.String(),
	}
}

// NoTokenFailure returns the Failure of a call that was not made, because its credential could not be renewed and has no
// valid token left. Another route has another credential.
func NoTokenFailure(call *Call, err error) *Failure {
	if errors.Is(err, context.Canceled) {
		return CallFailure(call, err)
	}
	return &Failure{
		Client:             unavailable(),
		Failover:           true,
		CredentialCooldown: minCooldown,
		Refusal:            wire.SourceFailed,
		Unsent:             true,
		Class:              "no_token",
		cause:              fmt.Errorf("provider %s: credential %s cannot be renewed", call.Provider.ID, call.Credential.ID),
	}
}

// withoutProviderText removes texts of the provider from an error, because the transport quotes text that it could not
// parse. An error that may contain such a text is reduced to its type.
func withoutProviderText(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // without the URL
	}

	for _, known := range []error{
		ErrFirstByteTimeout, ErrFirstTokenTimeout, ErrIdleTimeout, ErrTotalTimeout,
		context.Canceled, context.DeadlineExceeded, io.ErrUnexpectedEOF, io.EOF,
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

	return fmt.Errorf("%T", err)
}

// TruncatedFailure returns the Failure of an answer that ended too early.
func TruncatedFailure(call *Call, err error) *Failure {
	f := CallFailure(call, err)
	f.Answered = true
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		f.Class = "truncated"
	}
	return f
}

// NoStreamFailure returns the Failure of an answer in one piece to a request for a stream. The route works for others.
func NoStreamFailure(call *Call) *Failure {
	return &Failure{
		Client:   unavailable(),
		Failover: true,
		Class:    "no_stream",
		Answered: true,
		Doubtful: true,
		cause:    fmt.Errorf("provider %s: %w", call.Provider.ID, errNoStream),
	}
}

var errNoStream = errors.New("an answer in one piece to a request for a stream")

// AddedMember is the class of the refusal of a member that the gateway has added.
const AddedMember = "added_member"

// BlameGateway makes the refusal of a member one of what the gateway has added to the request. The client cannot leave that
// out, but another route may take it, and an operator can have it left out for this one.
func (f *Failure) BlameGateway() {
	f.Client, f.Failover, f.OfRoute, f.Class = unavailable(), true, false, AddedMember
}

// StatusFailure reads and closes an answer with an error status and returns its Failure.
func StatusFailure(call *Call, a *Answer, cleaner classify.Cleaner) *Failure {
	defer func() { _ = a.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(a.Body, maxErrorBody))
	if err != nil && len(body) == 0 {
		return TruncatedFailure(call, err)
	}
	f := ReportedFailure(call.Format, a.Status, a.Header, body, false, cleaner)
	f.Gone = call.Method == http.MethodGet && (a.Status == http.StatusNotFound || a.Status == http.StatusGone)
	return f
}

// ReportedFailure returns the Failure for an error that a provider reported: as an answer or, if inAnswer is set,
// inside a stream or a successful answer.
func ReportedFailure(f catalogkv.Format, status int, h http.Header, body []byte, inAnswer bool, cleaner classify.Cleaner) *Failure {
	if !isText(body) {
		body = nil // such as a compressed body that does not say so
	}

	v := classify.Classify(classify.Answer{
		Format:  string(f),
		Status:  status,
		Header:  h,
		Body:    body,
		Stream:  inAnswer,
		Cleaner: cleaner,
	})

	failure := &Failure{
		Client: &apierr.Error{
			Status:     v.Status,
			Code:       apierr.Code(v.Code),
			Message:    message(v),
			Param:      v.Param,
			RetryAfter: v.RetryAfter,
		},
		Failover: v.Failover,
		Members:  v.Members,
		Class:    v.Class.String(),
		Answered: true,
		Doubtful: !v.Certain,
		cause:    fmt.Errorf("status %d, line %d of rules.txt", status, v.Rule),
	}

	failure.OfAccount = v.ForeignItem
	failure.OfRoute = !v.ForeignItem && isOfRoute(&v)
	failure.Failover = v.Failover || failure.OfRoute || failure.OfAccount

	switch {
	case v.NamesMember: // it says nothing about the account or the route
	case v.KeyRejected || v.QuotaExhausted:
		failure.CredentialCooldown, failure.Alarm, failure.Refusal = refusedCredentialCooldown, true, wire.KeyRejected
		if v.QuotaExhausted {
			failure.Refusal = wire.QuotaExhausted
		}
	case v.Class == classify.GatewayRefused:
		failure.RouteCooldown, failure.Alarm = maxCooldown, true
	case v.Class == classify.RateLimit, v.Class == classify.Unavailable:
		failure.RouteCooldown = min(max(v.Pause, minCooldown), maxCooldown)
	}

	return failure
}

// isOfRoute reports whether a refusal says what the deployment lacks, so that another may take the request: a parameter, a value
// or room. A value that is invalid by the rules of its format is invalid everywhere.
func isOfRoute(v *classify.Verdict) bool {
	switch v.Class {
	case classify.ContextLength, classify.UnsupportedParameter:
		return true
	default:
		return v.NotOffered
	}
}

// isText reports whether an error is text rather than bytes that no client can read.
func isText(body []byte) bool {
	return !bytes.ContainsFunc(
		body,
		func(r rune) bool { return r < ' ' && r != '\t' && r != '\n' && r != '\r' && r != '\f' && r != '\x1b' },
	)
}

// message returns the text for the client: the provider's cleaned text if it is about the client's own request,
// otherwise the gateway's.
func message(v classify.Verdict) string {
	if v.Message != "" {
		return v.Message
	}
	switch v.Class {
	case classify.RateLimit:
		return "The model is overloaded or rate-limited at its provider. Please try again later."
	case classify.GatewayRefused, classify.Unavailable:
		return unavailable().Message
	case classify.ContentPolicy:
		return "The request was refused by the model's content policy."
	case classify.ContextLength:
		return "Prompt is too long: it exceeds the model's context window."
	case classify.InvalidImage:
		return "The reference image could not be used by the model."
	case classify.NoImage:
		return "The model returned no image."
	default:
		return "The model's provider rejected the request."
	}
}
