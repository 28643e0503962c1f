// Package ident makes and parses identifiers: a prefix for the kind of object
// and a UUID of version 7, such as "acc_0192f0c1d2e37a4b8c5d6e7f8091a2b3".
//
// The database stores the UUID. People and other processes see the text.
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

// The kinds of identifiers.
const (
	Account     Kind = "acc"
	Key         Kind = "key"
	Project     Kind = "prj"
	Limit       Kind = "lim"
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
	Session     Kind = "ses"
	LedgerCheck Kind = "chk"
	Bill        Kind = "bil"
)

// UUID is an identifier without its kind.
type UUID [16]byte

// New returns a UUID of version 7 for the current time. UUIDs of later
// milliseconds sort after those of earlier ones.
func New() UUID { return NewAt(time.Now()) }

// NewAt returns a UUID of version 7 for a given time.
func NewAt(now time.Time) UUID {
	var u UUID
	_, _ = rand.Read(u[6:]) // never fails
	ms := uint64(now.UnixMilli())
	binary.BigEndian.PutUint16(u[:2], uint16(ms>>32))
	binary.BigEndian.PutUint32(u[2:6], uint32(ms))
	u[6] = u[6]&0x0f | 0x70
	u[8] = u[8]&0x3f | 0x80
	return u
}

// Time returns the time in the UUID, to the millisecond.
func (u UUID) Time() time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint16(u[:2]))<<32 | int64(binary.BigEndian.Uint32(u[2:6])))
}

// IsZero reports whether u is the zero UUID.
func (u UUID) IsZero() bool { return u == UUID{} }

// New returns a new identifier of the kind.
func (k Kind) New() string { return k.Format(New()) }

// Format returns the text of an identifier of the kind.
func (k Kind) Format(u UUID) string {
	var buffer [48]byte // long enough for every kind, so that only the result is allocated
	text := append(buffer[:0], k...)
	text = append(text, '_')
	return string(hex.AppendEncode(text, u[:]))
}

// Range returns the lowest and the highest UUID whose text forms begin with a text. ok is false for a text with which no
// text form begins.
func (k Kind) Range(prefix string) (lowest, highest UUID, ok bool) {
	at := len(k) + 1
	if len(prefix) < at || len(prefix) > at+2*len(lowest) || prefix[:at-1] != string(k) || prefix[at-1] != '_' {
		return UUID{}, UUID{}, false
	}

	for i := range lowest {
		low, high := [2]byte{}, [2]byte{15, 15}
		for j := range low {
			if p := at + 2*i + j; p < len(prefix) {
				if low[j] = digits[prefix[p]]; low[j] > 15 {
					return UUID{}, UUID{}, false
				}
				high[j] = low[j]
			}
		}
		lowest[i], highest[i] = low[0]<<4|low[1], high[0]<<4|high[1]
	}

	return lowest, highest, true
}

// Parse parses the text of an identifier of the kind.
func (k Kind) Parse(text string) (UUID, error) {
	var u UUID
	at := len(k) + 1
	ok := len(text) == at+2*len(u) && text[:at-1] == string(k) && text[at-1] == '_'
	for i := 0; ok && i < len(u); i++ {
		high, low := digits[text[at+2*i]], digits[text[at+2*i+1]]
		u[i], ok = high<<4|low, high|low < 16
	}
	if !ok {
		return UUID{}, fmt.Errorf("ident: %q is not an identifier: want %s_ and 32 hexadecimal digits", text, k)
	}
	return u, nil
}

// digits has the values of lower-case hexadecimal digits, and 16 for all other
// bytes.
var digits = func() (values [256]byte) {
	for c := range values {
		values[c] = 16
	}
	for value, c := range []byte("0123456789abcdef") {
		values[c] = byte(value)
	}
	return values
}()
