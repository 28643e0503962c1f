package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"modelgateway/scripts/e2e/rig"
)

// An older copy of Postgres takes its place, as in a failover to a standby that
// lagged: what was committed since is gone, usage that had been settled too. It
// is found out, nothing is granted until everyone who may run is known, and all
// usage is settled once more, and once.
func TestChaos_pg_failover_with_loss(t *testing.T) {
	long(t)
	for name, lost := range map[string]int{"short": 30, "long": 600} {
		t.Run(name, func(t *testing.T) { failOver(t, lost) })
	}
}

func failOver(t *testing.T, lost int) {
	t.Helper()
	r := rig.Start(t, rig.Options{ControlSettings: shortSessions()}) // models and accounts of other tests would be lost
	l := startLoadOn(t, r, clients)
	l.await(t, 60, answered)
	copied := filepath.Join(t.TempDir(), "postgres")
	r.RestartPostgres(t, func(dir string) error { return copyTree(t, dir, copied) })
	before := l.settled(t, 0)
	l.settled(t, before+lost)
	r.RestartPostgres(t, func(dir string) error { return errors.Join(os.RemoveAll(dir), copyTree(t, copied, dir)) })
	l.await(t, 20, on(0))
	l.await(t, 20, on(1))
	if epoch, err := r.Number(t.Context(), "select cluster_epoch from meta"); err != nil || epoch != 2 {
		t.Errorf("epoch %d, %v; want one loss declared, and none for the restart before it", epoch, err)
	}
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
}

// settled waits until the account has usage records, and returns how many.
func (l *load) settled(t *testing.T, records int) (found int) {
	t.Helper()
	rig.Await(t, fmt.Sprintf("%d usage records", records), func(ctx context.Context) error {
		usage, err := l.account.Usage(ctx)
		if found = len(usage); err == nil && found < records {
			err = fmt.Errorf("there are %d", found)
		}
		return err
	})
	return found
}

// copyTree copies files as they are: Postgres may run as another user.
func copyTree(t *testing.T, from, to string) error {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", from, err, out)
	}
	return nil
}
