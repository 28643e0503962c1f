package devstack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"modelgateway/shared/platform/testkit/pgcluster"
)

// Clean removes the stack's directory, and its database if that is elsewhere. It returns an
// error if a stack runs in the directory. A missing directory is not an error.
func Clean(ctx context.Context, l Layout) error {
	if _, err := os.Stat(l.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	release, err := l.lock()
	if err != nil {
		return err
	}
	defer release()
	if err := l.endStale(ctx, func(string, ...any) {}); err != nil {
		return err
	}
	if err := pgcluster.Remove(ctx, l.postgres()); err != nil {
		return err
	}
	if err := os.RemoveAll(l.Dir); err != nil {
		return fmt.Errorf("devstack: %w", err)
	}

	return nil
}
