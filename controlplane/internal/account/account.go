// Package account manages customer accounts: name, status, price multipliers and the limits of
// concurrent requests and of open video jobs. Their money is in package ledger, their keys in package key.
//
// A change of what requests may use, such as fewer slots, another multiplier or a suspension, is stored first and announced then:
// proxies return their idle units and get new ones under the new rule. A change of the name concerns no proxy.
//
// Invariant: an account has exactly one balance pool and one slot pool, created with it; the total
// of the slot pool is MaxConcurrentRequests.
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

// The errors of this package. Invalid input is reported as validation.Errors.
var (
	ErrNotFound        = errors.New("account: no such account")
	ErrExternalIDTaken = errors.New("account: another account has this external id")
)

// DefaultMaxConcurrentRequests is the limit of a new account if New has none.
const DefaultMaxConcurrentRequests = 100

const (
	maxNameLen       = 200
	maxExternalIDLen = 200
	// maxLimit is the highest limit of concurrent requests and of open video jobs.
	maxLimit = 1_000_000
)

// ID identifies an account. Its text form is "acc_…".
type ID ident.UUID

// ParseID parses the text form. It returns ErrNotFound for any other text.
func ParseID(text string) (ID, error) {
	u, err := ident.Account.Parse(text)
	if err != nil {
		return ID{}, ErrNotFound
	}
	return ID(u), nil
}

// String returns the text form.
func (id ID) String() string { return ident.Account.Format(ident.UUID(id)) }

// MarshalText returns the text form.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText parses the text form.
func (id *ID) UnmarshalText(text []byte) error {
	u, err := ident.Account.Parse(string(text))
	if err != nil {
		return fmt.Errorf("%q is not the id of an account", text)
	}
	*id = ID(u)
	return nil
}

// Status reports whether an account may use the gateway.
type Status string

// The statuses. Requests with keys of a suspended account are refused.
const (
	Active    Status = "active"
	Suspended Status = "suspended"
)

// Account is a customer. The audit log keeps its JSON form.
type Account struct {
	ID ID `json:"id"`
	// ExternalID is the id of the account in the operator's own system, unique; empty if it has none.
	ExternalID            string `json:"external_id,omitempty"`
	Name                  string `json:"name"`
	Status                Status `json:"status"`
	MaxConcurrentRequests int    `json:"max_concurrent_requests"`
	// MaxOpenVideoJobs is how many video jobs may be open at a time; nil for any number.
	MaxOpenVideoJobs *int `json:"max_open_video_jobs"`
	// PriceMultiplier applies to all models that are not in ModelMultipliers.
	PriceMultiplier  price.Multiplier            `json:"price_multiplier"`
	ModelMultipliers map[string]price.Multiplier `json:"model_multipliers,omitempty"`
	// IncludeCost makes all answers say what they cost, as the header x-include-cost does for one.
	IncludeCost bool `json:"include_cost,omitempty"`
	// Metadata are pairs of texts of the operator, which the gateway only keeps.
	Metadata  map[string]string `json:"metadata,omitempty"`
	Rev       int64             `json:"rev"`
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
	Balance   Balance           `json:"-"`
	Figures   Figures           `json:"-"`
}

// Figures say what an account spends.
type Figures struct {
	// CostToday and Cost7d are the charges of requests that began today, and in the last seven days of UTC with today.
	CostToday money.Nano
	Cost7d    money.Nano
	// HoursLeft is how many whole hours the balance lasts at the rate of the seven days, or of yesterday and today,
	// whichever is higher; nil if nothing was charged.
	HoursLeft *int64
}

// Balance is the money of an account.
type Balance struct {
	// Pool is the balance pool.
	Pool wire.PoolID
	// Balance is the sum of all credits, refunds and corrections less all charges.
	Balance money.Nano
	// Reserved is the sum of the reservations of running requests. If the proxies were not asked, or one of them did
	// not answer, it is the outstanding amount of all leases, including idle units and unsettled charges.
	Reserved money.Nano
	// Available is Balance less Reserved.
	Available money.Nano
}

// New is the input of Service.Create.
type New struct {
	// ID is the id of the new account. Creating the same id twice creates one account.
	ID         ident.UUID
	ExternalID string
	Name       string
	// MaxConcurrentRequests is nil for the default; zero admits no request.
	MaxConcurrentRequests *int
	// MaxOpenVideoJobs is nil for any number; zero admits no video job.
	MaxOpenVideoJobs *int
	// PriceMultiplier is zero for list prices.
	PriceMultiplier  price.Multiplier
	ModelMultipliers map[string]price.Multiplier
	IncludeCost      bool
	Metadata         map[string]string
}

