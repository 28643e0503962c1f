// Package webhook owns what the gateway tells other systems by itself: which
// events there are, when an account or key raises one, the endpoints that want
// them, and their delivery.
//
// An event is written in the transaction of its cause, by the store of what
// changed, so that none is lost and none is without cause. Laying it out for
// the endpoints, and delivering it, come after: at least once, from Postgres,
// by any replica, under an id that stays the same. No order is promised.
//
// Invariants: an alarm of a pool is raised once until it has fallen back; the
// body of an event never changes once it is laid out; no secret but the
// endpoint's own, sealed, is kept, and it is shown only when it is made.
package webhook

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"
	"unicode/utf8"

	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/fault"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/shared/ident"
)

// The errors of this package, beside fault.List for a refused input.
var (
	ErrNotFound         = errors.New("webhook: no such endpoint")
	ErrDeliveryNotFound = errors.New("webhook: no such delivery")
)

// Type is what an event is about.
type Type string

// The types of events.
const (
	// LowBalance: an account has less than its threshold.
	LowBalance Type = "account.low_balance"
	// BalanceExhausted: nothing is left on the balance, or too little for a request that was just refused for it.
	BalanceExhausted Type = "account.balance_exhausted"
	// Credited: money was booked on an account.
	Credited Type = "account.credited"
	// LimitNear: a share of a key's spend limit is spent.
	LimitNear Type = "key.spend_limit_near"
	// LimitReached: a key's spend limit is spent, or too little is left of it for a request that was just refused for it.
	LimitReached Type = "key.spend_limit_reached"
	// Revoked: a key was revoked.
	Revoked Type = "key.revoked"
	// Quarantined: usage that cannot be settled was put aside, for the operator.
	Quarantined Type = "operator.usage_quarantined"
	// CheckFailed: the ledger's self-check found a difference, for the operator.
	CheckFailed Type = "operator.ledger_check_failed"
	// CredentialRefused: a provider refuses a credential, for the operator.
	CredentialRefused Type = "operator.credential_refused"
	// CredentialAccepted: it takes it again, or nobody finds it refused any more.
	CredentialAccepted Type = "operator.credential_accepted"
	// Test: somebody asked for it.
	Test Type = "webhook.test"
)

// Types are all that an endpoint can ask for.
var Types = []Type{LowBalance, BalanceExhausted, Credited, LimitNear, LimitReached, Revoked, Quarantined, CheckFailed, CredentialRefused, CredentialAccepted}

const (
	maxURLLen         = 2000
	maxDescriptionLen = 500
	// maxOverlap bounds how long a replaced secret goes on signing.
	maxOverlap = 30 * 24 * time.Hour
)

// ID identifies an endpoint. Its text form is "whe_…".
type ID ident.UUID

// ParseID reads the text form; any text that is none gives ErrNotFound.
func ParseID(text string) (ID, error) {
	u, err := ident.Endpoint.Parse(text)
	if err != nil {
		return ID{}, ErrNotFound
	}
	return ID(u), nil
}

// String is the text form.
func (id ID) String() string { return ident.Endpoint.Format(ident.UUID(id)) }

// MarshalText writes the text form.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// context is what an endpoint's secrets are sealed for.
func (id ID) context() string { return SecretContext(ident.UUID(id)) }

// SecretContext is what the secrets of an endpoint are sealed for.
func SecretContext(endpoint ident.UUID) string { return "webhook:" + ident.Endpoint.Format(endpoint) }

// Endpoint is a receiver of events. Its JSON form is what the audit log keeps.
type Endpoint struct {
	ID          ID     `json:"id"`
	URL         string `json:"url"`
	Description string `json:"description,omitempty"`
	// EventTypes are those that it wants; none means all.
	EventTypes []Type `json:"event_types,omitempty"`
	Enabled    bool   `json:"enabled"`
	// DisabledReason says why the control plane turned it off; empty if it did not.
	DisabledReason string `json:"disabled_reason,omitempty"`
	// FailingSince is the first failure since the last success; nil while it answers.
	FailingSince *time.Time `json:"-"`
	CreatedAt    time.Time  `json:"created_at"`
	UpdatedAt    time.Time  `json:"updated_at"`
}

// Tag is the entity tag of the endpoint's settings.
func (e *Endpoint) Tag() (etag.Tag, error) { return etag.OfContent(e) }

// Secret is one secret of an endpoint as it rests.
type Secret struct {
	ID     ident.UUID
	Sealed vault.Sealed
}

// Patch is a change of an endpoint; nil members stay as they are.
type Patch struct {
	// Match is the state that the change is meant for.
	Match       etag.Match
	URL         *string
	Description *string
	// EventTypes replaces the list; pointing to an empty one asks for all.
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
	var faults fault.List
	if reason := refuseURL(e.URL, insecure); reason != "" {
		faults.Add("url", "%s", reason)
	}
	if utf8.RuneCountInString(e.Description) > maxDescriptionLen {
		faults.Add("description", "is longer than %d characters", maxDescriptionLen)
	}
	for i, t := range e.EventTypes {
		if !slices.Contains(Types, t) {
			faults.Add(fault.Index("event_types", i), "is not a type of event")
		} else if slices.Contains(e.EventTypes[:i], t) {
			faults.Add(fault.Index("event_types", i), "stands there twice")
		}
	}
	return faults.Err()
}

// refuseURL says what is wrong with the address of an endpoint. Whether the
// host may be spoken to is decided when it is dialled, since only then its
// address is known.
func refuseURL(text string, insecure bool) string {
	u, err := url.Parse(text)
	switch {
	case len(text) > maxURLLen:
		return fmt.Sprintf("is longer than %d characters", maxURLLen)
	case err != nil || u.Hostname() == "" || u.Opaque != "":
		return "must be an absolute URL"
	case u.User != nil:
		return "must hold no user or password"
	case u.Fragment != "":
		return "must have no fragment"
	case u.Scheme != "https" && (u.Scheme != "http" || !insecure):
		return "must begin with https://"
	}
	return ""
}
