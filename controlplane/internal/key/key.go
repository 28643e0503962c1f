// Package key manages API keys: issuing, importing, showing, limiting, rotating and revoking them.
//
// The life of a key: Issue makes a random text with a MAC and stores its hash, by which proxies look it up, and the text,
// encrypted; the caller gets the text. The first request makes a proxy read the record of the hash. Patch changes the record in
// Postgres, and the change is announced to all proxies. A rotation gives the key a second text; both work until the overlap
// ends. Revoke stores the time in Postgres first and announces it then: the answer says whether every proxy has confirmed it,
// and otherwise until when it is effective at the latest.
//
// Invariants: the text of a key is stored only encrypted, and never appears in a log, an error or
// an audit entry; a revoked key stays revoked; every key has exactly one limit pool, which is
// unlimited or has the spend limit as its total.
package key

import (
	"errors"
	"fmt"
	"reflect"
	"time"
	"unicode/utf8"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// The errors of this package. Invalid input is reported as validation.Errors.
var (
	ErrNotFound        = errors.New("key: no such key")
	ErrExternalIDTaken = errors.New("key: another key of the account has this external id")
	ErrHashTaken       = errors.New("key: another key has this lookup hash")
	// ErrNotRevealable is returned for a hash-only key.
	ErrNotRevealable = errors.New("key: the text of this key was never stored")
	// ErrSecretEnded is returned for the hash of a secret that a rotation has ended: it does not name its key any more.
	ErrSecretEnded = errors.New("key: a rotation has ended this secret")
	// ErrRevoked is returned for a change of a revoked key.
	ErrRevoked = errors.New("key: the key is revoked")
)

const (
	maxNameLen       = 200
	maxExternalIDLen = 200
	hintLen          = 4
	// maxLimit keeps the sums of pools far below the range of an int64.
	maxLimit = 1_000_000_000 * money.Unit
)

// ID identifies a key. Its text form is "key_…".
type ID ident.UUID

// ParseID parses the text form. It returns ErrNotFound for any other text.
func ParseID(text string) (ID, error) {
	u, err := ident.Key.Parse(text)
	if err != nil {
		return ID{}, ErrNotFound
	}
	return ID(u), nil
}

// String returns the text form.
func (id ID) String() string { return ident.Key.Format(ident.UUID(id)) }

// MarshalText returns the text form.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText parses the text form.
func (id *ID) UnmarshalText(text []byte) error {
	u, err := ident.Key.Parse(string(text))
	if err != nil {
		return fmt.Errorf("%q is not the id of a key", text)
	}
	*id = ID(u)
	return nil
}

// context is the encryption context of the key's text.
func (id ID) context() string { return TextContext(ident.UUID(id)) }

// TextContext returns the encryption context of a key's text.
func TextContext(id ident.UUID) string { return "apikey:" + ident.Key.Format(id) }

// Key is an API key without its text. The audit log keeps its JSON form.
type Key struct {
	ID        ID         `json:"id"`
	AccountID account.ID `json:"account_id"`
	// ExternalID is the id of the key in the operator's own system, unique in the account; empty if it has none.
	ExternalID string `json:"external_id,omitempty"`
	Name       string `json:"name"`
	// Hint is the end of the text, to recognise keys in a list.
	Hint string `json:"hint,omitempty"`
	// SpendLimit is nil for a key without a limit.
	SpendLimit *money.Nano `json:"spend_limit"`
	Settings
	// Revealable reports whether the text is stored.
	Revealable bool `json:"revealable"`
	// RotatedAt is the time of the last rotation, nil if there was none. PreviousUntil is until when the secret before it is
	// valid, nil if it ended at once; PreviousHint is its end.
	RotatedAt     *time.Time `json:"rotated_at,omitempty"`
	PreviousHint  string     `json:"previous_hint,omitempty"`
	PreviousUntil *time.Time `json:"previous_until,omitempty"`
	RevokedAt     *time.Time `json:"revoked_at,omitempty"`
	Rev           int64      `json:"rev"`
	CreatedAt     time.Time  `json:"created_at"`
	UpdatedAt     time.Time  `json:"updated_at"`
	// Spent is the sum of the charges of the key, Reserved the sum of the reservations of its running requests. If the proxies
	// were not asked, or one of them did not answer, it is the amount outstanding in leases of LimitPool.
	Spent     money.Nano  `json:"-"`
	Reserved  money.Nano  `json:"-"`
	LimitPool wire.PoolID `json:"-"`
	// LastUsedAt is when the last settled request of the key began, nil if there was none; of a request whose record was
	// dropped it is the beginning of the day.
	LastUsedAt *time.Time `json:"-"`
}

// Secret is the stored form of a key's text.
type Secret struct {
	Hash apikey.Hash
	// Pepper is the id of the pepper of the hash; empty if unknown.
	Pepper string
	// Sealed is the encrypted text; zero for a hash-only key.
	Sealed vault.Sealed
}

// New is the input of Service.Issue.
type New struct {
	// ID is the id of the new key. Issuing the same id twice issues one key.
	ID         ident.UUID
	AccountID  account.ID
	ExternalID string
	Name       string
	SpendLimit *money.Nano
	Settings
}

// Imported is a hash-only key: one that another system issued.
type Imported struct {
	New
	Hash apikey.Hash
	// Pepper is the id of the pepper of the hash; empty if unknown.
	Pepper string
	// Hint is the end of the text, if known.
	Hint string
}

// Tag returns the entity tag of the key's settings. The spent amount is not part of it.
func (k *Key) Tag() etag.Tag { return etag.OfRev(k.Rev) }

// Patch is a change of a key; nil members stay unchanged.
type Patch struct {
	// Match is the If-Match condition of the change.
	Match etag.Match
	Name  *string
	// SetLimit replaces the limit by SpendLimit; nil removes it.
	SetLimit   bool
	SpendLimit *money.Nano
	SettingsPatch
}

// Validate reports all invalid fields as validation.Errors.
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
	n.Settings.validate(path, invalid)
}

// Validate reports all invalid fields as validation.Errors.
func (p *Patch) Validate() error {
	var invalid validation.Errors
	if p.Name != nil {
		checkName("name", *p.Name, &invalid)
	}
	checkLimit("spend_limit", p.SpendLimit, &invalid)
	p.SettingsPatch.validate(&invalid)
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

// apply returns the key after the patch, and whether proxies have to know: its limit, its project or its rules changed.
func (p *Patch) apply(k Key) (after Key, announce bool) {
	after = k
	after.Settings = p.SettingsPatch.apply(k.Settings)
	if p.Name != nil {
		after.Name = *p.Name
	}
	if p.SetLimit {
		after.SpendLimit = p.SpendLimit
	}
	limited := !reflect.DeepEqual(after.SpendLimit, k.SpendLimit) ||
		!reflect.DeepEqual(after.MaxConcurrentRequests, k.MaxConcurrentRequests)
	moved := !reflect.DeepEqual(after.ProjectID, k.ProjectID)
	return after, limited || moved || !reflect.DeepEqual(after.Settings.Rules(), k.Settings.Rules())
}
