// Package event defines the messages about usage and video jobs: the usage
// events that proxies publish, their batches, the watermark that the control
// plane answers with, and the records of video jobs.
//
// Within a version, members are added, never renamed or reused, because streams
// and spools contain events of older releases.
//
// Versions:
//
//	1  2026-11-22  first version
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

// MaxCost is the maximum cost and reservation of one event. A greater one is a bug
// of the proxy. The bound keeps sums of them from overflowing.
const MaxCost = 1_000_000 * money.Unit

// Status is the outcome of a request.
type Status string

// The outcomes of a request.
const (
	// Completed means that the provider answered completely.
	Completed Status = "completed"
	// Failed means that the provider failed, before or during its answer.
	Failed Status = "failed"
	// ClientGone means that the client disconnected before the end.
	ClientGone Status = "client_gone"
	// Revoked means that the key was revoked during the answer.
	Revoked Status = "revoked"
	// Aborted means that the proxy crashed while the request was running.
	Aborted Status = "aborted"
)

// Valid reports whether the status is one of the outcomes.
func (s Status) Valid() bool {
	switch s {
	case Completed, Failed, ClientGone, Revoked, Aborted:
		return true
	default:
		return false
	}
}

// The billing rules, as they appear on receipts.
const (
	// RuleReported bills the usage that the provider reported.
	RuleReported = "reported"
	// RuleEstimated bills an estimate from the delivered content, as the provider reported no usage.
	RuleEstimated = "estimated"
	// RuleNone bills nothing.
	RuleNone = "none"
)

// Usage is the usage event of one finished request. It is final: a request that
// is reported twice has the same Fingerprint both times.
type Usage struct {
	V         int    `json:"v"`
	RequestID string `json:"request_id"`
	// Session is the session that admitted the request, Seq the sequence number of the event in it, from 1.
	Session   int64  `json:"session"`
	Seq       int64  `json:"seq"`
	AccountID string `json:"account_id"`
	KeyID     string `json:"key_id"`
	// ProjectID is the project of the key when the request was admitted; empty if it was in none.
	ProjectID string `json:"project_id,omitempty"`
	// Model is the gateway's name of the model, Format the request format.
	Model    string `json:"model"`
	Format   string `json:"format"`
	Provider string `json:"provider,omitempty"`
	Route    string `json:"route,omitempty"`
	// Credential is the name in the catalog of the credential with which Route was called.
	Credential string `json:"credential,omitempty"`
	// ProviderRequestID is the provider's id of the request, for disputes. Clients never see it.
	ProviderRequestID string `json:"provider_request_id,omitempty"`
	Status            Status `json:"status"`
	HTTPStatus        int    `json:"http_status,omitempty"`
	Stream            bool   `json:"stream,omitempty"`
	// StartedMS and FinishedMS are Unix milliseconds of the proxy's clock. FirstByteMS is the milliseconds from the
	// start to the first byte of the answer.
	StartedMS   int64       `json:"started_ms"`
	FinishedMS  int64       `json:"finished_ms"`
	FirstByteMS int64       `json:"first_byte_ms,omitempty"`
	Usage       price.Usage `json:"usage"`
	// Rule is the billing rule. Estimated means that the proxy estimated Usage.
	Rule      string `json:"rule"`
	Estimated bool   `json:"estimated,omitempty"`
	// Doubt is why the provider's report was not taken as it was, such as "missing"; empty if it was. The data plane's package
	// usagereport has the reasons.
	Doubt string `json:"doubt,omitempty"`
	// PriceVersion is the version of the price sheet that Cost and Reservation were computed with.
	PriceVersion int64 `json:"price_version"`
	// PriceMultiplier is the account's factor on list prices; zero means 1.
	PriceMultiplier price.Multiplier `json:"price_multiplier,omitempty"`
	// Cost is the charge, Reservation the amount that was reserved for it.
	Cost        money.Nano `json:"cost"`
	Reservation money.Nano `json:"reservation"`
	// Limits are the pools of the windows of limits that the request has reserved units of: they are charged, too.
	Limits []int64 `json:"limits,omitempty"`
	// VideoJob is the id of the video job that is billed, if any.
	VideoJob string `json:"video_job,omitempty"`
	// MaxInput, MaxOutput and MaxSeconds are what the request allows in tokens and seconds of video, as far as the proxy
	// knows; zero means unknown. See Implausible.
	MaxInput   int64 `json:"max_input,omitempty"`
	MaxOutput  int64 `json:"max_output,omitempty"`
	MaxSeconds int64 `json:"max_seconds,omitempty"`
	// Attempts are the routes that were tried or skipped, in their order; empty if the first one served the whole request. A stream
	// that broke off has the class of its failure.
	Attempts []Attempt `json:"attempts,omitempty"`
	// Trace is the context of the request's span (W3C traceparent), for that of the settlement; empty if it is not traced. It does
	// not belong to the Fingerprint.
	Trace string `json:"trace,omitempty"`
}

