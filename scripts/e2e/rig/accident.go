package rig

import (
	"context"
	"fmt"
	"syscall"
	"testing"
)

// The parts of the stack that can have an accident.
const (
	ControlPlane = "controlplane"
	DataPlane1   = "dp-1"
	DataPlane2   = "dp-2"
)

// Kill ends a part as a crash would. The stack starts it again.
func (r *Rig) Kill(t *testing.T, part string) (restarted func()) {
	t.Helper()
	return r.signal(t, part, syscall.SIGKILL)
}

// Terminate asks a part to end in order. The stack starts it again.
func (r *Rig) Terminate(t *testing.T, part string) (restarted func()) {
	t.Helper()
	return r.signal(t, part, syscall.SIGTERM)
}

// signal returns a function that waits until the part runs again and is ready.
func (r *Rig) signal(t *testing.T, part string, signal syscall.Signal) (restarted func()) {
	t.Helper()
	before := r.stack.State().PIDs[part]
	if err := syscall.Kill(before, signal); err != nil {
		t.Fatalf("signal %s: %v", part, err)
	}
	return func() {
		t.Helper()
		Await(t, part+" to run again", func(context.Context) error {
			if pid := r.stack.State().PIDs[part]; pid == before {
				return fmt.Errorf("it has not been started anew since pid %d", pid)
			}
			return nil
		})
	}
}
