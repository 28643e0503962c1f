// Package rotation replaces the master key that encrypts secrets, and the pepper that hashes API
// keys, while the system is in use.
//
// A rotation re-encrypts or hashes all rows under the key or pepper that the configuration declares
// current. It runs in small transactions on any replica with that configuration, so a crash loses
// at most one step. The old key is needed until the number of rows under it, which operators can
// read, is zero. A row that cannot be decrypted is skipped and reported: the rotation then does not
// finish, but all other rows are rotated.
//
// Invariant: an API key keeps all its hashes. A proxy may know it by any of them, so a change of
// the key is pushed for each hash.
package rotation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
)

// Kind is the kind of secret that is replaced.
type Kind string

// The kinds of rotations.
const (
	MasterKey Kind = "master_key"
	Pepper    Kind = "pepper"
)

// ErrRunning is returned if a rotation of the same kind to another target is running.
var ErrRunning = errors.New("rotation: another rotation is running")

// Rotation is one rotation.
type Rotation struct {
	ID   ident.UUID
	Kind Kind
	// Target is the id of the new master key or pepper.
	Target string
	// Changed is the number of rows written so far.
	Changed   int64
	StartedAt time.Time
	// FinishedAt is nil while the rotation runs.
	FinishedAt *time.Time
}

// Holding counts what is encrypted under one master key.
type Holding struct {
	MasterKey string
	// DataKeys is the number of data keys, Secrets the number of secrets that are encrypted under the master key
	// directly.
	DataKeys, Secrets int64
}

// Keys counts the API keys that are not revoked.
type Keys struct {
	// Ready have a hash under the current pepper; a rotation will give one to Waiting.
	Ready, Waiting int64
	// HashOnly are imported keys that only an old pepper finds. Their pepper is needed until they are revoked.
	HashOnly int64
}

// HashOnlyKey is an imported key that only an old pepper finds. That pepper is needed until the
// key is revoked.
type HashOnlyKey struct {
	ID        key.ID
	AccountID account.ID
	Name      string
	// ExternalID and Pepper are empty if unknown.
	ExternalID, Pepper string
	CreatedAt          time.Time
	// LastUsedOn is a UTC day such as 2026-10-01; empty if no usage is known.
	LastUsedOn string
}

// Step is the input of one step. Its functions may be called twice.
type Step struct {
	// Target must be that of the rotation. A replica with another configuration does nothing.
	Target string
	Limit  int
	// From is the position at which the previous step ended; zero for the first step of a pass.
	From Cursor
	// MinDuration is the minimum duration of a rotation, in which all replicas load its data key.
	MinDuration time.Duration
	Rewrap      func(vault.DataKey) (vault.DataKey, error)
	Reseal      func(s vault.Sealed, context string) (vault.Sealed, error)
	Hash        func(id ident.UUID, text vault.Sealed) (apikey.Hash, error)
}

// Cursor is the position of a pass over all encrypted rows: the last row of each kind, whether it
// could be decrypted or not. It is used for the master key; the position of a pass over API keys
// is stored with the rotation.
type Cursor struct {
	DataKey, Credential       string
	APIKey, Response, Webhook ident.UUID
}

// Progress is the result of a step.
type Progress struct {
	// Done reports that no rows are left, or that the rotation is not for this replica.
	Done bool
	Next Cursor
	// Skipped are errors about rows that could not be decrypted, with their names.
	Skipped []error
}

// SkippedError reports rows that could not be decrypted and were left unchanged.
type SkippedError struct {
	Count int
	// Some are the errors of the first of them.
	Some []error
}

// Error names some of the rows.
func (e *SkippedError) Error() string {
	return fmt.Sprintf("rotation: %d secrets cannot be decrypted and were skipped: %v", e.Count, errors.Join(e.Some...))
}

// Unwrap returns the errors of the first rows.
func (e *SkippedError) Unwrap() []error { return e.Some }

// Store stores rotations and the rows that they change.
type Store interface {
	// Start begins a rotation, or returns the running one of its kind. A data key that is not nil is stored with the
	// rotation.
	Start(ctx context.Context, r Rotation, with *vault.DataKey) (Rotation, error)
	// Last returns the newest rotation of a kind; nil if there is none.
	Last(ctx context.Context, kind Kind) (*Rotation, error)
	// Step changes some rows of a running rotation.
	Step(ctx context.Context, kind Kind, s Step) (Progress, error)
	Holdings(ctx context.Context) ([]Holding, error)
	Keys(ctx context.Context, pepper string) (Keys, error)
	// HashOnly lists the hash-only keys without a hash under a pepper, ordered by id.
	HashOnly(ctx context.Context, pepper string, after key.ID, limit int) ([]HashOnlyKey, error)
	DataKeys(ctx context.Context) ([]vault.DataKey, error)
	// FirstDataKey stores a data key if the database is new.
	FirstDataKey(ctx context.Context, makeKey func() vault.DataKey) error
}

// Config holds the dependencies and settings of a Service.
type Config struct {
	Store Store
	Vault *vault.Vault
	// Hasher hashes under the current pepper; Peppers are the ids of all peppers.
	Hasher  *apikey.Hasher
	Peppers []string
	// MinDuration is the minimum duration of a rotation of the master key; zero means 30 seconds.
	MinDuration time.Duration
}

