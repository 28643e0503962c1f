package wire_test

import (
	"net/netip"
	"testing"
	"time"

	"modelgateway/shared/wire"
)

func TestKeyExpiresAtItsInstant(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_800_000_000_000)
	rules := wire.KeyRules{ExpiresMS: at.UnixMilli()}
	if rules.Expired(at.Add(-time.Millisecond)) || !rules.Expired(at) {
		t.Error("the key does not work until its expiry, or works from then on")
	}
	if (&wire.KeyRules{}).Expired(at) {
		t.Error("a key without an expiry has expired")
	}
}

func TestKeyAllowsListedModels(t *testing.T) {
	t.Parallel()
	tests := []struct {
		models []string
		id     string
		want   bool
	}{
		{nil, "any", true},
		{[]string{"a"}, "a", true},
		{[]string{"a"}, "ab", false},
		{[]string{"a*"}, "ab", true},
		{[]string{"a*"}, "a", true},
		{[]string{"x", "claude-*"}, "claude-sonnet", true},
		{[]string{"x", "claude-*"}, "gpt", false},
		{[]string{"*"}, "gpt", true},
	}
	for _, tt := range tests {
		if got := (&wire.KeyRules{Models: tt.models}).AllowsModel(tt.id); got != tt.want {
			t.Errorf("%q, %s: got %v", tt.models, tt.id, got)
		}
	}
}

func TestKeyAllowsListedNetworks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		networks []netip.Prefix
		from     netip.Addr
		want     bool
	}{
		{nil, netip.Addr{}, true},
		{[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, netip.MustParseAddr("10.1.2.3"), true},
		{[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, netip.MustParseAddr("::ffff:10.1.2.3"), true},
		{[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, netip.MustParseAddr("11.0.0.1"), false},
		{[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, netip.Addr{}, false},
		{[]netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}, netip.MustParseAddr("2001:db8::1"), true},
	}
	for _, tt := range tests {
		if got := (&wire.KeyRules{Networks: tt.networks}).AllowsAddress(tt.from); got != tt.want {
			t.Errorf("%v, %v: got %v", tt.networks, tt.from, got)
		}
	}
}
