// Package rotation owns the exchange of the keys under which secrets rest and
// of the pepper under which API keys are hashed, while everything serves.
//
// A rotation moves everything to what the configuration says is current, in
// small transactions by any replica that is configured so; a crash loses no
// more than the step that was under way. What is left under an old key can be
// seen at any time, and the old key is needed until nothing is. A row that
// cannot be opened is passed over and named: it keeps the rotation from ending,
// and nothing else from moving.
//
// Invariant: a key keeps every hash that it ever had. A proxy may know it by
// any of them, so changes of the key are told for each.
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

// Kind is what is exchanged.
type Kind string

// The kinds.
const (
	MasterKey Kind = "master_key"
	Pepper    Kind = "pepper"
)

// ErrRunning is returned for a rotation while another to something else runs.
var ErrRunning = errors.New("rotation: another one is under way")

// Rotation is one exchange.
type Rotation struct {
	ID   ident.UUID
	Kind Kind
	// Target is the id of the master key or pepper that everything moves to.
	Target string
	// Changed counts the rows written so far.
	Changed   int64
	StartedAt time.Time
	// FinishedAt is nil while it runs.
	FinishedAt *time.Time
}

// Holding is what rests under one master key.
type Holding struct {
	MasterKey string
	// DataKeys counts the data keys, Secrets what is sealed under the master key directly.
	DataKeys, Secrets int64
}

// Keys counts the API keys that are not revoked.
type Keys struct {
	// Ready are found under the current pepper, Waiting get a hash under it by a rotation.
	Ready, Waiting int64
	// HashOnly were imported: as long as there is one, its pepper is needed.
	HashOnly int64
}

// HashOnlyKey is a key that only an old pepper finds, since its text is not
// known: it keeps that pepper from going until it is revoked.
type HashOnlyKey struct {
	ID        key.ID
	AccountID account.ID
	Name      string
	// ExternalID and Pepper are empty if there is none or it was not noted.
	ExternalID, Pepper string
	CreatedAt          time.Time
	// LastUsedOn is a UTC day such as 2026-10-01, empty if no usage is known.
	LastUsedOn string
}

// Step is what a step is done with. Functions may be called twice.
type Step struct {
	// Target must be that of the rotation; another replica, configured otherwise, leaves it alone.
	Target string
	Limit  int
	// From is where the step before this one has come to; it is zero for the first of a pass.
	From Cursor
	// Settle is how old a rotation must be to end: until then replicas may not know of its data key.
	Settle time.Duration
	Rewrap func(vault.DataKey) (vault.DataKey, error)
	Reseal func(s vault.Sealed, context string) (vault.Sealed, error)
	Hash   func(id ident.UUID, text vault.Sealed) (apikey.Hash, error)
}

// Cursor is how far a pass over everything that is sealed has come: the last
// row of each kind, whether it could be opened or not. It is used for the
// master key; a pass over the API keys for a pepper is kept with its rotation.
type Cursor struct {
	DataKey, Credential     string
	APIKey, Answer, Webhook ident.UUID
}

// Progress is what a step has done.
type Progress struct {
	// Done: nothing was found any more, or it is not for this replica to do.
	Done bool
	Next Cursor
	// PassedOver are the rows that could not be opened, by name.
	PassedOver []error
}

// PassedOverError tells of rows that could not be opened, and are as they were.
type PassedOverError struct {
	Count int
	// Some are the first of them.
	Some []error
}

// Error names some of the rows.
func (e *PassedOverError) Error() string {
	return fmt.Sprintf("rotation: %d secrets cannot be opened and were passed over: %v", e.Count, errors.Join(e.Some...))
}

// Unwrap returns why the first rows could not be opened.
func (e *PassedOverError) Unwrap() []error { return e.Some }

