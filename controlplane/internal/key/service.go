package key

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/project"
	"modelgateway/controlplane/internal/propagation"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// maxImport bounds the keys of one import.
const maxImport = 1000

// Query selects keys, oldest first.
type Query struct {
	// AccountID selects the keys of one account.
	AccountID account.ID
	// ExternalID selects the key with this external id; empty means all.
	ExternalID string
	// ProjectID selects the keys of one project, or those of project.None; the zero ID means all.
	ProjectID project.ID
	// Status selects keys by what they are now; empty means all.
	Status Status
	// After selects keys created after this one; the zero ID starts with the first.
	After ID
	// Limit is the maximum number of keys.
	Limit int
}

// Status is what a key is now. Of a key that is several, it is the first one of: revoked, expired, paused.
type Status string

// Known reports whether there is such a status.
func (s Status) Known() bool {
	return slices.Contains([]Status{"active", "paused", "expired", "revoked"}, s)
}

// Update is what a Store has to write for a change of a key.
type Update struct {
	Key Key
	// Announce makes the store assign a revision to the change and store it for the proxies.
	Announce bool
	// Unchanged reports that nothing changes, so that nothing is written.
	Unchanged bool
}

// Record is a new key with its secret.
type Record struct {
	Key    Key
	Secret Secret
}

// Store stores keys. Each method is one transaction, which also writes the audit entry of a
// change.
type Store interface {
	// Create stores keys with their limit pools, all or none. For an id that exists already, it returns the stored
	// key.
	Create(ctx context.Context, records []Record) ([]Record, error)
	// Import does the same for keys that clients may have used before. It returns the change that proxies have to
	// apply, nil if all keys existed. It stores the peppers of existing keys whose pepper was unknown.
	Import(ctx context.Context, records []Record) ([]Record, *wire.KeyChange, error)
	Get(ctx context.Context, id ID) (Key, error)
	// BySecret returns the id of the key with the lookup hash of a secret, under any pepper, or ErrSecretEnded if the secret was not
	// valid at a moment.
	BySecret(ctx context.Context, hash apikey.Hash, moment time.Time) (ID, error)
	List(ctx context.Context, q Query) ([]Key, error)
	// Update locks the key and stores the result of decide, which may be called twice. The change is nil if there is
	// nothing to announce.
	Update(ctx context.Context, id ID, decide func(Key) (Update, error)) (Key, *wire.KeyChange, error)
	// Rotate replaces the secret of the key and returns the new one, encrypted. For a rotation that the key has had last, it
	// returns the stored secret and no change.
	Rotate(ctx context.Context, id ID, next *NewSecret) (Key, vault.Sealed, *wire.KeyChange, error)
	// Revoke marks the key as revoked and returns the change; of a key that was revoked already, the original
	// change.
	Revoke(ctx context.Context, id ID) (Key, wire.KeyChange, error)
	// Sealed returns the encrypted text and writes an audit entry about the access.
	Sealed(ctx context.Context, id ID) (vault.Sealed, error)
}

// Holdings asks the proxies for what running requests of an account reserve, by pool. complete is false if a proxy did not
// answer.
type Holdings interface {
	RunningByPool(ctx context.Context, account string) (running map[wire.PoolID]int64, complete bool)
}

// Config holds the dependencies and settings of a Service.
type Config struct {
	Store     Store
	Announcer propagation.Announcer
	// Holdings may be nil: then Key.Reserved is the amount that the store reports.
	Holdings Holdings
	Hasher   *apikey.Hasher
	// Peppers are the ids of all configured peppers.
	Peppers []string
	Vault   *vault.Vault
	Log     *slog.Logger
	// ConfirmTimeout bounds how long a change of a limit waits for the proxies, RevokeTimeout how long a revocation
	// does.
	ConfirmTimeout time.Duration
	RevokeTimeout  time.Duration
}

// Service manages keys.
type Service struct{ cfg Config }

// NewService returns a Service.
func NewService(cfg Config) *Service { return &Service{cfg} }

