// Package webhook sends events about accounts, keys and operations to other systems: the event
// types, the alarms that raise them, the endpoints that subscribe to them, and their delivery.
//
// An event is written in the transaction of the change that causes it, so no event is lost, and
// none reports a change that was rolled back. Any replica then creates the deliveries to the
// endpoints and attempts them: at least once, in no guaranteed order, always with the same event id.
//
// Invariants: an alarm of a pool is raised once until it is cleared; the body of an event never
// changes once its deliveries exist; the only stored secrets are those of endpoints, encrypted,
// and each is shown only when it is created.
package webhook

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/shared/ident"
)

// The errors of this package. Invalid input is reported as validation.Errors.
var (
	ErrNotFound         = errors.New("webhook: no such endpoint")
	ErrDeliveryNotFound = errors.New("webhook: no such delivery")
)

// Type is the type of an event.
type Type string

// The event types. Those that begin with "operator." are meant for the operator.
const (
	// LowBalance: the balance of an account is below its threshold.
	LowBalance Type = "account.low_balance"
	// BalanceExhausted: the balance is spent, or was too low for a request that was just refused.
	BalanceExhausted Type = "account.balance_exhausted"
	// Credited: a payment or a correction has raised the balance of an account.
	Credited Type = "account.credited"
	// Debited: a refund or a correction has lowered the balance of an account.
	Debited Type = "account.debited"
	// LimitNear: the configured share of a key limit is spent.
	LimitNear Type = "key.spend_limit_near"
	// LimitReached: a key limit is spent, or its rest was too low for a request that was just refused.
	LimitReached Type = "key.spend_limit_reached"
	// Created: a key was issued. Keys that were imported, which clients had before, cause none.
	Created Type = "key.created"
	// Paused: a key does not work until it is resumed.
	Paused Type = "key.paused"
	// Resumed: a key that was paused works again.
	Resumed Type = "key.resumed"
	// ExpiresSoon: a key expires in seven days, or in one.
	ExpiresSoon Type = "key.expires_soon"
	// Expired: a key does not work any more, unless its expiry is moved.
	Expired Type = "key.expired"
	// LimitShareSpent: a share of a window of a limit is spent.
	LimitShareSpent Type = "limit.share_spent"
	// Rotated: a key has a new secret.
	Rotated Type = "key.rotated"
	// Revoked: a key was revoked.
	Revoked Type = "key.revoked"
	// Quarantined: usage events that cannot be settled were quarantined.
	Quarantined Type = "operator.usage_quarantined"
	// CheckFailed: the ledger check found a difference.
	CheckFailed Type = "operator.ledger_check_failed"
	// CredentialRefused: a provider refuses a credential.
	CredentialRefused Type = "operator.credential_refused"
	// CredentialAccepted: the provider accepts the credential again, or no proxy reports it as refused any more.
	CredentialAccepted Type = "operator.credential_accepted"
	// ClientGoneUnusual: the clients of an account leave an unusual share of its answers before their end.
	ClientGoneUnusual Type = "operator.client_gone_unusual"
	// Test: an operator requested a test event.
	Test Type = "webhook.test"
)

// IsForOperator reports whether events of the type are meant for the operator.
func (t Type) IsForOperator() bool { return strings.HasPrefix(string(t), "operator.") }

// Types are all types that an endpoint can subscribe to.
var Types = []Type{
	LowBalance,
	BalanceExhausted,
	Credited,
	Debited,
	LimitNear,
	LimitReached,
	Created,
	Paused,
	Resumed,
	ExpiresSoon,
	Expired,
	LimitShareSpent,
	Rotated,
	Revoked,
	Quarantined,
	CheckFailed,
	CredentialRefused,
	CredentialAccepted,
	ClientGoneUnusual,
}

const (
	maxURLLen         = 2000
	maxDescriptionLen = 500
	// maxOverlap bounds how long events are also signed with a replaced secret.
	maxOverlap = 30 * 24 * time.Hour
)

// ID identifies an endpoint. Its text form is "whe_…".
type ID ident.UUID