const (
	defaultSettle = 30 * time.Second
	// stepRows is the number of rows of each kind that one transaction changes.
	stepRows = 200
	// namedRows bounds the skipped rows that a SkippedError names.
	namedRows = 20
)

// Service runs rotations.
type Service struct{ cfg Config }

// NewService returns a Service.
func NewService(cfg Config) *Service {
	if cfg.MinDuration == 0 {
		cfg.MinDuration = defaultSettle
	}
	return &Service{cfg}
}

// Prepare creates the first data key of a new database and loads all data keys.
func (s *Service) Prepare(ctx context.Context) error {
	if err := s.cfg.Store.FirstDataKey(ctx, s.cfg.Vault.MakeDataKey); err != nil {
		return err
	}
	return s.Refresh(ctx)
}

// Refresh loads data keys that other replicas have created.
func (s *Service) Refresh(ctx context.Context) error {
	keys, err := s.cfg.Store.DataKeys(ctx)
	if err != nil {
		return err
	}
	if err := s.cfg.Vault.Load(keys...); err != nil {
		return fmt.Errorf("rotation: %w", err)
	}
	return nil
}

// Start starts a rotation to the current key or pepper, or returns the one that is running.
func (s *Service) Start(ctx context.Context, kind Kind) (Rotation, error) {
	r := Rotation{ID: ident.New(), Kind: kind, Target: s.target(kind)}
	var fresh *vault.DataKey
	if kind == MasterKey {
		made := s.cfg.Vault.MakeDataKey()
		fresh = &made
	}
	r, err := s.cfg.Store.Start(ctx, r, fresh)
	if err != nil {
		return Rotation{}, err
	}
	if r.Target != s.target(kind) {
		return Rotation{}, ErrRunning
	}
	return r, s.Refresh(ctx)
}

func (s *Service) target(kind Kind) string {
	if kind == Pepper {
		return s.cfg.Hasher.ID()
	}
	return s.cfg.Vault.Current()
}

// Work continues running rotations until nothing can be done. It returns a SkippedError if rows
// could not be decrypted.
func (s *Service) Work(ctx context.Context) error {
	return errors.Join(s.work(ctx, MasterKey), s.work(ctx, Pepper))
}

func (s *Service) work(ctx context.Context, kind Kind) error {
	step := Step{
		Target:      s.target(kind),
		Limit:       stepRows,
		MinDuration: s.cfg.MinDuration,
		Rewrap:      s.cfg.Vault.Rewrap,
		Reseal:      s.reseal,
		Hash:        s.hash,
	}

	passed := new(SkippedError)
	var err error
	for done := false; !done && err == nil && ctx.Err() == nil; {
		var p Progress
		p, err = s.cfg.Store.Step(ctx, kind, step)
		passed.Count += len(p.Skipped)
		passed.Some = append(passed.Some, p.Skipped[:min(len(p.Skipped), namedRows-len(passed.Some))]...)
		done, step.From = p.Done, p.Next
	}

	if passed.Count > 0 {
		err = errors.Join(passed, err)
	}

	return err
}

func (s *Service) reseal(old vault.Sealed, context string) (vault.Sealed, error) {
	secret, err := s.cfg.Vault.Open(old, context)
	if err != nil {
		return vault.Sealed{}, fmt.Errorf("rotation: %w", err)
	}
	return s.cfg.Vault.Seal(secret, context), nil
}

func (s *Service) hash(id ident.UUID, text vault.Sealed) (apikey.Hash, error) {
	secret, err := s.cfg.Vault.Open(text, key.TextContext(id))
	if err != nil {
		return apikey.Hash{}, fmt.Errorf("rotation: %w", err)
	}
	return s.cfg.Hasher.Hash(string(secret)), nil
}

// MasterKeys describes the master keys: the configured ones, and those that rows are encrypted under.
type MasterKeys struct {
	Current    string
	Configured []string
	Holdings   []Holding
	Last       *Rotation
}

// MasterKeys returns the state of the master keys. A configured key without a holding can be removed,
// unless it is current.
func (s *Service) MasterKeys(ctx context.Context) (MasterKeys, error) {
	m := MasterKeys{Current: s.cfg.Vault.Current(), Configured: s.cfg.Vault.Masters()}
	var err error
	if m.Holdings, err = s.cfg.Store.Holdings(ctx); err != nil {
		return MasterKeys{}, err
	}
	m.Last, err = s.cfg.Store.Last(ctx, MasterKey)
	return m, err
}

// Peppers describes the peppers.
type Peppers struct {
	Current string
	// Configured are the ids of all peppers, sorted.
	Configured []string
	Keys       Keys
	Last       *Rotation
}

// HashOnly lists keys that only an old pepper finds, after the given one.
func (s *Service) HashOnly(ctx context.Context, after key.ID, limit int) ([]HashOnlyKey, error) {
	return s.cfg.Store.HashOnly(ctx, s.cfg.Hasher.ID(), after, limit)
}

// Peppers returns the state of the peppers.
func (s *Service) Peppers(ctx context.Context) (Peppers, error) {
	p := Peppers{Current: s.cfg.Hasher.ID(), Configured: slices.Sorted(slices.Values(s.cfg.Peppers))}
	var err error
	if p.Keys, err = s.cfg.Store.Keys(ctx, p.Current); err != nil {
		return Peppers{}, err
	}
	p.Last, err = s.cfg.Store.Last(ctx, Pepper)
	return p, err
}
