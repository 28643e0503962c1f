package webhook

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
	"unicode"

	"modelgateway/shared/ident"
)

// DeliveryID identifies the delivery of an event to an endpoint. Its text form
// is "dlv_…".
type DeliveryID ident.UUID

// ParseDeliveryID reads the text form; any text that is none gives
// ErrDeliveryNotFound.
func ParseDeliveryID(text string) (DeliveryID, error) {
	u, err := ident.Delivery.Parse(text)
	if err != nil {
		return DeliveryID{}, ErrDeliveryNotFound
	}
	return DeliveryID(u), nil
}

// String is the text form.
func (id DeliveryID) String() string { return ident.Delivery.Format(ident.UUID(id)) }

// State is how far a delivery has come.
type State string

// The states.
const (
	Pending   State = "pending"
	Delivered State = "delivered"
	// Failed is given up: only redelivery brings it back.
	Failed State = "failed"
)

// Delivery is an event on its way to an endpoint.
type Delivery struct {
	ID         DeliveryID
	EndpointID ID
	EventID    ident.UUID
	Type       Type
	State      State
	Attempts   int
	// NextAttemptAt is when it is tried next at the earliest; nil if it is not pending.
	NextAttemptAt *time.Time
	CreatedAt     time.Time
	EndedAt       *time.Time
	// Last is the newest attempt; nil if there was none.
	Last *Attempt
	// Body is the event as it is sent; nil in a list.
	Body []byte
}

// Attempt is one try to deliver.
type Attempt struct {
	N  int
	At time.Time
	// Status is the HTTP status; zero if no answer came.
	Status  int
	Latency time.Duration
	// Error is the class of failure; empty for a success.
	Error Class
	// Excerpt is a few printable characters of a refusal.
	Excerpt string
}

// Class is why an attempt failed, in one word: the text of an error may tell
// more about the network than an API should.
type Class string

// The classes.
const (
	// Refused: an answer came that is no success.
	Refused Class = "status"
	// Redirected: the answer names another address, which is not followed.
	Redirected Class = "redirect"
	// TimedOut: no whole answer came in time.
	TimedOut Class = "timeout"
	// Forbidden: the address may not be spoken to.
	Forbidden Class = "forbidden_address"
	// Unresolved: the host has no address.
	Unresolved Class = "dns"
	// Untrusted: the certificate is not good.
	Untrusted Class = "tls"
	// Unreachable: no connection, or one that broke.
	Unreachable Class = "connection"
	// Unopened: the control plane cannot open the endpoint's secret.
	Unopened Class = "secret"
)

// Claim is a delivery that this replica alone may try for a while.
type Claim struct {
	Delivery DeliveryID
	// Number tells this claim from later ones of the same delivery.
	Number int64
	// Round is how many attempts there were since it was asked for the last time.
	Round    int
	Endpoint ID
	URL      string
	EventID  ident.UUID
	Body     []byte
	// Failures counts the endpoint's failures since its last success; FailingFor is how long ago the first of them was.
	Failures   int
	FailingFor time.Duration
	Secrets    []Secret
}

// Outcome is what became of a claim.
type Outcome struct {
	Claim   *Claim
	Attempt Attempt
	State   State
	// Pause is the time to the next attempt of a pending delivery.
	Pause time.Duration
	// Rest is for how long nothing is sent to the endpoint.
	Rest time.Duration
	// Disable says why the endpoint is turned off; empty if it is not.
	Disable string
}

// pauses are the times before each further attempt: three days together.
var pauses = []time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour,
	8 * time.Hour, 12 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

const (
	// jitterShare is the part of a pause by which it may be longer.
	jitterShare = 5
	// restAfter is how many failures in a row make an endpoint rest, firstRest for how long; it doubles up to maxRest.
	restAfter = 3
	firstRest = 5 * time.Second
	maxRest   = 5 * time.Minute
)

// conclude decides what comes of an attempt: growing pauses, a rest for an
// endpoint that fails whatever it is sent, and an end to one that has failed
// for too long or says that it is gone.
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
	if failures := c.Failures + 1; failures >= restAfter {
		o.Rest = min(firstRest<<min(failures-restAfter, 10), maxRest)
	}
	switch {
	case a.Status == http.StatusGone:
		o.Disable = "it answered 410 Gone"
	case c.FailingFor > disableAfter:
		o.Disable = "it failed for " + disableAfter.String()
	}
	return o
}

// maxExcerpt bounds what is kept of a refusal, in characters.
const maxExcerpt = 200

// secretMarks begin what must not be kept, should a receiver send it back.
var secretMarks = []string{"mgw_", "mgwa_", "whsec_", "v1,", "Bearer "}

// Excerpt is what may be kept of the body of a refusal: the beginning, on one
// line, if it is text and holds nothing that looks like a secret.
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

// Message is a signed event to be sent.
type Message struct {
	URL string
	// Header holds the signature and the id.
	Header http.Header
	Body   []byte
}
