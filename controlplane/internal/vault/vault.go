// Package vault implements envelope encryption of the secrets in the database.
//
// Secrets are encrypted under data keys. Data keys are stored in the database, each encrypted
// under a master key of the configuration, so replacing the master key only re-encrypts the data
// keys. Databases that were created without data keys have secrets that are encrypted under the
// master key directly; they stay readable, and such a database gets no data key before its first
// rotation.
//
// Every encrypted secret is stored with the id of its key, so that keys can be replaced while old
// ones still decrypt. One of the master keys is current; the others only decrypt.
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

// ErrUnknownKey is returned for a secret whose key the vault does not have.
var ErrUnknownKey = errors.New("vault: encrypted under an unknown key")

// DataKeyPrefix is the prefix of data key ids. Master key ids do not have it.
const DataKeyPrefix = "dk_"

// Sealed is an encrypted secret. The zero value means that there is no secret.
type Sealed struct {
	Text []byte
	// KeyID is the id of the data key or master key.
	KeyID string
}

// IsZero reports whether there is no secret.
func (s Sealed) IsZero() bool { return s.Text == nil }

// DataKey is a data key, encrypted under a master key. Ids sort by creation.
type DataKey struct {
	ID     string
	Sealed Sealed
}

// FindFunc reads a data key that another replica has created; it returns the zero DataKey if there
// is none.
type FindFunc func(id string) (DataKey, error)

// Vault encrypts under one key and decrypts under any key that it has. It is safe for concurrent
// use and never prints a key.
type Vault struct {
	current string
	masters map[string]*seal.Key
	find    FindFunc

	mu   sync.RWMutex
	data map[string]*seal.Key
	// newest is the id of the data key that encrypts; empty if there is none.
	newest string
}

// New returns a vault that encrypts under the current master key until a data key is loaded. Every
// key has seal.KeySize bytes. find may be nil.
func New(current string, masters map[string][]byte, find FindFunc) (*Vault, error) {
	v := &Vault{
		current: current,
		masters: make(map[string]*seal.Key, len(masters)),
		find:    find,
		data:    map[string]*seal.Key{},
	}

	for id, secret := range masters {
		if strings.HasPrefix(id, DataKeyPrefix) {
			return nil, fmt.Errorf("vault: the id of master key %q begins with the prefix of data keys", id)
		}
		k, err := seal.NewKey(secret)
		if err != nil {
			return nil, fmt.Errorf("vault: master key %q: %w", id, err)
		}
		v.masters[id] = k
	}

	if v.masters[current] == nil {
		return nil, fmt.Errorf("vault: the current master key %q is not configured", current)
	}

	return v, nil
}

// Current returns the id of the current master key.
func (v *Vault) Current() string { return v.current }

// Masters returns the ids of all master keys, sorted.
func (v *Vault) Masters() []string { return slices.Sorted(maps.Keys(v.masters)) }

// Load adds data keys. The vault then encrypts under the newest one.
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

// MakeDataKey returns a new data key. The vault does not use it before Load.
func (v *Vault) MakeDataKey() DataKey {
	return v.wrap(fmt.Sprintf("%s%x", DataKeyPrefix, ident.New()), seal.NewSecret())
}

// Rewrap encrypts a data key under the current master key.
func (v *Vault) Rewrap(k DataKey) (DataKey, error) {
	secret, err := v.unwrap(k)
	if err != nil {
		return DataKey{}, err
	}
	return v.wrap(k.ID, secret), nil
}

// Seal encrypts a secret for an encryption context, such as "apikey:key_…".
func (v *Vault) Seal(secret []byte, context string) Sealed {
	v.mu.RLock()
	id, key := v.newest, v.data[v.newest]
	v.mu.RUnlock()
	if key == nil {
		id, key = v.current, v.masters[v.current]
	}
	return Sealed{key.Seal(secret, context), id}
}

// Open decrypts a secret. It returns ErrUnknownKey, or seal.ErrOpen if the secret was modified or
// belongs to another context.
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

// keyOf returns the key with an id. It looks up data keys that are not loaded yet.
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

// Knows reports whether the vault has the key with an id.
func (v *Vault) Knows(id string) bool {
	_, err := v.keyOf(id)
	return err == nil
}

// String hides the keys.
func (*Vault) String() string { return "vault.Vault" }
