package admin_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"modelgateway/controlplane/internal/admin"
)

// locked returns how long an attempt is locked out; zero if it is not.
func locked(t *testing.T, err error) time.Duration {
	t.Helper()
	if err == nil {
		return 0
	}
	var l *admin.LockedError
	if !errors.As(err, &l) || !errors.Is(err, admin.ErrLocked) || l.RetryAfter <= 0 {
		t.Fatalf("got %v; want a LockedError with a time", err)
	}
	return l.RetryAfter
}

func TestGuardLocksAnAddress(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	g := admin.NewGuard(func() time.Time { return now })
	bad, good := admin.Hash{1}, admin.Hash{2}
	here, there := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for range 10 {
		if got := locked(t, g.Check(here, bad)); got != 0 {
			t.Fatalf("locked out for %s before the tenth failure", got)
		}
		if locked(t, g.Failed(here, bad)) != 0 {
			t.Fatal("a failure is taken for a flood")
		}
	}
	wait := locked(t, g.Check(here, bad))
	if wait != 30*time.Second {
		t.Errorf("locked out for %s; want 30s", wait)
	}
	if locked(t, g.Check(there, good)) != 0 {
		t.Error("another address is locked out, too")
	}
	g.Good(good)
	if locked(t, g.Check(here, good)) != 0 {
		t.Error("a token that has been good is locked out with its neighbour")
	}
	if locked(t, g.Failed(here, good)) != 0 || locked(t, g.Check(here, good)) == 0 {
		t.Error("a token that is not good any more keeps its privilege")
	}
	now = now.Add(wait)
	if locked(t, g.Check(here, bad)) != 0 {
		t.Error("still locked out after the time that was told")
	}
}

// During a flood from many addresses, each address has one attempt, and good tokens from other
// addresses pass.
func TestGuardAcceptsGoodTokensUnderAFlood(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	g := admin.NewGuard(func() time.Time { return now })
	refused := 0
	for i := range 20_000 {
		from := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		if locked(t, g.Check(from, admin.Hash{1})) != 0 {
			t.Fatalf("address %d has no attempt at all", i)
		}
		if locked(t, g.Failed(from, admin.Hash{1})) != 0 {
			refused++
		}
	}
	if refused != 20_000-200 {
		t.Errorf("%d of 20000 were told to wait; want all but 200", refused)
	}
	last := netip.MustParseAddr("10.0.78.31")
	if locked(t, g.Check(last, admin.Hash{1})) == 0 {
		t.Error("an address has a second attempt in a flood")
	}
	if locked(t, g.Check(netip.MustParseAddr("192.0.2.9"), admin.Hash{2})) != 0 {
		t.Error("a flood locks out an address that has not failed")
	}
}

func TestGuardCountsAnIPv6NetworkAsOneAddress(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	g := admin.NewGuard(func() time.Time { return now })
	for i := range 10 {
		a := netip.MustParseAddr("2001:db8::").As16()
		a[15] = byte(i)
		locked(t, g.Failed(netip.AddrFrom16(a), admin.Hash{1}))
	}
	if locked(t, g.Check(netip.MustParseAddr("2001:db8::ffff"), admin.Hash{1})) == 0 {
		t.Error("a network of IPv6 has an attempt for each address")
	}
	if locked(t, g.Check(netip.MustParseAddr("2001:db8:1::1"), admin.Hash{1})) != 0 {
		t.Error("another network is locked out, too")
	}
}
