// Package apikey defines the format of API keys and their lookup hash.
//
// A key is "mgw_", 32 random base62 characters and the CRC-32 of both in 6
// base62 characters. The checksum rejects mistyped keys and most guesses of
// scanners before any lookup; it does not protect against forgery.
package apikey

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"sync"
)

const (
	prefix    = "mgw_"
	secretLen = 32
	sumLen    = 6
	textLen   = len(prefix) + secretLen + sumLen
	alphabet  = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// ErrMalformed means that a text cannot be a key.
var ErrMalformed = errors.New("apikey: not a key")

// Generate returns a new random key.
func Generate() string {
	text := make([]byte, 0, textLen)
	text = append(text, prefix...)
	var pool [64]byte
	for len(text) < len(prefix)+secretLen {
		_, _ = rand.Read(pool[:]) // never fails
		for _, b := range pool {
			// 248 is the greatest multiple of 62 in a byte, so all characters are equally likely.
			if b < 248 && len(text) < len(prefix)+secretLen {
				text = append(text, alphabet[b%62])
			}
		}
	}
	return string(appendSum(text))
}

func appendSum(text []byte) []byte {
	sum := crc32.ChecksumIEEE(text)
	var digits [sumLen]byte
	for i := sumLen - 1; i >= 0; i-- {
		digits[i] = alphabet[sum%62]
		sum /= 62
	}
	return append(text, digits[:]...)
}

// Check returns ErrMalformed unless text has the form and checksum of a key.
func Check(text string) error {
	if len(text) != textLen || text[:len(prefix)] != prefix {
		return ErrMalformed
	}
	for i := len(prefix); i < textLen; i++ {
		c := text[i]
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return ErrMalformed
		}
	}
	var want [textLen]byte
	if string(appendSum(append(want[:0], text[:textLen-sumLen]...))) != text {
		return ErrMalformed
	}
	return nil
}

// Hash is the lookup hash of a key: its HMAC-SHA-256 under a pepper.
type Hash [sha256.Size]byte

// String returns the hash in lower-case hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText returns the hash in lower-case hexadecimal.
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText is the inverse of MarshalText.
func (h *Hash) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(h) {
		return fmt.Errorf("apikey: a hash has %d hexadecimal digits, not %d", 2*len(h), len(text))
	}
	if _, err := hex.Decode(h[:], text); err != nil {
		return fmt.Errorf("apikey: decode hash: %w", err)
	}
	return nil
}

// Hasher computes lookup hashes under one pepper. It is safe for concurrent use.
type Hasher struct {
	macs sync.Pool
	id   string
}

// NewHasher returns a Hasher for the pepper, which must have at least 16 bytes.
func NewHasher(pepper []byte) (*Hasher, error) {
	if len(pepper) < 16 {
		return nil, fmt.Errorf("apikey: the pepper has %d bytes; at least 16 are needed", len(pepper))
	}
	pepper = append([]byte(nil), pepper...)
	// No key has this text, so the id is not the lookup hash of a key.
	name := hmac.New(sha256.New, pepper)
	_, _ = name.Write([]byte("the name of this pepper")) // never fails
	return &Hasher{
		macs: sync.Pool{New: func() any { return &mac{Hash: hmac.New(sha256.New, pepper)} }},
		id:   hex.EncodeToString(name.Sum(nil)[:8]),
	}, nil
}

// ID identifies the pepper without revealing it.
func (h *Hasher) ID() string { return h.id }

type mac struct {
	hash.Hash
	text [textLen]byte
	sum  Hash
}

// Hash returns the lookup hash of the text of a key.
func (h *Hasher) Hash(text string) Hash {
	m := h.macs.Get().(*mac)
	defer h.macs.Put(m)
	m.Reset()
	_, _ = m.Write(append(m.text[:0], text...)) // never fails
	m.Sum(m.sum[:0])
	clear(m.text[:])
	return m.sum
}
