// Package vault owns the master keys under which secrets rest in the database.
// Every sealed secret is stored with the id of its key, so that keys can be
// exchanged while old ones still open what they sealed.
package vault

import (
	"errors"
	"fmt"

	"modelgateway/shared/seal"
)

// ErrUnknownKey is returned for a secret sealed under a key that the vault
// does not hold.
var ErrUnknownKey = errors.New("vault: sealed under an unknown master key")

// Sealed is a secret at rest. The zero value holds none.
type Sealed struct {
	Text []byte
	// KeyID names the master key.
	KeyID string
}

// IsZero tells whether there is no secret.
func (s Sealed) IsZero() bool { return s.Text == nil }

// Vault seals under one key and opens under any that it holds. It is safe for
// concurrent use and never prints a key.
type Vault struct {
	current string
	keys    map[string]*seal.Key
}

// New returns a vault that seals under the key of the current id; every key
// has seal.KeySize bytes.
func New(current string, keys map[string][]byte) (*Vault, error) {
	v := &Vault{current: current, keys: make(map[string]*seal.Key, len(keys))}
	for id, secret := range keys {
		k, err := seal.NewKey(secret)
		if err != nil {
			return nil, fmt.Errorf("vault: master key %q: %w", id, err)
		}
		v.keys[id] = k
	}
	if v.keys[current] == nil {
		return nil, fmt.Errorf("vault: there is no master key %q to seal under", current)
	}
	return v, nil
}

// Seal seals a secret for its context, such as "apikey:key_…".
func (v *Vault) Seal(secret []byte, context string) Sealed {
	return Sealed{v.keys[v.current].Seal(secret, context), v.current}
}

// Open returns the secret, ErrUnknownKey, or seal.ErrOpen for one that was
// changed or belongs to another context.
func (v *Vault) Open(s Sealed, context string) ([]byte, error) {
	k := v.keys[s.KeyID]
	if k == nil {
		return nil, fmt.Errorf("%w %q", ErrUnknownKey, s.KeyID)
	}
	secret, err := k.Open(s.Text, context)
	if err != nil {
		return nil, fmt.Errorf("vault: open %s: %w", context, err)
	}
	return secret, nil
}

// String hides the keys.
func (*Vault) String() string { return "vault.Vault" }