// Issue creates a key and returns it with its text. It is idempotent by n.ID: a second call
// returns the same key and text.
func (s *Service) Issue(ctx context.Context, n New) (Key, string, error) {
	if err := n.Validate(); err != nil {
		return Key{}, "", err
	}
	text := s.cfg.Hasher.Generate()
	made, err := s.cfg.Store.Create(ctx, []Record{s.record(n, text)})
	if err != nil {
		return Key{}, "", err
	}
	// A repeated call has to return the text of the first one.
	if text, err = s.open(made[0].Key.ID, made[0].Secret.Sealed); err != nil {
		return Key{}, "", err
	}
	return made[0].Key, text, nil
}

func (s *Service) record(n New, text string) Record {
	id := ID(n.ID)
	return Record{
		Key: Key{
			ID:         id,
			AccountID:  n.AccountID,
			ExternalID: n.ExternalID,
			Name:       n.Name,
			Hint:       text[len(text)-hintLen:],
			SpendLimit: n.SpendLimit,
			Settings:   n.Settings.normal(),
			Revealable: true,
		},
		Secret: s.secret(id, text),
	}
}

// CheckImport reports all invalid fields of an import as validation.Errors.
func (s *Service) CheckImport(keys []Imported) error {
	var invalid validation.Errors
	if len(keys) == 0 || len(keys) > maxImport {
		invalid.Add("keys", "must contain 1 to %d keys", maxImport)
	}
	for i := range keys {
		k, path := &keys[i], validation.Index("keys", i)
		k.validate(path, &invalid)
		if len(k.Hint) > hintLen {
			invalid.Add(validation.Member(path, "hint"), "is longer than %d characters", hintLen)
		}
		if k.Pepper != "" && !slices.Contains(s.cfg.Peppers, k.Pepper) {
			invalid.Add(validation.Member(path, "pepper"), "is not one of the configured peppers: %s", strings.Join(s.cfg.Peppers, ", "))
		}
	}
	return invalid.Err()
}

// Import is the result of Service.Import.
type Import struct {
	// Keys are in the order of the request.
	Keys []Key
	// Change is the change that proxies have to apply; nil if all keys existed already.
	Change *wire.KeyChange
}

// Import creates hash-only keys, all or none. A key of the same account with the same hash stays
// as it is, except that an unknown pepper is stored.
func (s *Service) Import(ctx context.Context, keys []Imported) (Import, error) {
	if err := s.CheckImport(keys); err != nil {
		return Import{}, err
	}

	records := make([]Record, len(keys))
	for i, k := range keys {
		records[i] = Record{
			Key: Key{
				ID:         ID(ident.New()),
				AccountID:  k.AccountID,
				ExternalID: k.ExternalID,
				Name:       k.Name,
				Hint:       k.Hint,
				SpendLimit: k.SpendLimit,
				Settings:   k.Settings.normal(),
			},
			Secret: Secret{Hash: k.Hash, Pepper: k.Pepper},
		}
	}

	made, change, err := s.cfg.Store.Import(ctx, records)
	if err != nil {
		return Import{}, err
	}

	if change != nil {
		confirming, cancel := context.WithTimeout(ctx, s.cfg.ConfirmTimeout)
		defer cancel()
		s.announce(confirming, made[0].Key.ID, *change)
	}

	imported := make([]Key, len(made))
	for i := range made {
		imported[i] = made[i].Key
	}

	return Import{imported, change}, nil
}

// Get returns a key, or ErrNotFound. It asks the proxies for the reserved amount.
func (s *Service) Get(ctx context.Context, id ID) (Key, error) {
	k, err := s.cfg.Store.Get(ctx, id)
	if err != nil {
		return Key{}, err
	}
	found := []Key{k}
	s.askProxies(ctx, found)
	return found[0], nil
}

// List returns keys. It asks the proxies for the reserved amounts, once for each account.
func (s *Service) List(ctx context.Context, q Query) ([]Key, error) {
	found, err := s.cfg.Store.List(ctx, q)
	if err != nil {
		return nil, err
	}
	s.askProxies(ctx, found)
	return found, nil
}

