// Package seal encrypts secrets, in messages between the planes and in the
// database, with AES-256-GCM and a random nonce.
//
// A context, such as "credential:crd_…", is authenticated with the secret, so
// that a sealed secret cannot be moved to another row or entry.
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

// KeySize is the length of keys in bytes.
const KeySize = 32

// ErrOpen means that a sealed secret was modified, or was sealed with another key
// or context.
var ErrOpen = errors.New("seal: cannot be decrypted with this key and context")

// Key encrypts and decrypts secrets. It is safe for concurrent use and is never
// printed.
type Key struct{ aead cipher.AEAD }

// NewKey returns the Key for a secret of KeySize bytes.
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

// Seal encrypts a secret and authenticates context with it.
func (k *Key) Seal(secret []byte, context string) []byte {
	return k.aead.Seal(nil, nil, secret, []byte(context))
}

// Open decrypts a sealed secret. It returns ErrOpen unless key and context are
// those of Seal.
func (k *Key) Open(sealed []byte, context string) ([]byte, error) {
	secret, err := k.aead.Open(nil, nil, sealed, []byte(context))
	if err != nil {
		return nil, ErrOpen
	}
	return secret, nil
}

// Keys open what was sealed with any of them. While one key replaces another, both are listed.
type Keys []*Key

// Open decrypts a sealed secret. It returns ErrOpen unless one of the keys and the
// context are those of Seal.
func (k Keys) Open(sealed []byte, context string) ([]byte, error) {
	for _, key := range k {
		if secret, err := key.Open(sealed, context); err == nil {
			return secret, nil
		}
	}
	return nil, ErrOpen
}

// String returns a placeholder.
func (*Key) String() string { return "seal.Key" }

// Derive derives a key of KeySize bytes for one purpose from a master secret, so
// that a deployment needs one secret for several purposes.
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

// NewSecret returns KeySize random bytes.
func NewSecret() []byte {
	key := make([]byte, KeySize)
	_, _ = rand.Read(key) // never fails
	return key
}
