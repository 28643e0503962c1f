// Package account owns the customers' accounts: name, status, how many
// requests may run at once. Their money is in package ledger, their keys in
// package key.
//
// Invariant: an account has exactly one balance pool and one pool of slots,
// made with it; the slots' total is MaxConcurrentRequests.
package account

import (
	"errors"
	"fmt"
	"maps"
	"time"
	"unicode/utf8"

	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

// The errors of this package, beside validation.Errors for a refused input.
var (
	ErrNotFound        = errors.New("account: no such account")
	ErrExternalIDTaken = errors.New("account: another account has this external id")
)

// DefaultMaxConcurrentRequests is what a new account gets that asks for
// nothing else.
const DefaultMaxConcurrentRequests = 100

const (
	maxNameLen            = 200
	maxExternalIDLen      = 200
	maxConcurrentRequests = 1_000_000
)

// ID identifies an account. Its text form is "acc_…".
type ID ident.UUID

// ParseID reads the text form; any text that is none gives ErrNotFound, since
// it names no account.
func ParseID(text string) (ID, error) {
	u, err := ident.Account.Parse(text)
	if err != nil {
		return ID{}, ErrNotFound
	}
	return ID(u), nil
}

// String is the text form.
func (id ID) String() string { return ident.Account.Format(ident.UUID(id)) }

// MarshalText writes the text form.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads the text form.
func (id *ID) UnmarshalText(text []byte) error {
	u, err := ident.Account.Parse(string(text))
	if err != nil {
		return fmt.Errorf("%q is not the id of an account", text)
	}
	*id = ID(u)
	return nil
}

// Status says whether an account may use the gateway.
type Status string

// The statuses. Every key of a suspended account is refused.
const (
	Active    Status = "active"
	Suspended Status = "suspended"
)

// Account is a customer. Its JSON form is what the audit log keeps.
type Account struct {
	ID ID `json:"id"`
	// ExternalID is the cabinet's own id of the account, unique; empty if it has none.
	ExternalID            string `json:"external_id,omitempty"`
	Name                  string `json:"name"`
	Status                Status `json:"status"`
	MaxConcurrentRequests int    `json:"max_concurrent_requests"`
	// PriceMultiplier is what the account pays of list prices, ModelMultipliers what it pays for single models instead.
	PriceMultiplier  price.Multiplier            `json:"price_multiplier"`
	ModelMultipliers map[string]price.Multiplier `json:"model_multipliers,omitempty"`
	Rev              int64                       `json:"rev"`
	CreatedAt        time.Time                   `json:"created_at"`
	UpdatedAt        time.Time                   `json:"updated_at"`
	Balance          Balance                     `json:"-"`
}

// Balance is an account's money.
type Balance struct {
	// Pool is where it is kept.
	Pool wire.PoolID
	// Balance is all credits minus all settled charges.
	Balance money.Nano
	// Reserved is what running requests hold. Where the proxies were not asked, or not all of them have answered, it is
	// all that is handed out to them: what they hold idle, and charges that are not settled yet, included.
	Reserved money.Nano
	// Available is what is not reserved.
	Available money.Nano
}

// New is an account to be made.
type New struct {
	// ID is the account's id-to-be: making an account twice under one id makes one account.
	ID         ident.UUID
	ExternalID string
	Name       string
	// MaxConcurrentRequests is nil for the default; zero lets no request run.
	MaxConcurrentRequests *int
	// PriceMultiplier is zero for the list price.
	PriceMultiplier  price.Multiplier
	ModelMultipliers map[string]price.Multiplier
}

// Tag is the entity tag of the account's settings; its money has none.
func (a *Account) Tag() etag.Tag { return etag.OfRev(a.Rev) }

// Patch is a change of an account; nil members stay as they are.
type Patch struct {
	// Match is the state that the change is meant for.
	Match                 etag.Match
	Name                  *string
	Status                *Status
	MaxConcurrentRequests *int
	PriceMultiplier       *price.Multiplier
	// ModelMultipliers replaces all of them.
	ModelMultipliers *map[string]price.Multiplier
}

// Validate tells everything that is wrong with the input.
func (n *New) Validate() error {
	var invalid validation.Errors
	checkName(&invalid, n.Name)
	if utf8.RuneCountInString(n.ExternalID) > maxExternalIDLen {
		invalid.Add("external_id", "is longer than %d characters", maxExternalIDLen)
	}
	checkSlots(&invalid, n.MaxConcurrentRequests)
	checkMultipliers(&invalid, n.PriceMultiplier.Or(price.One), n.ModelMultipliers)
	return invalid.Err()
}

// Validate tells everything that is wrong with the input.
func (p *Patch) Validate() error {
	var invalid validation.Errors
	if p.Name != nil {
		checkName(&invalid, *p.Name)
	}
	if p.Status != nil && *p.Status != Active && *p.Status != Suspended {
		invalid.Add("status", "must be %q or %q", Active, Suspended)
	}
	checkSlots(&invalid, p.MaxConcurrentRequests)
	own := price.One
	if p.PriceMultiplier != nil {
		own = *p.PriceMultiplier
	}
	checkMultipliers(&invalid, own, deref(p.ModelMultipliers))
	return invalid.Err()
}

func checkName(invalid *validation.Errors, name string) {
	if name == "" || utf8.RuneCountInString(name) > maxNameLen {
		invalid.Add("name", "must have 1 to %d characters", maxNameLen)
	}
}

func checkSlots(invalid *validation.Errors, slots *int) {
	if slots != nil && (*slots < 0 || *slots > maxConcurrentRequests) {
		invalid.Add("max_concurrent_requests", "must be between 0 and %d", maxConcurrentRequests)
	}
}

// maxMultipliers bounds the models with a multiplier of their own: every proxy
// keeps them with each key of the account.
const maxMultipliers = 1000

func checkMultipliers(invalid *validation.Errors, own price.Multiplier, models map[string]price.Multiplier) {
	check := func(path string, m price.Multiplier) {
		if m <= 0 || m > price.MaxMultiplier {
			invalid.Add(path, "must be a decimal above 0 and at most %s", price.MaxMultiplier)
		}
	}
	check("price_multiplier", own)
	if len(models) > maxMultipliers {
		invalid.Add("model_multipliers", "has more than %d models", maxMultipliers)
	}
	for model, m := range models {
		if model == "" || utf8.RuneCountInString(model) > maxNameLen {
			invalid.Add("model_multipliers", "names of models must have 1 to %d characters", maxNameLen)
		}
		check("model_multipliers["+model+"]", m)
	}
}

func deref[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

// apply returns the account after the patch and whether anything changed that
// proxies act by.
func (p *Patch) apply(a Account) (after Account, announced bool) {
	after = a
	if p.Name != nil {
		after.Name = *p.Name
	}
	if p.Status != nil {
		after.Status = *p.Status
	}
	if p.MaxConcurrentRequests != nil {
		after.MaxConcurrentRequests = *p.MaxConcurrentRequests
	}
	if p.PriceMultiplier != nil {
		after.PriceMultiplier = *p.PriceMultiplier
	}
	if p.ModelMultipliers != nil {
		after.ModelMultipliers = *p.ModelMultipliers
	}
	return after, after.Status != a.Status || after.MaxConcurrentRequests != a.MaxConcurrentRequests ||
		after.PriceMultiplier != a.PriceMultiplier || !maps.Equal(after.ModelMultipliers, a.ModelMultipliers)
}
