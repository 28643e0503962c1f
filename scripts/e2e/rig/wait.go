package rig

import (
	"context"
	"testing"
	"time"
)

// waitLimit bounds every wait for something that comes by itself. It is far
// longer than anything should take, for machines with other work.
const waitLimit = 2 * time.Minute

// Await asks, ever more slowly, until check returns nil, and fails the test
// with its last answer when that takes too long.
func Await(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	if err := await(t.Context(), check); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

func await(ctx context.Context, check func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	const first, last = 2 * time.Millisecond, 200 * time.Millisecond
	for pause := first; ; pause = min(2*pause, last) {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}
