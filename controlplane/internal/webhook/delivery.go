package webhook

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
	"unicode"

	"modelgateway/shared/ident"
)

// DeliveryID identifies the delivery of one event to one endpoint. Its text form is "dlv_…".
type DeliveryID ident.UUID

// ParseDeliveryID parses the text form; it returns ErrDeliveryNotFound for any other text.
func ParseDeliveryID(text string) (DeliveryID, error) {
	u, err := ident.Delivery.Parse(text)
	if err != nil {
		return DeliveryID{}, ErrDeliveryNotFound
	}
	return DeliveryID(u), nil
}

// String returns the text form.
func (id DeliveryID) String() string { return ident.Delivery.Format(ident.UUID(id)) }

// State is the state of a delivery.
type State string

// The states of a delivery.
const (
	Pending   State = "pending"
	Delivered State = "delivered"
	// Failed deliveries are attempted again only if an operator requests it.
	Failed State = "failed"
)

// Delivery is the delivery of one event to one endpoint.
type Delivery struct {
	ID         DeliveryID
	EndpointID ID
	EventID    ident.UUID
	Type       Type
	State      State
	Attempts   int
	// NextAttemptAt is the earliest time of the next attempt; nil unless the delivery is pending.
	NextAttemptAt *time.Time
	CreatedAt     time.Time
	EndedAt       *time.Time
	// Last is the newest attempt; nil if there was none.
	Last *Attempt
	// Body is the event as it is sent; nil in a list.
	Body []byte
}

// Attempt is one attempt of a delivery.
type Attempt struct {
	N  int
	At time.Time
	// Status is the HTTP status; zero if there was no response.
	Status  int
	Latency time.Duration
	// Error is the error class; empty for a success.
	Error Class
	// Excerpt is the printable beginning of an error response.
	Excerpt string
}

// Class is the error class of a failed attempt. The text of the error is not shown, since it can
// reveal details of the internal network.
type Class string

// The error classes.
const (
	// Refused: the response has an error status.
	Refused Class = "status"
	// Redirected: the response is a redirect, which is not followed.
	Redirected Class = "redirect"
	// TimedOut: there was no complete response in time.
	TimedOut Class = "timeout"
	// Forbidden: the endpoint's address is neither public nor allowed.
	Forbidden Class = "forbidden_address"
	// Unresolved: the host name does not resolve.
	Unresolved Class = "dns"
	// Untrusted: the certificate is not trusted.
	Untrusted Class = "tls"
	// Unreachable: there was no connection, or it broke.
	Unreachable Class = "connection"
	// Undecryptable: the control plane cannot decrypt the endpoint's secret.
	Undecryptable Class = "secret"
)

// Claim is a delivery that only this replica may attempt until the claim expires.
type Claim struct {
	Delivery DeliveryID
	// Number distinguishes this claim from later claims of the same delivery.
	Number int64
	// Round counts the attempts since a redelivery was last requested.
	Round    int
	Endpoint ID
	URL      string
	EventID  ident.UUID
	Body     []byte
	// Failures counts the endpoint's failures since its last success; FailingFor is the time since the first of
	// them.
	Failures   int
	FailingFor time.Duration
	Secrets    []Secret
}

// Outcome is the result of a claim, as it is to be stored.
type Outcome struct {
	Claim   *Claim
	Attempt Attempt
	State   State
	// Pause is the time until the next attempt of a pending delivery.
	Pause time.Duration
	// Backoff is the time in which nothing is sent to the endpoint.
	Backoff time.Duration
	// Disable is the reason to disable the endpoint; empty to keep it enabled.
	Disable string
}

// pauses are the delays before each further attempt; they add up to three days.
var pauses = []time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour,
	8 * time.Hour, 12 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

const (
	// jitterShare: the jitter of a delay is at most 1/jitterShare of it.
	jitterShare = 5
	// backoffAfter failures in a row start the endpoint's backoff, at firstBackoff and doubling up to maxBackoff.
	backoffAfter = 3
	firstBackoff = 5 * time.Second
	maxBackoff   = 5 * time.Minute
)

// conclude computes the outcome of an attempt: growing delays for the delivery, a backoff for an
// endpoint whose attempts fail in a row, and the reason to disable an endpoint that failed for too
// long or answered 410 Gone.
func conclude(c *Claim, a Attempt, disableAfter time.Duration) Outcome {
	o := Outcome{Claim: c, Attempt: a, State: Delivered}
	if a.Error == "" {
		return o
	}

	o.State = Failed
	if c.Round < len(pauses) {
		o.State = Pending
		pause := pauses[c.Round]
		o.Pause = pause + rand.N(pause/jitterShare)
	}

	if failures := c.Failures + 1; failures >= backoffAfter {
		o.Backoff = min(firstBackoff<<min(failures-backoffAfter, 10), maxBackoff)
	}

	switch {
	case a.Status == http.StatusGone:
		o.Disable = "the endpoint answered 410 Gone"
	case c.FailingFor > disableAfter:
		o.Disable = "the endpoint failed for " + disableAfter.String()
	}

	return o
}

// maxExcerpt bounds the stored excerpt of an error response, in characters.
const maxExcerpt = 200

// secretMarks are prefixes of secrets; a response that contains one of them is not stored.
var secretMarks = []string{"mgw_", "mgwa_", "whsec_", "v1,", "Bearer "}

// Excerpt returns the beginning of an error response on one line; empty if the response seems to
// contain a secret.
func Excerpt(body []byte) string {
	text := strings.ToValidUTF8(string(body), "")
	for _, mark := range secretMarks {
		if strings.Contains(text, mark) {
			return ""
		}
	}
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if runes := []rune(text); len(runes) > maxExcerpt {
		return string(runes[:maxExcerpt])
	}
	return text
}

// Message is a signed event.
type Message struct {
	URL string
	// Header holds the signature and the event's id.
	Header http.Header
	Body   []byte
}
