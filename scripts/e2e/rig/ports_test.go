package rig

import (
	"sync"
	"testing"

	"modelgateway/scripts/devstack"
)

// Stacks that one process starts at the same time get different ports, though none listens yet.
func TestConcurrentStacksGetDifferentPorts(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]int{}
	var starts sync.WaitGroup
	for i := range 16 {
		starts.Go(func() {
			planes := devstack.DefaultPlanes()
			planes.Control += i % 2 // other numbers of ports
			ports, err := freePorts(t.Context(), planes)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			seen[ports.Postgres.Address()]++
		})
	}
	starts.Wait()
	for address, n := range seen {
		if n > 1 {
			t.Errorf("%d stacks got %s", n, address)
		}
	}
}