// askProxies replaces the reserved amounts by those that the proxies report. After the first account for which a proxy does not
// answer, it does not ask for the rest.
func (s *Service) askProxies(ctx context.Context, keys []Key) {
	if s.cfg.Holdings == nil {
		return
	}

	asked := map[account.ID]map[wire.PoolID]int64{}
	for i := range keys {
		k := &keys[i]
		if k.Reserved == 0 {
			continue
		}
		running, known := asked[k.AccountID]
		if !known {
			var complete bool
			if running, complete = s.cfg.Holdings.RunningByPool(ctx, k.AccountID.String()); !complete {
				return
			}
			asked[k.AccountID] = running
		}
		k.Reserved = min(money.Nano(running[k.LimitPool]), k.Reserved)
	}
}

// Reveal returns the text of a key, or ErrNotRevealable.
func (s *Service) Reveal(ctx context.Context, id ID) (string, error) {
	sealed, err := s.cfg.Store.Sealed(ctx, id)
	if err != nil {
		return "", err
	}
	return s.open(id, sealed)
}

func (s *Service) open(id ID, sealed vault.Sealed) (string, error) {
	if sealed.IsZero() {
		return "", ErrNotRevealable
	}
	text, err := s.cfg.Vault.Open(sealed, id.context())
	if err != nil {
		return "", fmt.Errorf("key: reveal: %w", err)
	}
	return string(text), nil
}

// Updated is the result of Patch.
type Updated struct {
	Key Key
	// Change is the change that proxies have to apply, and Confirmation the state of its propagation; nil if they need not apply any.
	Change       *wire.KeyChange
	Confirmation propagation.Confirmation
}

// Patch changes a key. A new limit is announced; proxies that do not confirm it
// in time receive it with their next heartbeat.
func (s *Service) Patch(ctx context.Context, id ID, p Patch) (Updated, error) {
	if err := p.Validate(); err != nil {
		return Updated{}, err
	}

	after, change, err := s.cfg.Store.Update(ctx, id, func(before Key) (Update, error) {
		if err := p.Match.Check(before.Tag()); err != nil {
			return Update{}, err
		}
		if before.RevokedAt != nil {
			return Update{}, ErrRevoked
		}
		k, announce := p.apply(before)
		return Update{k, announce, reflect.DeepEqual(k, before)}, nil
	})
	if err != nil || change == nil {
		return Updated{Key: after}, err
	}

	ctx, cancel := context.WithTimeout(ctx, s.cfg.ConfirmTimeout)
	defer cancel()
	return Updated{after, change, s.announce(ctx, id, *change)}, nil
}

// Revocation is a revoked key with the state of the propagation of its revocation.
type Revocation struct {
	Key          Key
	Change       wire.KeyChange
	Confirmation propagation.Confirmation
}

// Revoke revokes a key for good and waits until every proxy has stopped
// admitting it, for RevokeTimeout at most. Revoking it again waits for the same
// revocation.
func (s *Service) Revoke(ctx context.Context, id ID) (Revocation, error) {
	k, change, err := s.cfg.Store.Revoke(ctx, id)
	if err != nil {
		return Revocation{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RevokeTimeout)
	defer cancel()
	return Revocation{k, change, s.announce(ctx, id, change)}, nil
}

// RevokeByHash revokes the key with the lookup hash of a secret that was valid at a moment, like Revoke. A secret that a rotation had
// ended by then gives ErrSecretEnded: whoever has it can do nothing with it, and the customer would lose a key that did not leak.
func (s *Service) RevokeByHash(ctx context.Context, hash apikey.Hash, moment time.Time) (Revocation, error) {
	id, err := s.cfg.Store.BySecret(ctx, hash, moment)
	if err != nil {
		return Revocation{}, err
	}
	return s.Revoke(ctx, id)
}

// announce announces a change. After an error the change counts as not effective; proxies receive
// it with their next heartbeat.
func (s *Service) announce(ctx context.Context, id ID, c wire.KeyChange) propagation.Confirmation {
	confirmed, err := s.cfg.Announcer.Announce(ctx, c)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		s.cfg.Log.WarnContext(ctx, "announcing a key change failed", "key_id", id, "rev", c.Revision, "error", err)
	}
	confirmed.Effective = confirmed.Effective && err == nil
	return confirmed
}
