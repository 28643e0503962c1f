package httpapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// Identity turns a client's identifiers into the gateway's own: the same for
// one account, unlinkable between accounts. The secret is the fleet's.
type Identity struct{ Secret []byte }

// Of returns the identity of an account.
func (i Identity) Of(account string) AccountIdentity { return AccountIdentity{i.Secret, account} }

// AccountIdentity makes the identifiers of one account.
type AccountIdentity struct {
	secret  []byte
	account string
}

// identifierSize is 48 hexadecimal digits: formats allow 64 characters.
const identifierSize = 24

// Hash replaces an identifier of a client.
func (a AccountIdentity) Hash(value string) string {
	m := hmac.New(sha256.New, a.secret)
	_, _ = m.Write([]byte(a.account)) // never fails
	_, _ = m.Write([]byte{0})
	_, _ = m.Write([]byte(value))
	return hex.EncodeToString(m.Sum(nil)[:identifierSize])
}

// Pseudonym stands for the account itself.
func (a AccountIdentity) Pseudonym() string { return a.Hash("") }