// Store keeps rotations, and what they change.
type Store interface {
	// Start begins a rotation unless one of its kind runs, which is returned then. The data key, if there is one, is
	// kept with it.
	Start(ctx context.Context, r Rotation, with *vault.DataKey) (Rotation, error)
	// Last returns the newest rotation of a kind; nil if there never was one.
	Last(ctx context.Context, kind Kind) (*Rotation, error)
	// Step changes some rows of a running rotation.
	Step(ctx context.Context, kind Kind, s Step) (Progress, error)
	Holdings(ctx context.Context) ([]Holding, error)
	Keys(ctx context.Context, pepper string) (Keys, error)
	// HashOnly lists the keys that a pepper does not find and never will, in the order of their ids.
	HashOnly(ctx context.Context, pepper string, after key.ID, limit int) ([]HashOnlyKey, error)
	DataKeys(ctx context.Context) ([]vault.DataKey, error)
	// FirstDataKey keeps a data key if the database is new.
	FirstDataKey(ctx context.Context, makeKey func() vault.DataKey) error
}

// Config is what a Service is made of.
type Config struct {
	Store Store
	Vault *vault.Vault
	// Hasher hashes under the current pepper; Peppers are the ids of all.
	Hasher  *apikey.Hasher
	Peppers []string
	// Settle is how long a rotation of the master key takes at least; zero means 30 seconds.
	Settle time.Duration
}

const (
	defaultSettle = 30 * time.Second
	// stepRows is how many rows of each kind one transaction changes.
	stepRows = 200
	// namedRows bounds how many of the rows are named that a pass could not open.
	namedRows = 20
)

// Service is the exchange over a Store.
type Service struct{ cfg Config }

// NewService returns a Service.
func NewService(cfg Config) *Service {
	if cfg.Settle == 0 {
		cfg.Settle = defaultSettle
	}
	return &Service{cfg}
}

// Prepare gives a new database its first data key, and loads those there are.
func (s *Service) Prepare(ctx context.Context) error {
	if err := s.cfg.Store.FirstDataKey(ctx, s.cfg.Vault.MakeDataKey); err != nil {
		return err
	}
	return s.Refresh(ctx)
}

// Refresh loads the data keys that other replicas have made.
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

// Start begins to move everything to what is current, or returns the rotation
// that does so already.
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

// Work goes on with what runs, until nothing can be done. It returns a
// PassedOverError with what cannot be opened.
func (s *Service) Work(ctx context.Context) error {
	return errors.Join(s.work(ctx, MasterKey), s.work(ctx, Pepper))
}

func (s *Service) work(ctx context.Context, kind Kind) error {
	step := Step{
		Target: s.target(kind), Limit: stepRows, Settle: s.cfg.Settle,
		Rewrap: s.cfg.Vault.Rewrap, Reseal: s.reseal, Hash: s.hash,
	}
	passed := new(PassedOverError)
	var err error
	for done := false; !done && err == nil && ctx.Err() == nil; {
		var p Progress
		p, err = s.cfg.Store.Step(ctx, kind, step)
		passed.Count += len(p.PassedOver)
		passed.Some = append(passed.Some, p.PassedOver[:min(len(p.PassedOver), namedRows-len(passed.Some))]...)
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

// Masters is the state of the master keys: those that are configured, and
// those that something rests under.
type Masters struct {
	Current    string
	Configured []string
	Holdings   []Holding
	Last       *Rotation
}

// Masters returns the state of the master keys. A key that is configured and
// has no holding is not needed any more, unless it is current.
func (s *Service) Masters(ctx context.Context) (Masters, error) {
	m := Masters{Current: s.cfg.Vault.Current(), Configured: s.cfg.Vault.Masters()}
	var err error
	if m.Holdings, err = s.cfg.Store.Holdings(ctx); err != nil {
		return Masters{}, err
	}
	m.Last, err = s.cfg.Store.Last(ctx, MasterKey)
	return m, err
}

// Peppers is the state of the peppers.
type Peppers struct {
	Current string
	// Configured are the ids of all peppers, sorted.
	Configured []string
	Keys       Keys
	Last       *Rotation
}

// HashOnly lists keys that only an old pepper finds, after one of them.
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
