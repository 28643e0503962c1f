package rig

import (
	"errors"
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

// Test binaries that run side by side have processes with numbers that are close together.
func TestProcessesSearchInDifferentPlaces(t *testing.T) {
	t.Parallel()
	for slots := 100; slots <= 200; slots++ {
		seen := map[int]bool{}
		for process := range slots {
			seen[slotOf(4_113_000+process, 1, slots)] = true
		}
		if len(seen) < slots/2 {
			t.Errorf("%d processes search in %d places of %d", slots, len(seen), slots)
		}
	}
}

// A part that finds its port taken says so in its log only.
func TestStackIsStartedElsewhereIfAPortWasTaken(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"start controlplane: the process ended: ops: listen tcp 127.0.0.1:21286: bind: address already in use": true,
		"start controlplane: the process ended: no such table":                                                 false,
	} {
		if isPortTaken(errors.New(text)) != want {
			t.Errorf("%s: want %v", text, want)
		}
	}
}
