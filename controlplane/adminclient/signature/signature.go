// Package signature signs and verifies webhooks with the scheme of Standard Webhooks, version 1.
//
// A message has an id, a time in Unix seconds and a body. The signature is the HMAC-SHA-256 of "id.seconds.body". A
// receiver accepts a message if one of its signatures is valid under one of the receiver's secrets and the time is within
// a tolerance, so that a recorded message cannot be replayed later. Replays within the tolerance and repeated deliveries
// have the same id.
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

// Tolerance is the greatest accepted difference between a message's time and the receiver's clock.
const Tolerance = 5 * time.Minute

const (
	prefix  = "whsec_"
	version = "v1"
	keySize = 32
	// minKeySize is the least size of a secret, in bytes.
	minKeySize = 16
)

// The errors of Verify. They contain no part of the message.
var (
	ErrHeaders   = errors.New("signature: a header is missing or malformed")
	ErrTime      = errors.New("signature: the message is too old or from the future")
	ErrSignature = errors.New("signature: no valid signature")
)

// Secret is the key that both sides have. Printing it does not show the key.
type Secret struct{ key []byte }

// NewSecret returns a random secret.
func NewSecret() Secret {
	s := Secret{make([]byte, keySize)}
	_, _ = rand.Read(s.key) // never returns an error
	return s
}

// ParseSecret parses the text of a secret: "whsec_" and at least 16 bytes in base64.
func ParseSecret(text string) (Secret, error) {
	digits, ok := strings.CutPrefix(strings.TrimSpace(text), prefix)
	key, err := base64.StdEncoding.DecodeString(digits)
	if !ok || err != nil || len(key) < minKeySize {
		return Secret{}, fmt.Errorf("signature: a secret is %q and at least %d bytes in base64", prefix, minKeySize)
	}
	return Secret{key}, nil
}

// Text returns the secret as a receiver configures it.
func (s Secret) Text() string { return prefix + base64.StdEncoding.EncodeToString(s.key) }

// String hides the secret.
func (Secret) String() string { return "signature.Secret" }

// GoString hides the secret.
func (Secret) GoString() string { return "signature.Secret" }

// sum returns the signature of a message.
func (s Secret) sum(id, seconds string, body []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	for _, part := range [][]byte{[]byte(id), {'.'}, []byte(seconds), {'.'}, body} {
		_, _ = mac.Write(part) // never returns an error
	}
	return mac.Sum(nil)
}

// Sign sets the headers of a message, with a signature for each secret: during a rotation a receiver may have the old or
// the new one.
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

// Verify checks a received message and returns its id, which repeated deliveries share. An error is ErrHeaders, ErrTime or
// ErrSignature.
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
			continue // a version that this receiver does not support
		}
		for _, s := range secrets {
			if hmac.Equal(given, s.sum(id, stamp, body)) {
				return id, nil
			}
		}
	}

	return "", ErrSignature
}
