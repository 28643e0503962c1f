package httpapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// Pseudonyms replaces a client's identifiers by pseudonyms that are stable within an account and cannot be linked between
// accounts. All proxies share the secret.
type Pseudonyms struct{ Secret []byte }

// Of returns the pseudonyms of an account.
func (s Pseudonyms) Of(account string) AccountPseudonyms { return AccountPseudonyms{s.Secret, account} }

// AccountPseudonyms makes the pseudonyms of one account.
type AccountPseudonyms struct {
	secret  []byte
	account string
}

// pseudonymSize is the size of a pseudonym in bytes. It makes 48 hexadecimal digits; formats allow 64 characters.
const pseudonymSize = 24

// Hash returns the pseudonym of a client's identifier: 48 hexadecimal digits.
func (a AccountPseudonyms) Hash(value string) string {
	m := hmac.New(sha256.New, a.secret)
	_, _ = m.Write([]byte(a.account)) // never fails
	_, _ = m.Write([]byte{0})
	_, _ = m.Write([]byte(value))
	return hex.EncodeToString(m.Sum(nil)[:pseudonymSize])
}

// Pseudonym returns the pseudonym of the account itself.
func (a AccountPseudonyms) Pseudonym() string { return a.Hash("") }
