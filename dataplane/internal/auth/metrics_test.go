package auth

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"modelgateway/shared/wire"
)

func TestLookupsInTheCacheAreCountedByResult(t *testing.T) {
	t.Parallel()
	k, plane := setup(t)
	known, hash := plane.add(k)
	lookup(t, k, known, nil) // a miss
	lookup(t, k, known, nil) // a hit
	k.Apply(plane.change(wire.KeyRevoked, hash))
	lookup(t, k, known, ErrInvalid)
	if hits, misses, refused := testutil.ToFloat64(k.cacheUse.hits), testutil.ToFloat64(k.cacheUse.misses), testutil.ToFloat64(k.cacheUse.refused); hits != 1 || misses != 1 || refused != 1 {
		t.Errorf("%v hits, %v misses, %v refused; want one of each", hits, misses, refused)
	}
}
