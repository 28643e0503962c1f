package key

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/propagation"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/ident"
	"modelgateway/shared/wire"
)

// maxOverlap bounds how long the previous secret of a key stays valid.
const maxOverlap = 30 * 24 * time.Hour

// Rotation is the input of Service.Rotate.
type Rotation struct {
	// ID identifies the rotation. Rotating twice with the same id rotates once.
	ID ident.UUID
	// Match is the If-Match condition of the rotation.
	Match etag.Match
	// Overlap is how long the current secret stays valid; zero ends it at once.
	Overlap time.Duration
}

// Validate reports all invalid fields as validation.Errors.
func (r *Rotation) Validate() error {
	var invalid validation.Errors
	if r.Overlap < 0 || r.Overlap > maxOverlap {
		invalid.Add("overlap_seconds", "must be between 0 and %d", int64(maxOverlap.Seconds()))
	}
	return invalid.Err()
}

// check returns an error if the key may not be rotated.
func (r *Rotation) check(k *Key) error {
	if k.RevokedAt != nil {
		return ErrRevoked
	}
	return r.Match.Check(k.Tag())
}

// NewSecret is what a Store has to write for a rotation.
type NewSecret struct {
	Rotation Rotation
	Secret   Secret
	Hint     string
	// Check is called with the locked key, unless it has had this rotation already.
	Check func(*Key) error
}

// Rotated is the result of Rotate.
type Rotated struct {
	Key  Key
	Text string
	// Change is the change that proxies have to apply, and Confirmation the state of its propagation; nil if the key was rotated before by
	// the same rotation.
	Change       *wire.KeyChange
	Confirmation propagation.Confirmation
}

// Rotate gives a key a new secret. The current one stays valid for the overlap;
// one that an earlier rotation has replaced ends at once, so a key never has more
// than two secrets. The id, the spending, the limits and the rules stay. Proxies
// that do not confirm the change in time receive it with their next heartbeat.
func (s *Service) Rotate(ctx context.Context, id ID, r Rotation) (Rotated, error) {
	if err := r.Validate(); err != nil {
		return Rotated{}, err
	}

	text := s.cfg.Hasher.Generate()
	next := NewSecret{
		Rotation: r,
		Secret:   s.secret(id, text),
		Hint:     text[len(text)-hintLen:],
		Check:    r.check,
	}
	k, sealed, change, err := s.cfg.Store.Rotate(ctx, id, &next)
	if err != nil {
		return Rotated{}, err
	}

	// A repeated call has to return the text of the first one.
	if text, err = s.open(id, sealed); err != nil {
		return Rotated{}, err
	}

	rotated := Rotated{Key: k, Text: text, Change: change}
	if change != nil {
		confirming, cancel := context.WithTimeout(ctx, s.cfg.ConfirmTimeout)
		defer cancel()
		rotated.Confirmation = s.announce(confirming, id, *change)
	}

	return rotated, nil
}

// secret returns the stored form of a text.
func (s *Service) secret(id ID, text string) Secret {
	return Secret{Hash: s.cfg.Hasher.Hash(text), Pepper: s.cfg.Hasher.ID(), Sealed: s.cfg.Vault.Seal([]byte(text), id.context())}
}
