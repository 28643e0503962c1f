// Package vault owns the keys under which secrets rest in the database.
//
// Secrets are sealed under data keys, which rest in the database themselves,
// each sealed under a master key of the configuration: to exchange the master
// key, only the data keys are sealed anew. A database of an earlier release has
// secrets that are sealed under the master key directly; they stay readable,
// and until its first rotation it gets no data key, so that control planes of
// the release before can read everything.
//
// Every sealed secret is stored with the id of its key, so that keys can be
// exchanged while old ones still open what they sealed. Of several master keys
// one is current; the others only open.
package vault

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"modelgateway/shared/ident"
	"modelgateway/shared/seal"
)

// ErrUnknownKey is returned for a secret sealed under a key that the vault
// does not hold.
var ErrUnknownKey = errors.New("vault: sealed under an unknown key")

// DataKeyPrefix begins the id of every data key, and of no master key.
const DataKeyPrefix = "dk_"

// Sealed is a secret at rest. The zero value holds none.
type Sealed struct {
	Text []byte
	// KeyID names the data key or master key.
	KeyID string
}

// IsZero tells whether there is no secret.
func (s Sealed) IsZero() bool { return s.Text == nil }

// DataKey is a data key as it rests: sealed under a master key. Ids made later
// sort later.
type DataKey struct {
	ID     string
	Sealed Sealed
}

// FindFunc reads a data key that another replica has made; a zero one if there
// is none.
type FindFunc func(id string) (DataKey, error)

// Vault seals under one key and opens under any that it holds. It is safe for
// concurrent use and never prints a key.
type Vault struct {
	current string
	masters map[string]*seal.Key
	find    FindFunc

	mu   sync.RWMutex
	data map[string]*seal.Key
	// newest is the data key to seal under; empty while there is none.
	newest string
}

// New returns a vault that seals under the master key of the current id until
// it holds a data key; every key has seal.KeySize bytes. Find may be nil.
func New(current string, masters map[string][]byte, find FindFunc) (*Vault, error) {
	v := &Vault{current: current, masters: make(map[string]*seal.Key, len(masters)), find: find, data: map[string]*seal.Key{}}
	for id, secret := range masters {
		if strings.HasPrefix(id, DataKeyPrefix) {
			return nil, fmt.Errorf("vault: the name of master key %q begins as that of a data key", id)
		}
		k, err := seal.NewKey(secret)
		if err != nil {
			return nil, fmt.Errorf("vault: master key %q: %w", id, err)
		}
		v.masters[id] = k
	}
	if v.masters[current] == nil {
		return nil, fmt.Errorf("vault: there is no master key %q to seal under", current)
	}
	return v, nil
}

// Current is the id of the master key to seal under.
func (v *Vault) Current() string { return v.current }

// Masters are the ids of all master keys, sorted.
func (v *Vault) Masters() []string { return slices.Sorted(maps.Keys(v.masters)) }

// Load takes over data keys; secrets are sealed under the newest of all.
func (v *Vault) Load(keys ...DataKey) error {
	for _, k := range keys {
		if v.dataKey(k.ID) != nil {
			continue
		}
		secret, err := v.unwrap(k)
		if err != nil {
			return err
		}
		key, err := seal.NewKey(secret)
		if err != nil {
			return fmt.Errorf("vault: data key %s: %w", k.ID, err)
		}
		v.mu.Lock()
		v.data[k.ID] = key
		v.newest = max(v.newest, k.ID)
		v.mu.Unlock()
	}
	return nil
}

func (v *Vault) dataKey(id string) *seal.Key {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.data[id]
}

func wrapContext(id string) string { return "datakey:" + id }

func (v *Vault) unwrap(k DataKey) ([]byte, error) {
	master := v.masters[k.Sealed.KeyID]
	if master == nil {
		return nil, fmt.Errorf("%w: data key %s needs master key %q", ErrUnknownKey, k.ID, k.Sealed.KeyID)
	}
	secret, err := master.Open(k.Sealed.Text, wrapContext(k.ID))
	if err != nil {
		return nil, fmt.Errorf("vault: open data key %s: %w", k.ID, err)
	}
	return secret, nil
}

func (v *Vault) wrap(id string, secret []byte) DataKey {
	return DataKey{id, Sealed{v.masters[v.current].Seal(secret, wrapContext(id)), v.current}}
}

// MakeDataKey returns a new data key, which the vault does not hold yet.
func (v *Vault) MakeDataKey() DataKey {
	return v.wrap(fmt.Sprintf("%s%x", DataKeyPrefix, ident.New()), seal.NewSecret())
}

// Rewrap seals a data key under the current master key.
func (v *Vault) Rewrap(k DataKey) (DataKey, error) {
	secret, err := v.unwrap(k)
	if err != nil {
		return DataKey{}, err
	}
	return v.wrap(k.ID, secret), nil
}

// Seal seals a secret for its context, such as "apikey:key_…".
func (v *Vault) Seal(secret []byte, context string) Sealed {
	v.mu.RLock()
	id, key := v.newest, v.data[v.newest]
	v.mu.RUnlock()
	if key == nil {
		id, key = v.current, v.masters[v.current]
	}
	return Sealed{key.Seal(secret, context), id}
}

// Open returns the secret, ErrUnknownKey, or seal.ErrOpen for one that was
// changed or belongs to another context.
func (v *Vault) Open(s Sealed, context string) ([]byte, error) {
	key, err := v.keyOf(s.KeyID)
	if err != nil {
		return nil, err
	}
	secret, err := key.Open(s.Text, context)
	if err != nil {
		return nil, fmt.Errorf("vault: open %s: %w", context, err)
	}
	return secret, nil
}

// keyOf returns the key of an id, reading a data key that is new.
func (v *Vault) keyOf(id string) (*seal.Key, error) {
	if master := v.masters[id]; master != nil {
		return master, nil
	}
	if key := v.dataKey(id); key != nil {
		return key, nil
	}
	if v.find == nil || !strings.HasPrefix(id, DataKeyPrefix) {
		return nil, fmt.Errorf("%w %q", ErrUnknownKey, id)
	}
	found, err := v.find(id)
	if err != nil {
		return nil, fmt.Errorf("vault: find data key %s: %w", id, err)
	}
	if found.ID == "" {
		return nil, fmt.Errorf("%w %q", ErrUnknownKey, id)
	}
	if err := v.Load(found); err != nil {
		return nil, err
	}
	return v.dataKey(id), nil
}

// Knows tells whether what was sealed under an id can be opened.
func (v *Vault) Knows(id string) bool {
	_, err := v.keyOf(id)
	return err == nil
}

// String hides the keys.
func (*Vault) String() string { return "vault.Vault" }
