// Package spendlimit manages the limits of accounts, projects and keys: how much their requests may spend in each window.
//
// Invariants: at most limit.MaxPerKey limits apply to a request, the spend limit of the key being one of them; the window of a limit
// never changes, so that each number names one window for good; a limit that was removed keeps its figures.
package spendlimit

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/project"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/ident"
	"modelgateway/shared/limit"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// The errors of this package. Invalid input is reported as validation.Errors.
var (
	ErrNotFound = errors.New("spendlimit: no such limit")
	// ErrTooMany is returned if more limits would apply to a request than it may have needs.
	ErrTooMany = errors.New("spendlimit: too many limits")
	// ErrNoWindow is returned by Reset if no window of the limit is open.
	ErrNoWindow = errors.New("spendlimit: no window of the limit is open")
)

const (
	maxNameLen  = 200
	maxModelLen = 200
	maxModels   = 100
	// maxAmount keeps the sums of pools far below the range of an int64.
	maxAmount = 1_000_000_000 * money.Unit
)

// MaxLimits is how many limits an account, a project and one of its keys may have together, without the key's own spend limit.
const MaxLimits = limit.MaxPerKey - 1

// ID identifies a limit. Its text form is "lim_…".
type ID ident.UUID

// ParseID parses the text form. It returns ErrNotFound for any other text.
func ParseID(text string) (ID, error) {
	u, err := ident.Limit.Parse(text)
	if err != nil {
		return ID{}, ErrNotFound
	}
	return ID(u), nil
}

// String returns the text form.
func (id ID) String() string { return ident.Limit.Format(ident.UUID(id)) }

// MarshalText returns the text form.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// Limit is a limit of an account, a project or a key. The audit log keeps its JSON form.
type Limit struct {
	ID        ID         `json:"id"`
	AccountID account.ID `json:"account_id"`
	// ProjectID and KeyID are nil for a limit of the account. At most one of them is set.
	ProjectID *project.ID  `json:"project_id,omitempty"`
	KeyID     *key.ID      `json:"key_id,omitempty"`
	Name      string       `json:"name,omitempty"`
	Amount    money.Nano   `json:"amount"`
	Window    limit.Window `json:"window"`
	// RaisedTo is the amount that holds instead of Amount until RaisedUntil, by the clock of Postgres; nil if it was never raised.
	RaisedTo    *money.Nano `json:"raised_to,omitempty"`
	RaisedUntil *time.Time  `json:"raised_until,omitempty"`
	// Models has the ids of the models that the limit applies to, or prefixes that end with "*"; empty for all.
	Models    []string   `json:"models,omitempty"`
	RemovedAt *time.Time `json:"removed_at,omitempty"`
	Rev       int64      `json:"rev"`
	CreatedAt time.Time  `json:"created_at"`
	UpdatedAt time.Time  `json:"updated_at"`
	// Number is the number of the limit in the ids of its pools.
	Number int64 `json:"-"`
	// Current is the window that contains this moment; nil if no request has needed it yet.
	Current *Window `json:"-"`
}

// Tag returns the entity tag.
func (l *Limit) Tag() etag.Tag { return etag.OfRev(l.Rev) }

// Window is a window of a limit with its figures.
type Window struct {
	Pool     wire.PoolID
	StartsAt time.Time
	// EndsAt is nil if the window does not end.
	EndsAt *time.Time
	// Spent is what requests of the window have cost since it was last reset. Reserved is what proxies hold for requests, Left the
	// rest of Amount.
	Amount, Spent, Reserved, Left money.Nano
}

// New describes a limit to create.
type New struct {
	ID        ident.UUID
	AccountID account.ID
	ProjectID *project.ID
	KeyID     *key.ID
	Name      string
	Amount    *money.Nano
	Window    limit.Window
	Models    []string
}

// Validate returns all problems as validation.Errors.
func (n *New) Validate() error {
	var invalid validation.Errors
	if n.ProjectID != nil && n.KeyID != nil {
		invalid.Add("project_id", "must be absent if there is a key_id")
	}
	checkName(n.Name, &invalid)
	if n.Amount == nil {
		invalid.Add("amount", "is required")
	} else {
		checkAmount(*n.Amount, &invalid)
	}
	checkModels(n.Models, &invalid)
	for _, f := range n.Window.Faults() {
		invalid.Add("window."+f.Member, "%s", f.Text)
	}
	return invalid.Err()
}

func checkName(name string, invalid *validation.Errors) {
	if utf8.RuneCountInString(name) > maxNameLen {
		invalid.Add("name", "is longer than %d characters", maxNameLen)
	}
}

func checkAmount(amount money.Nano, invalid *validation.Errors) {
	if amount < 0 || amount > maxAmount {
		invalid.Add("amount", "must be between 0 and %s", maxAmount)
	}
}

func checkModels(models []string, invalid *validation.Errors) {
	if len(models) > maxModels {
		invalid.Add("models", "has more than %d entries", maxModels)
	}
	for i, m := range models {
		switch {
		case m == "" || len(m) > maxModelLen:
			invalid.Add(validation.Index("models", i), "must have 1 to %d characters", maxModelLen)
		case strings.Contains(strings.TrimSuffix(m, "*"), "*"):
			invalid.Add(validation.Index("models", i), "may have a * only at its end")
		}
	}
}

// Patch is a change of a limit; nil members stay as they are.
type Patch struct {
	Match  etag.Match
	Name   *string
	Amount *money.Nano
	Models *[]string
	// SetRaise raises the limit to RaisedTo until RaisedUntil, or ends a raise if both are nil.
	SetRaise    bool
	RaisedTo    *money.Nano
	RaisedUntil *time.Time
}

// Validate returns all problems as validation.Errors.
func (p *Patch) Validate() error {
	var invalid validation.Errors
	if p.Name != nil {
		checkName(*p.Name, &invalid)
	}
	if p.Amount != nil {
		checkAmount(*p.Amount, &invalid)
	}
	if p.Models != nil {
		checkModels(*p.Models, &invalid)
	}
	if p.SetRaise && (p.RaisedTo == nil) != (p.RaisedUntil == nil) {
		invalid.Add("raised_until", "is required with raised_to, and that with it")
	}
	if p.RaisedTo != nil && *p.RaisedTo > maxAmount {
		invalid.Add("raised_to", "must be at most %s", maxAmount)
	}
	if p.RaisedUntil != nil && !p.RaisedUntil.After(time.Now()) {
		invalid.Add("raised_until", "must be in the future")
	}
	return invalid.Err()
}

// Apply changes a limit.
func (p *Patch) Apply(l Limit) (Limit, error) {
	if err := p.Match.Check(l.Tag()); err != nil {
		return Limit{}, fmt.Errorf("spendlimit: %w", err)
	}
	if p.Name != nil {
		l.Name = *p.Name
	}
	if p.Amount != nil {
		l.Amount = *p.Amount
	}
	if p.Models != nil {
		l.Models = *p.Models
	}
	if p.SetRaise {
		l.RaisedTo, l.RaisedUntil = p.RaisedTo, p.RaisedUntil
		if p.RaisedUntil != nil {
			l.RaisedUntil = new(p.RaisedUntil.UTC().Truncate(time.Millisecond))
		}
	}
	if p.RaisedTo != nil && *p.RaisedTo <= l.Amount {
		var invalid validation.Errors
		invalid.Add("raised_to", "must be above the amount")
		return Limit{}, invalid.Err()
	}
	return l, nil
}
