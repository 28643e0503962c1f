package rig

import (
	"context"
	"testing"
	"time"
)

// waitLimit bounds every wait. It is far longer than anything should take, for machines under
// load.
const waitLimit = 2 * time.Minute

// Await calls check with growing pauses until it returns nil. After waitLimit it fails the
// test with the last error.
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