// ParseID parses the text form; it returns ErrNotFound for any other text.
func ParseID(text string) (ID, error) {
	u, err := ident.Endpoint.Parse(text)
	if err != nil {
		return ID{}, ErrNotFound
	}
	return ID(u), nil
}

// String returns the text form.
func (id ID) String() string { return ident.Endpoint.Format(ident.UUID(id)) }

// MarshalText returns the text form.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// context is the encryption context of the endpoint's secrets.
func (id ID) context() string { return SecretContext(ident.UUID(id)) }

// SecretContext returns the encryption context of an endpoint's secrets.
func SecretContext(endpoint ident.UUID) string { return "webhook:" + ident.Endpoint.Format(endpoint) }

// Endpoint is a subscriber. The audit log keeps its JSON form.
type Endpoint struct {
	ID          ID     `json:"id"`
	URL         string `json:"url"`
	Description string `json:"description,omitempty"`
	// EventTypes are the subscribed types; none means all.
	EventTypes []Type `json:"event_types,omitempty"`
	Enabled    bool   `json:"enabled"`
	// DisabledReason is why the control plane disabled the endpoint; empty if it did not.
	DisabledReason string `json:"disabled_reason,omitempty"`
	// FailingSince is the time of the first failure since the last success; nil if the last attempt succeeded.
	FailingSince *time.Time `json:"-"`
	CreatedAt    time.Time  `json:"created_at"`
	UpdatedAt    time.Time  `json:"updated_at"`
}

// ResetsFailures reports whether a change from the endpoint before resets its failure count: the
// endpoint was enabled, or its URL was changed.
func (e *Endpoint) ResetsFailures(before *Endpoint) bool {
	return e.Enabled && (!before.Enabled || e.URL != before.URL)
}

// Tag returns the entity tag of the endpoint's settings.
func (e *Endpoint) Tag() (etag.Tag, error) { return etag.OfContent(e) }

// Secret is one encrypted secret of an endpoint.
type Secret struct {
	ID     ident.UUID
	Sealed vault.Sealed
}

// Patch is a change of an endpoint; nil members stay unchanged.
type Patch struct {
	// Match is the If-Match condition of the change.
	Match       etag.Match
	URL         *string
	Description *string
	// EventTypes replaces the list; an empty list subscribes to all types.
	EventTypes *[]Type
	Enabled    *bool
}

func (p *Patch) apply(e Endpoint) Endpoint {
	if p.URL != nil {
		e.URL = *p.URL
	}
	if p.Description != nil {
		e.Description = *p.Description
	}
	if p.EventTypes != nil {
		e.EventTypes = *p.EventTypes
	}
	if p.Enabled != nil {
		if e.Enabled = *p.Enabled; e.Enabled {
			e.DisabledReason, e.FailingSince = "", nil
		}
	}
	return e
}

func (e *Endpoint) validate(insecure bool) error {
	var invalid validation.Errors
	if reason := urlProblem(e.URL, insecure); reason != "" {
		invalid.Add("url", "%s", reason)
	}
	if utf8.RuneCountInString(e.Description) > maxDescriptionLen {
		invalid.Add("description", "is longer than %d characters", maxDescriptionLen)
	}
	for i, t := range e.EventTypes {
		if !slices.Contains(Types, t) {
			invalid.Add(validation.Index("event_types", i), "is not an event type")
		} else if slices.Contains(e.EventTypes[:i], t) {
			invalid.Add(validation.Index("event_types", i), "is a duplicate")
		}
	}
	return invalid.Err()
}

// urlProblem returns the reason why the URL of an endpoint is invalid, or "". The sender checks
// the address when it dials, since only then the address is known.
func urlProblem(text string, insecure bool) string {
	u, err := url.Parse(text)
	switch {
	case len(text) > maxURLLen:
		return fmt.Sprintf("is longer than %d characters", maxURLLen)
	case err != nil || u.Hostname() == "" || u.Opaque != "":
		return "must be an absolute URL"
	case u.User != nil:
		return "must not contain a user or password"
	case u.Fragment != "":
		return "must not have a fragment"
	case u.Scheme != "https" && (u.Scheme != "http" || !insecure):
		return "must begin with https://"
	}
	return ""
}