// Tag returns the entity tag of the account's settings. Its balance is not part of it.
func (a *Account) Tag() etag.Tag { return etag.OfRev(a.Rev) }

// Patch is a change of an account; nil members stay unchanged.
type Patch struct {
	// Match is the If-Match condition of the change.
	Match                 etag.Match
	Name                  *string
	Status                *Status
	MaxConcurrentRequests *int
	// SetVideoJobs replaces the limit of open video jobs by MaxOpenVideoJobs; nil removes it. Jobs that are open stay so.
	SetVideoJobs     bool
	MaxOpenVideoJobs *int
	PriceMultiplier  *price.Multiplier
	// ModelMultipliers replaces the whole map.
	ModelMultipliers *map[string]price.Multiplier
	IncludeCost      *bool
	// Metadata replaces the whole map.
	Metadata *map[string]string
}

// Validate reports all invalid fields as validation.Errors.
func (n *New) Validate() error {
	var invalid validation.Errors
	checkName(&invalid, n.Name)
	if utf8.RuneCountInString(n.ExternalID) > maxExternalIDLen {
		invalid.Add("external_id", "is longer than %d characters", maxExternalIDLen)
	}
	checkLimit(&invalid, "max_concurrent_requests", n.MaxConcurrentRequests)
	checkLimit(&invalid, "max_open_video_jobs", n.MaxOpenVideoJobs)
	checkMultipliers(&invalid, n.PriceMultiplier.Or(price.One), n.ModelMultipliers)
	CheckMetadata("metadata", n.Metadata, &invalid)
	return invalid.Err()
}

// Validate reports all invalid fields as validation.Errors.
func (p *Patch) Validate() error {
	var invalid validation.Errors
	if p.Name != nil {
		checkName(&invalid, *p.Name)
	}
	if p.Status != nil && *p.Status != Active && *p.Status != Suspended {
		invalid.Add("status", "must be %q or %q", Active, Suspended)
	}

	checkLimit(&invalid, "max_concurrent_requests", p.MaxConcurrentRequests)
	checkLimit(&invalid, "max_open_video_jobs", p.MaxOpenVideoJobs)
	own := price.One
	if p.PriceMultiplier != nil {
		own = *p.PriceMultiplier
	}

	checkMultipliers(&invalid, own, deref(p.ModelMultipliers))
	CheckMetadata("metadata", deref(p.Metadata), &invalid)
	return invalid.Err()
}

func checkName(invalid *validation.Errors, name string) {
	if name == "" || utf8.RuneCountInString(name) > maxNameLen {
		invalid.Add("name", "must have 1 to %d characters", maxNameLen)
	}
}

func checkLimit(invalid *validation.Errors, field string, limit *int) {
	if limit != nil && (*limit < 0 || *limit > maxLimit) {
		invalid.Add(field, "must be between 0 and %d", maxLimit)
	}
}

// maxMultipliers bounds ModelMultipliers, which every proxy caches with each key of the account.
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

// The bounds of metadata, so that a page of accounts stays small.
const (
	maxMetadata         = 50
	maxMetadataNameLen  = 40
	maxMetadataValueLen = 500
)

// CheckMetadata adds what is invalid in metadata at a path.
func CheckMetadata(path string, metadata map[string]string, invalid *validation.Errors) {
	if len(metadata) > maxMetadata {
		invalid.Add(path, "has more than %d members", maxMetadata)
	}
	for name, value := range metadata {
		if name == "" || utf8.RuneCountInString(name) > maxMetadataNameLen {
			invalid.Add(path, "names must have 1 to %d characters", maxMetadataNameLen)
		}
		if utf8.RuneCountInString(value) > maxMetadataValueLen {
			invalid.Add(path+"["+name+"]", "is longer than %d characters", maxMetadataValueLen)
		}
	}
}

func deref[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

// apply returns the account after the patch, and whether proxies have to apply the change.
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
	if p.SetVideoJobs {
		after.MaxOpenVideoJobs = p.MaxOpenVideoJobs
	}
	if p.PriceMultiplier != nil {
		after.PriceMultiplier = *p.PriceMultiplier
	}
	if p.ModelMultipliers != nil {
		after.ModelMultipliers = *p.ModelMultipliers
	}
	if p.IncludeCost != nil {
		after.IncludeCost = *p.IncludeCost
	}
	if p.Metadata != nil {
		after.Metadata = *p.Metadata
	}

	return after, after.Status != a.Status || after.MaxConcurrentRequests != a.MaxConcurrentRequests ||
		after.IncludeCost != a.IncludeCost || after.PriceMultiplier != a.PriceMultiplier ||
		!maps.Equal(after.ModelMultipliers, a.ModelMultipliers)
}
