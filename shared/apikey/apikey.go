// Package apikey defines the format of API keys and their lookup hash.
//
// A key has 42 characters: "mgw_", 26 random base62 characters, a MAC of 6, and a
// CRC-32 of all these in 6. The checksum rejects mistyped keys before any lookup;
// it does not protect against forgery. The MAC does: only who knows the pepper can
// compute it, so a proxy tells most forged keys from issued ones without a lookup.
//
// Keys that were imported, or issued before there was a MAC, have 6 more random
// characters in its place. Keys issued under a pepper that is not configured any
// more have a MAC that cannot be checked. Both remain good.
package apikey

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
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
	macLen    = 6 // the last ones of the secret
	sumLen    = 6
	textLen   = len(prefix) + secretLen + sumLen
	alphabet  = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// ErrMalformed means that a text cannot be a key.
var ErrMalformed = errors.New("apikey: not a key")

// Generate returns a random key without a MAC, as other systems make them for an
// import. New keys come from Hasher.Generate.
func Generate() string { return string(appendSum(appendRandom(nil, secretLen))) }

// appendRandom appends the prefix and n random characters.
func appendRandom(text []byte, n int) []byte {
	text = append(text, prefix...)
	n += len(text)
	var pool [64]byte
	for len(text) < n {
		_, _ = rand.Read(pool[:]) // never fails
		for _, b := range pool {
			// 248 is the greatest multiple of 62 in a byte, so all characters are equally likely.
			if b < 248 && len(text) < n {
				text = append(text, alphabet[b%62])
			}
		}
	}
	return text
}

func appendSum(text []byte) []byte {
	return appendDigits(text, uint64(crc32.ChecksumIEEE(text)))
}

// appendDigits appends the last six base62 digits of a number.
func appendDigits(text []byte, n uint64) []byte {
	var digits [sumLen]byte
	for i := sumLen - 1; i >= 0; i-- {
		digits[i] = alphabet[n%62]
		n /= 62
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
	message [len(macContext) + textLen]byte
	sum     Hash
}

// Hash returns the lookup hash of the text of a key.
func (h *Hasher) Hash(text string) Hash {
	m := h.macs.Get().(*mac)
	defer h.macs.Put(m)
	m.Reset()
	_, _ = m.Write(append(m.message[:0], text...)) // never fails
	m.Sum(m.sum[:0])
	clear(m.message[:])
	return m.sum
}

// Generate returns a new random key with a MAC under the pepper.
func (h *Hasher) Generate() string {
	text := appendRandom(make([]byte, 0, textLen), secretLen-macLen)
	return string(appendSum(h.appendMAC(text)))
}

// HasMAC reports whether a key, which Check accepts, has a MAC under the pepper.
// Of the keys without one, about one in 57 billion has it by chance.
func (h *Hasher) HasMAC(text string) bool {
	var want [textLen]byte
	end := textLen - sumLen
	return hmac.Equal(h.appendMAC(append(want[:0], text[:end-macLen]...)), []byte(text[:end]))
}

// macContext separates the MAC from lookup hashes, whose messages begin with the
// prefix of keys.
const macContext = "MAC of the key "

// appendMAC appends the MAC of an incomplete key.
func (h *Hasher) appendMAC(text []byte) []byte {
	m := h.macs.Get().(*mac)
	defer h.macs.Put(m)
	m.Reset()
	_, _ = m.Write(append(append(m.message[:0], macContext...), text...)) // never fails
	m.Sum(m.sum[:0])
	clear(m.message[:])
	return appendDigits(text, binary.BigEndian.Uint64(m.sum[:]))
}
