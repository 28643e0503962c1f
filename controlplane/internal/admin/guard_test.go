package admin_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"modelgateway/controlplane/internal/admin"
)

// locked returns how long a failed attempt is asked to wait; zero if it is not.
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
	bad := admin.Hash{1}
	here, there := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for range 10 {
		if got := locked(t, g.Failed(here, bad)); got != 0 {
			t.Fatalf("locked for %s before the eleventh failure", got)
		}
	}
	wait := locked(t, g.Failed(here, bad))
	if wait != 30*time.Second {
		t.Errorf("locked for %s; want 30s", wait)
	}
	if locked(t, g.Failed(there, bad)) != 0 {
		t.Error("another address is locked, too")
	}
	now = now.Add(wait)
	if locked(t, g.Failed(here, bad)) != 0 {
		t.Error("still locked after the time in the error")
	}
	if locked(t, g.Failed(here, bad)) == 0 {
		t.Error("a second failure is free after the wait for one")
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
	if locked(t, g.Failed(netip.MustParseAddr("2001:db8::ffff"), admin.Hash{1})) == 0 {
		t.Error("a network of IPv6 has a budget for each address")
	}
	if locked(t, g.Failed(netip.MustParseAddr("2001:db8:1::1"), admin.Hash{1})) != 0 {
		t.Error("another network is locked, too")
	}
}

func TestGuardKeepsItsMemoryBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	g := admin.NewGuard(func() time.Time { return now })
	for i := range 30_000 {
		from := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		if locked(t, g.Failed(from, admin.Hash{1})) != 0 {
			t.Fatalf("the first failure of address %d is locked", i)
		}
	}
	if got := g.Addresses(); got > 10_000 {
		t.Errorf("%d addresses are remembered; want at most 10000", got)
	}
}

// Tokens that were accepted lately do not wait behind lookups of unknown ones.
func TestAcceptedTokensAreNotQueuedBehindForgedOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := admin.NewGuard(time.Now)
		good := admin.Hash{255}
		g.Accepted(good)
		entered := 0
		for {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := g.Enter(ctx, admin.Hash{byte(entered)})
			cancel()
			if err != nil {
				break
			}
			entered++
		}
		if entered != 4 {
			t.Errorf("%d unknown tokens are looked up at once; want 4", entered)
		}
		leave, err := g.Enter(t.Context(), good)
		if err != nil {
			t.Fatal(err)
		}
		leave()
		time.Sleep(2 * time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := g.Enter(ctx, good); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a token that was accepted two hours ago: %v; want it to wait", err)
		}
	})
}
