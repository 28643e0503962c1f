// Package signature owns how webhooks are signed and how a receiver checks
// them: the scheme of Standard Webhooks, version 1.
//
// A message has an id, the second at which it was sent, and a body. Signed is
// "id.seconds.body" by HMAC-SHA-256. A message is taken for genuine if one of
// its signatures is good under one of the receiver's secrets and the time is
// within a tolerance, so that a recorded one cannot be sent again later. Within
// the tolerance, and when a delivery is repeated, the id tells what was seen.
package signature

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of a webhook.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

// Tolerance is how far a message's time may be from the receiver's clock.
const Tolerance = 5 * time.Minute

const (
	prefix  = "whsec_"
	version = "v1"
	keySize = 32
	// minKeySize is the least that a secret of another make may have.
	minKeySize = 16
)

// The errors of Verify. None of them holds what was received.
var (
	ErrHeaders   = errors.New("signature: a header is missing or malformed")
	ErrTime      = errors.New("signature: the message is too old or from the future")
	ErrSignature = errors.New("signature: no signature is good")
)

// Secret is what both sides sign with. It never prints.
type Secret struct{ key []byte }

// NewSecret returns a random secret.
func NewSecret() Secret {
	s := Secret{make([]byte, keySize)}
	_, _ = rand.Read(s.key) // never fails
	return s
}

// ParseSecret reads the text of a secret, "whsec_" and base64.
func ParseSecret(text string) (Secret, error) {
	digits, ok := strings.CutPrefix(strings.TrimSpace(text), prefix)
	key, err := base64.StdEncoding.DecodeString(digits)
	if !ok || err != nil || len(key) < minKeySize {
		return Secret{}, fmt.Errorf("signature: a secret is %q and at least %d bytes in base64", prefix, minKeySize)
	}
	return Secret{key}, nil
}

// Text is the secret as a receiver configures it.
func (s Secret) Text() string { return prefix + base64.StdEncoding.EncodeToString(s.key) }

// String hides the secret.
func (Secret) String() string { return "signature.Secret" }

// GoString hides the secret.
func (Secret) GoString() string { return "signature.Secret" }

// sum is the signature of one message under the secret.
func (s Secret) sum(id, seconds string, body []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	for _, part := range [][]byte{[]byte(id), {'.'}, []byte(seconds), {'.'}, body} {
		_, _ = mac.Write(part) // never fails
	}
	return mac.Sum(nil)
}

// Sign sets the headers of a message: one signature for each secret, so that
// a receiver may know either of two while one takes the place of the other.
func Sign(h http.Header, id string, at time.Time, body []byte, secrets ...Secret) {
	seconds := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(secrets))
	for i, s := range secrets {
		signatures[i] = version + "," + base64.StdEncoding.EncodeToString(s.sum(id, seconds, body))
	}
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, seconds)
	h.Set(HeaderSignature, strings.Join(signatures, " "))
}

// Verify checks a received message at a time and returns its id, which is the
// same whenever the message is delivered again.
func Verify(h http.Header, body []byte, now time.Time, secrets ...Secret) (id string, err error) {
	id, stamp := h.Get(HeaderID), h.Get(HeaderTimestamp)
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if id == "" || err != nil || h.Get(HeaderSignature) == "" {
		return "", ErrHeaders
	}
	if sent := time.Unix(seconds, 0); now.Sub(sent) > Tolerance || sent.Sub(now) > Tolerance {
		return "", ErrTime
	}
	for text := range strings.FieldsSeq(h.Get(HeaderSignature)) {
		digits, ok := strings.CutPrefix(text, version+",")
		given, err := base64.StdEncoding.DecodeString(digits)
		if !ok || err != nil {
			continue // of a version that this receiver does not know
		}
		for _, s := range secrets {
			if hmac.Equal(given, s.sum(id, stamp, body)) {
				return id, nil
			}
		}
	}
	return "", ErrSignature
}
