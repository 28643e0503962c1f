package wire

import (
	"net/netip"
	"slices"
	"time"

	"modelgateway/shared/limit"
)

// KeyRules say when and for what a key may be used. The zero value allows everything.
type KeyRules struct {
	// ExpiresMS is when the key stops working, in milliseconds since 1970; zero means never.
	ExpiresMS int64 `json:"expires_ms,omitempty"`
	// Paused means that the key does not work until it is resumed.
	Paused bool `json:"paused,omitempty"`
	// Models has the ids of the models that the key may use. An entry that ends with "*" stands for all ids with the text before
	// it. Empty means all models of the account.
	Models []string `json:"models,omitempty"`
	// Networks has the networks that the key may be used from. Empty means all.
	Networks []netip.Prefix `json:"networks,omitempty"`
}

// Expired reports whether the key has stopped working at a time.
func (r *KeyRules) Expired(now time.Time) bool {
	return r.ExpiresMS != 0 && now.UnixMilli() >= r.ExpiresMS
}

// AllowsModel reports whether the key may use a model.
func (r *KeyRules) AllowsModel(id string) bool {
	return limit.CoversModel(r.Models, id)
}

// AllowsAddress reports whether the key may be used from an address. An address that is not known, the zero one, is in no network.
func (r *KeyRules) AllowsAddress(from netip.Addr) bool {
	return len(r.Networks) == 0 || slices.ContainsFunc(r.Networks, func(n netip.Prefix) bool { return n.Contains(from.Unmap()) })
}
