// Package ident owns the identifiers of the product: a UUID of version 7
// behind a prefix that tells what it names, such as
// "acc_0192f0c1d2e37a4b8c5d6e7f8091a2b3".
//
// The database holds the bare UUID; everything that a person or another
// process sees is the text form.
package ident

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"
)

// Kind is the prefix of an identifier.
type Kind string

// The kinds there are.
const (
	Account     Kind = "acc"
	Key         Kind = "key"
	Provider    Kind = "prv"
	Credential  Kind = "crd"
	Route       Kind = "rte"
	Request     Kind = "req"
	Video       Kind = "video"
	Transaction Kind = "txn"
	Token       Kind = "tok"
	Endpoint    Kind = "whe"
	Event       Kind = "evt"
	Delivery    Kind = "dlv"
	Rotation    Kind = "rot"
)

// UUID is the 16 bytes of an identifier.
type UUID [16]byte

// New returns a UUID of version 7 for the present time: identifiers made later
// sort later, to the millisecond.
func New() UUID { return At(time.Now()) }

// At is New for a given time.
func At(now time.Time) UUID {
	var u UUID
	_, _ = rand.Read(u[6:]) // never fails
	ms := uint64(now.UnixMilli())
	binary.BigEndian.PutUint16(u[:2], uint16(ms>>32))
	binary.BigEndian.PutUint32(u[2:6], uint32(ms))
	u[6] = u[6]&0x0f | 0x70
	u[8] = u[8]&0x3f | 0x80
	return u
}

// Time is when the identifier was made, to the millisecond.
func (u UUID) Time() time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint16(u[:2]))<<32 | int64(binary.BigEndian.Uint32(u[2:6])))
}

// IsZero tells whether u is the zero UUID, which names nothing.
func (u UUID) IsZero() bool { return u == UUID{} }

// New returns the text of a new identifier of the kind.
func (k Kind) New() string { return k.Format(New()) }

// Format writes the identifier's text.
func (k Kind) Format(u UUID) string {
	var room [48]byte // enough for every kind there is, so that only the text itself costs memory
	text := append(room[:0], k...)
	text = append(text, '_')
	return string(hex.AppendEncode(text, u[:]))
}

// Parse reads an identifier of the kind from its text.
func (k Kind) Parse(text string) (UUID, error) {
	var u UUID
	at := len(k) + 1
	ok := len(text) == at+2*len(u) && text[:at-1] == string(k) && text[at-1] == '_'
	for i := 0; ok && i < len(u); i++ {
		high, low := digit(text[at+2*i]), digit(text[at+2*i+1])
		u[i], ok = high<<4|low, high|low < 16
	}
	if !ok {
		return UUID{}, fmt.Errorf("ident: %q is not an identifier of the form %s_ and 32 hexadecimal digits", text, k)
	}
	return u, nil
}

// digit is the value of a lower-case hexadecimal digit, or 16 and more.
func digit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	default:
		return 16
	}
}
