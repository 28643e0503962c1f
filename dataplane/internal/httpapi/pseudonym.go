// Package pseudonym replaces the identifiers of clients by pseudonyms.
package pseudonym

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// Source replaces a client's identifiers by pseudonyms that are stable within an account and cannot be linked between
// accounts. All proxies share the secret.
type Source struct{ Secret []byte }

// Of returns the pseudonyms of an account.
func (s Source) Of(account string) Account { return Account{s.Secret, account} }

// Account makes the pseudonyms of one account.
type Account struct {
	secret  []byte
	account string
}

// pseudonymSize is the size of a pseudonym in bytes. It makes 48 hexadecimal digits; formats allow 64 characters.
const pseudonymSize = 24

// Hash returns the pseudonym of a client's identifier: 48 hexadecimal digits.
func (a Account) Hash(value string) string {
	m := hmac.New(sha256.New, a.secret)
	_, _ = m.Write([]byte(a.account)) // never fails
	_, _ = m.Write([]byte{0})
	_, _ = m.Write([]byte(value))
	return hex.EncodeToString(m.Sum(nil)[:pseudonymSize])
}

// Pseudonym returns the pseudonym of the account itself.
func (a Account) Pseudonym() string { return a.Hash("") }
