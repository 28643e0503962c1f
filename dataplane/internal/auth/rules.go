package auth

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"modelgateway/shared/pulse"
)

// InactiveError is an ErrInvalid for a key that exists but may not be used. Of a revoked key and of a suspended account the client
// gets the answer for an unknown key; those who run the gateway see whose request it was.
type InactiveError struct {
	Key *Key
	// Reason is one of the reasons of package pulse: ReasonKeyInactive, ReasonKeyRotated, ReasonKeyPaused, ReasonKeyExpired
	// or ReasonKeyNetwork.
	Reason string
	// From is the client's address, for ReasonKeyNetwork.
	From netip.Addr
}

func (e *InactiveError) Error() string { return ErrInvalid.Error() + ": " + e.Reason }

// Is reports whether the error is ErrInvalid, too.
func (*InactiveError) Is(target error) bool { return target == ErrInvalid }

// Ended reports whether an error means that running requests of the key have to end: it was revoked, or its account was suspended.
// Requests of a key that is rotated, paused, expired or used from another network since then go on to their end.
func Ended(err error) bool {
	inactive, ok := errors.AsType[*InactiveError](err)
	return errors.Is(err, ErrInvalid) && (!ok || inactive.Reason == pulse.ReasonKeyInactive)
}

// ModelError says that a key may not use a model.
type ModelError struct{ Model string }

func (e *ModelError) Error() string {
	return fmt.Sprintf("auth: the key may not use the model %q", e.Model)
}

// Use is what a request uses a key for.
type Use interface {
	// ClientAddress is the client's address, the zero address if it is not known.
	ClientAddress() netip.Addr
	// ModelID is the id of the model, empty before it is known.
	ModelID() string
}

// Usable returns nil if the key may be used now, as far as its record says, or an InactiveError.
func (k *Key) Usable() error {
	if reason := pulse.KeyReason(&k.KeyRecord, time.Now); reason != "" {
		return &InactiveError{Key: k, Reason: reason}
	}
	return nil
}

// Permits returns nil if the rules of the key allow a use, or an InactiveError or a ModelError.
func (k *Key) Permits(use Use) error {
	if len(k.Rules.Networks) > 0 {
		if from := use.ClientAddress(); !k.Rules.AllowsAddress(from) {
			return &InactiveError{Key: k, Reason: pulse.ReasonKeyNetwork, From: from}
		}
	}
	if len(k.Rules.Models) > 0 {
		if id := use.ModelID(); id != "" && !k.Rules.AllowsModel(id) {
			return &ModelError{id}
		}
	}
	return nil
}
