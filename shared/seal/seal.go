// Package seal owns how secrets travel between the planes and rest in the
// database: AES-256-GCM with a random nonce, bound to a context, under a key
// derived for one purpose.
//
// The context (such as "credential:crd_…") is authenticated, so that a sealed
// secret cannot be moved to another row or entry.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
)

// KeySize is the length of every key, in bytes.
const KeySize = 32

// ErrOpen is returned when a sealed text was changed, or belongs to another
// key or context.
var ErrOpen = errors.New("seal: cannot be opened with this key and context")

// Key seals and opens. It is safe for concurrent use and never prints.
type Key struct{ aead cipher.AEAD }

// NewKey returns the key made of 32 bytes.
func NewKey(secret []byte) (*Key, error) {
	if len(secret) != KeySize {
		return nil, fmt.Errorf("seal: a key has %d bytes, not %d", KeySize, len(secret))
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return &Key{aead}, nil
}

// Seal returns the sealed form of a secret.
func (k *Key) Seal(secret []byte, context string) []byte {
	return k.aead.Seal(nil, nil, secret, []byte(context))
}

// Open returns the secret that Seal was given, or ErrOpen.
func (k *Key) Open(sealed []byte, context string) ([]byte, error) {
	secret, err := k.aead.Open(nil, nil, sealed, []byte(context))
	if err != nil {
		return nil, ErrOpen
	}
	return secret, nil
}

// String hides the key.
func (*Key) String() string { return "seal.Key" }

// Derive returns 32 bytes for one purpose from a master secret, so that one
// secret in a deployment serves several uses without sharing keys.
func Derive(master []byte, purpose string) ([]byte, error) {
	if len(master) < KeySize {
		return nil, fmt.Errorf("seal: a master secret has at least %d bytes, not %d", KeySize, len(master))
	}
	key, err := hkdf.Key(sha256.New, master, nil, "modelgateway:"+purpose, KeySize)
	if err != nil {
		return nil, fmt.Errorf("seal: derive key for %s: %w", purpose, err)
	}
	return key, nil
}

// Make returns fresh random bytes fit for NewKey. It never fails.
func Make() []byte {
	key := make([]byte, KeySize)
	_, _ = rand.Read(key) // never fails
	return key
}