// Attempt is a route that was tried or skipped for a request.
type Attempt struct {
	Route string `json:"route"`
	// Provider is that of the route, Credential the id of the credential that was used and CredentialName its name; all are empty if
	// the route was skipped.
	Provider       string `json:"provider,omitempty"`
	Credential     string `json:"credential,omitempty"`
	CredentialName string `json:"credential_name,omitempty"`
	// Class is the error class of the provider's failure; empty if the route served the request or was skipped.
	Class string `json:"class,omitempty"`
	// Skipped is why the route was not called: one of the constants; empty if it was.
	Skipped string `json:"skipped,omitempty"`
	// MS is how long the provider took to answer, in milliseconds.
	MS int64 `json:"ms,omitempty"`
	// Usage is what a call has used that did not serve the request, as far as the answer shows. It is no part of the event's Usage and
	// of no charge: it is what the operator may have to pay for nothing. Estimated means that the proxy estimated it.
	// ProviderRequestID is the provider's id of this call.
	Usage             price.Usage `json:"usage,omitzero"`
	Estimated         bool        `json:"estimated,omitempty"`
	ProviderRequestID string      `json:"provider_request_id,omitempty"`
}

// Spent reports whether the provider may charge for the call although it did not serve the request.
func (a *Attempt) Spent() bool { return a.Usage != (price.Usage{}) }

// The reasons for which a route is skipped.
const (
	// SkippedMaintenance: its provider is closed.
	SkippedMaintenance = "maintenance"
	// SkippedBreaker: its circuit breaker is open, or another request probes it.
	SkippedBreaker = "breaker_open"
	// SkippedCooldown: the route, or each credential of its provider, has failed lately.
	SkippedCooldown = "cooldown"
	// SkippedNoCredential: its provider has no credential.
	SkippedNoCredential = "no_credential" //nolint:gosec // G101: a reason, not a secret
	// SkippedTurn: its provider limits the rate of calls, and other accounts have their turn.
	SkippedTurn = "rate_limit"
)

// LeaseCharge returns the part of the cost that the proxy charges to its leases before
// the event is settled. It is zero for an event that goes into quarantine: the units
// must not wait for an operator.
func (u *Usage) LeaseCharge() money.Nano {
	if u.Implausible() != "" {
		return 0
	}
	return u.Cost
}

// MaxAttempts bounds Attempts.
const MaxAttempts = 10

// Fingerprint returns a hash over the members that determine the charge. Two
// events of one request with different fingerprints contradict each other. The
// multiplier is left out because Cost includes it. A usage record has all these
// members, so settlement computes the fingerprint of a settled event from its record.
func (u *Usage) Fingerprint() [sha256.Size]byte {
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

// Validate returns all reasons for which the event cannot be settled, joined, or
// nil.
func (u *Usage) Validate() error {
	_, err := u.Check()
	return err
}

// IDs are the identifiers of an event. Project is zero for none.
type IDs struct{ Request, Account, Key, Project ident.UUID }

// Check returns the identifiers of the event, and the result of Validate.
func (u *Usage) Check() (IDs, error) {
	var ids IDs
	var errs []error
	if u.V < 1 || u.V > Version {
		errs = append(errs, fmt.Errorf("event: unknown version %d", u.V))
	}

	parse := func(kind ident.Kind, text string) ident.UUID {
		id, err := kind.Parse(text)
		if err != nil {
			errs = append(errs, err)
		}
		return id
	}
	ids.Request, ids.Account, ids.Key = parse(ident.Request, u.RequestID), parse(ident.Account, u.AccountID), parse(ident.Key, u.KeyID)
	if u.ProjectID != "" {
		ids.Project = parse(ident.Project, u.ProjectID)
	}
	if u.Session <= 0 || u.Seq <= 0 {
		errs = append(errs, fmt.Errorf("event: session %d or sequence number %d is not positive", u.Session, u.Seq))
	}
	if u.Cost < 0 || u.Reservation < 0 {
		errs = append(errs, fmt.Errorf("event: cost %d or reservation %d is negative", u.Cost, u.Reservation))
	}
	if u.Cost > MaxCost || u.Reservation > MaxCost {
		errs = append(errs, fmt.Errorf("event: cost %d or reservation %d is above %d", u.Cost, u.Reservation, MaxCost))
	}
	if err := u.PriceMultiplier.Validate(); err != nil {
		errs = append(errs, err)
	}
	if u.Model == "" {
		errs = append(errs, errors.New("event: model is missing"))
	}
	if !u.Status.Valid() {
		errs = append(errs, fmt.Errorf("event: unknown status %.50q", string(u.Status)))
	}
	errs = append(errs, u.bounds())

	return ids, errors.Join(errs...)
}

// Batch is one message on the usage stream. Its events are not decoded, so that
// an invalid one can be quarantined without losing the others.
type Batch struct {
	V       int               `json:"v"`
	BatchID string            `json:"batch_id"`
	Session int64             `json:"session"`
	Events  []json.RawMessage `json:"events"`
}

// Settled is the message to a session about its settled events: those up to the
// sequence number Watermark and those in Beyond.
type Settled struct {
	V         int   `json:"v"`
	Session   int64 `json:"session"`
	Watermark int64 `json:"watermark"`
	// Beyond holds ranges of sequence numbers above Watermark, both ends included.
	Beyond [][2]int64 `json:"beyond,omitempty"`
}
