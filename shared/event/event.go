// Package event owns what proxies report to the control plane: usage events
// and their batches, and the records of video jobs.
//
// Versions (fields are added, never renamed or reused):
//
//	1  2026-11-21  first version
//	1  2026-11-22  price_multiplier of usage events; absent means 1, and readers that do not know it lose nothing but its place on the receipt
package event

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"modelgateway/shared/ident"
	"modelgateway/shared/internal/jsonappend"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

// Version is the version that this build writes.
const Version = 1

// MaxCost is the greatest cost that one event can have. What is above it is a
// fault of the proxy; the bound keeps sums of costs from overflowing.
const MaxCost = 1_000_000 * money.Unit

// Status is how a request ended.
type Status string

// The ends of a request.
const (
	// Completed: the provider answered whole.
	Completed Status = "completed"
	// Failed: the provider failed, before or within its answer.
	Failed Status = "failed"
	// ClientGone: the client left before the end.
	ClientGone Status = "client_gone"
	// Revoked: the key was revoked while the answer ran.
	Revoked Status = "revoked"
	// Aborted: the proxy died while the request ran.
	Aborted Status = "aborted"
)

// The rules by which a cost came about, as receipts name them.
const (
	// RuleReported: billed from the usage that the provider reported.
	RuleReported = "reported"
	// RuleEstimated: no usage was reported; counted from what was delivered.
	RuleEstimated = "estimated"
	// RuleNone: nothing billable happened.
	RuleNone = "none"
)

// Usage is the record of one finished request. It is final: the same request
// reported twice has the same Fingerprint.
type Usage struct {
	V         int    `json:"v"`
	RequestID string `json:"request_id"`
	// Session and N number the event: N counts 1, 2, 3… within the session that admitted the request.
	Session   int64  `json:"session"`
	N         int64  `json:"n"`
	AccountID string `json:"account_id"`
	KeyID     string `json:"key_id"`
	// Model is the gateway's name of the model; Format the endpoint.
	Model    string `json:"model"`
	Format   string `json:"format"`
	Provider string `json:"provider,omitempty"`
	Route    string `json:"route,omitempty"`
	// ProviderRequestID is the provider's own id of the request, for disputes; never shown to clients.
	ProviderRequestID string `json:"provider_request_id,omitempty"`
	Status            Status `json:"status"`
	HTTPStatus        int    `json:"http_status,omitempty"`
	Stream            bool   `json:"stream,omitempty"`
	// StartedMS and FinishedMS are Unix milliseconds of the proxy's clock; FirstByteMS is the wait in milliseconds.
	StartedMS   int64       `json:"started_ms"`
	FinishedMS  int64       `json:"finished_ms"`
	FirstByteMS int64       `json:"first_byte_ms,omitempty"`
	Usage       price.Usage `json:"usage"`
	// Rule names how Usage came about; Estimated marks a count of our own.
	Rule      string `json:"rule"`
	Estimated bool   `json:"estimated,omitempty"`
	// PriceVersion is the sheet that Cost and Reserve were computed with.
	PriceVersion int64 `json:"price_version"`
	// PriceMultiplier is what the account paid of the list price; zero means 1.
	PriceMultiplier price.Multiplier `json:"price_multiplier,omitempty"`

	Cost    money.Nano `json:"cost"`
	Reserve money.Nano `json:"reserve"`
	// VideoJob is the job that the cost belongs to.
	VideoJob string `json:"video_job,omitempty"`
}

// Fingerprint is a hash over what decides the money of the event. Two events
// of one request with different fingerprints contradict one another. The
// multiplier is not among it: Cost says what it came to, and neighbouring
// releases must agree on the fingerprint of what both have seen.
func (u *Usage) Fingerprint() [sha256.Size]byte {
	// As encoding/json would write a struct of these fields: what is settled already was marked so.
	b := append(make([]byte, 0, 512), '{')
	b = jsonappend.String(b, "RequestID", u.RequestID)
	b = jsonappend.String(b, "AccountID", u.AccountID)
	b = jsonappend.String(b, "KeyID", u.KeyID)
	b = jsonappend.String(b, "Model", u.Model)
	b = append(u.Usage.AppendMembers(jsonappend.Object(b, "Usage")), '}')
	b = jsonappend.Int(b, "PriceVersion", u.PriceVersion)
	b = append(jsonappend.Int(b, "Cost", int64(u.Cost)), '}')
	return sha256.Sum256(b)
}

// Validate reports what makes the event impossible to settle.
func (u *Usage) Validate() error {
	var faults []error
	if u.V < 1 || u.V > Version {
		faults = append(faults, fmt.Errorf("event: version %d is not known", u.V))
	}
	for _, id := range []struct {
		kind ident.Kind
		text string
	}{{ident.Request, u.RequestID}, {ident.Account, u.AccountID}, {ident.Key, u.KeyID}} {
		if _, err := id.kind.Parse(id.text); err != nil {
			faults = append(faults, err)
		}
	}
	if u.Session <= 0 || u.N <= 0 {
		faults = append(faults, fmt.Errorf("event: session %d, number %d", u.Session, u.N))
	}
	if u.Cost < 0 || u.Reserve < 0 {
		faults = append(faults, fmt.Errorf("event: cost %d or reserve %d is negative", u.Cost, u.Reserve))
	}
	if u.Cost > MaxCost {
		faults = append(faults, fmt.Errorf("event: cost %d is above %d", u.Cost, MaxCost))
	}
	if err := u.PriceMultiplier.Validate(); err != nil {
		faults = append(faults, err)
	}
	if u.Model == "" || u.Status == "" {
		faults = append(faults, errors.New("event: model or status is missing"))
	}
	return errors.Join(faults...)
}

// Batch is one message on the usage stream. Events are kept as bytes, so that
// a faulty one can be set aside without losing the others.
type Batch struct {
	V       int               `json:"v"`
	BatchID string            `json:"batch_id"`
	Session int64             `json:"session"`
	Events  []json.RawMessage `json:"events"`
}

// Settled tells a session which of its events are in Postgres: all up to
// Watermark, and the numbers in Beyond.
type Settled struct {
	V         int        `json:"v"`
	Session   int64      `json:"session"`
	Watermark int64      `json:"watermark"`
	Beyond    [][2]int64 `json:"beyond,omitempty"` // inclusive ranges
}
