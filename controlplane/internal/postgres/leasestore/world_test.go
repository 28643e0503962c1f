package leasestore_test

import (
	"testing"

	"modelgateway/controlplane/internal/postgres/storetest"
)

// leaseWorld has further steps of these tests.
type leaseWorld struct{ *storetest.World }

func newLeaseWorld(t testing.TB) *leaseWorld {
	t.Helper()
	return &leaseWorld{storetest.New(t)}
}
