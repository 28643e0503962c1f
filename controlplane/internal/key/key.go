// Package key owns API keys: issuing, showing, limiting and revoking them.
//
// Invariants: the text of a key is never stored but sealed, and never appears
// in a log, an error or an audit entry; a revoked key stays revoked; every key
// has exactly one limit pool, whose total is the spend limit, or which is
// unlimited.
package key

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

// The errors of this package, beside validation.Errors for a refused input.
var (
	ErrNotFound        = errors.New("key: no such key")
	ErrExternalIDTaken = errors.New("key: another key of the account has this external id")
	ErrHashTaken       = errors.New("key: another key has this lookup hash")
	// ErrNotRevealable is returned for a key of which only the hash is known.
	ErrNotRevealable = errors.New("key: the text of this key was never stored")
	// ErrRevoked is returned for a change of a key that is revoked.
	ErrRevoked = errors.New("key: the key is revoked")
)

const (
	maxNameLen       = 200
	maxExternalIDLen = 200
	hintLen          = 4
	// maxLimit keeps the sums of pools far from the end of an int64.
	maxLimit = 1_000_000_000 * money.Unit
)

// ID identifies a key. Its text form is "key_…".
type ID ident.UUID

// ParseID reads the text form; any text that is none gives ErrNotFound, since
// it names no key.
func ParseID(text string) (ID, error) {
	u, err := ident.Key.Parse(text)
	if err != nil {
		return ID{}, ErrNotFound
	}
	return ID(u), nil
}

// String is the text form.
func (id ID) String() string { return ident.Key.Format(ident.UUID(id)) }

// MarshalText writes the text form.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads the text form.
func (id *ID) UnmarshalText(text []byte) error {
	u, err := ident.Key.Parse(string(text))
	if err != nil {
		return fmt.Errorf("%q is not the id of a key", text)
	}
	*id = ID(u)
	return nil
}

// context is what a key's text is sealed for.
func (id ID) context() string { return TextContext(ident.UUID(id)) }

// TextContext is what the text of a key is sealed for.
func TextContext(id ident.UUID) string { return "apikey:" + ident.Key.Format(id) }

// Key is an API key without its text. Its JSON form is what the audit log
// keeps.
type Key struct {
	ID        ID         `json:"id"`
	AccountID account.ID `json:"account_id"`
	// ExternalID is the cabinet's own id of the key, unique in the account; empty if it has none.
	ExternalID string `json:"external_id,omitempty"`
	Name       string `json:"name"`
	// Hint is the end of the text, to tell keys apart.
	Hint string `json:"hint,omitempty"`
	// SpendLimit is nil for a key without limit.
	SpendLimit *money.Nano `json:"spend_limit"`
	// Revealable tells whether the text is stored.
	Revealable bool       `json:"revealable"`
	RevokedAt  *time.Time `json:"revoked_at,omitempty"`
	Rev        int64      `json:"rev"`
	CreatedAt  time.Time  `json:"created_at"`
	UpdatedAt  time.Time  `json:"updated_at"`
	// Spent is what has been settled on the key, Reserved what is handed out for its requests.
	Spent    money.Nano `json:"-"`
	Reserved money.Nano `json:"-"`
}

// Secret is what a Store keeps of a key's text.
type Secret struct {
	Hash apikey.Hash
	// Pepper is the id of the hash's pepper; empty if it is not known.
	Pepper string
	// Sealed is the text for "Show key"; zero if only the hash is known.
	Sealed vault.Sealed
}

// New is a key to be issued.
type New struct {
	// ID is the key's id-to-be: issuing twice under one id issues one key.
	ID         ident.UUID
	AccountID  account.ID
	ExternalID string
	Name       string
	SpendLimit *money.Nano
}

// Imported is a key that was issued elsewhere, of which only the hash is known.
type Imported struct {
	New
	Hash apikey.Hash
	// Pepper is the id of the hash's pepper; empty if it is not known.
	Pepper string
	// Hint is the end of the text, if it is known.
	Hint string
}

// Tag is the entity tag of the key's settings; what it has spent has none.
func (k *Key) Tag() etag.Tag { return etag.OfRev(k.Rev) }

// Patch is a change of a key; nil members stay as they are.
type Patch struct {
	// Match is the state that the change is meant for.
	Match etag.Match
	Name  *string
	// SetLimit has SpendLimit taken over, nil for no limit.
	SetLimit   bool
	SpendLimit *money.Nano
}

// Validate tells everything that is wrong with the input.
func (n *New) Validate() error {
	var invalid validation.Errors
	n.validate("", &invalid)
	return invalid.Err()
}

func (n *New) validate(path string, invalid *validation.Errors) {
	checkName(validation.Member(path, "name"), n.Name, invalid)
	if utf8.RuneCountInString(n.ExternalID) > maxExternalIDLen {
		invalid.Add(validation.Member(path, "external_id"), "is longer than %d characters", maxExternalIDLen)
	}
	checkLimit(validation.Member(path, "spend_limit"), n.SpendLimit, invalid)
}

// Validate tells everything that is wrong with the input.
func (p *Patch) Validate() error {
	var invalid validation.Errors
	if p.Name != nil {
		checkName("name", *p.Name, &invalid)
	}
	checkLimit("spend_limit", p.SpendLimit, &invalid)
	return invalid.Err()
}

func checkName(path, name string, invalid *validation.Errors) {
	if name == "" || utf8.RuneCountInString(name) > maxNameLen {
		invalid.Add(path, "must have 1 to %d characters", maxNameLen)
	}
}

func checkLimit(path string, limit *money.Nano, invalid *validation.Errors) {
	if limit != nil && (*limit < 0 || *limit > maxLimit) {
		invalid.Add(path, "must be between 0 and %s", maxLimit)
	}
}

// apply returns the key after the patch and whether its limit changed.
func (p *Patch) apply(k Key) (after Key, limited bool) {
	after = k
	if p.Name != nil {
		after.Name = *p.Name
	}
	if p.SetLimit {
		after.SpendLimit = p.SpendLimit
	}
	before, now := k.SpendLimit, after.SpendLimit
	return after, (before == nil) != (now == nil) || (before != nil && *before != *now)
}
