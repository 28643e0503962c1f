package devstack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"modelgateway/scripts/testkit/pgcluster"
)

// Clean removes everything that the stack wrote: its directory, and a database
// that lies elsewhere. A stack that runs in the directory is an error; that
// there is none is fine.
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
