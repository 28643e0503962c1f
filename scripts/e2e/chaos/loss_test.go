package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"modelgateway/scripts/e2e/rig"
)

// An older copy of Postgres takes over, as in a failover to a lagging standby. All later
// commits are lost, including those of settled usage. The loss is detected, nothing is granted
// until the recovery wait is over, and all usage is settled again, each event once. Video jobs
// that were created since the copy stay visible to their clients all the time, and are billed
// once.
func TestChaos_pg_failover_with_loss(t *testing.T) {
	rig.Long(t)
	for name, lost := range map[string]int{"short": 30, "long": 600} {
		t.Run(name, func(t *testing.T) { failOver(t, lost) })
	}
}

// failOver replaces Postgres by a copy that lacks at least lost usage records.
func failOver(t *testing.T, lost int) {
	t.Helper()
	r := rig.Start(t, rig.Options{ControlSettings: shortSessions()}) // the shared stack would lose models and accounts of other tests
	l := startLoadOn(t, r, clients)
	viewer := r.Account(t, rig.AccountSpec{})
	model := r.Model(t, rig.Model{Type: "video", Directives: "takes=2s,polls=0"})
	made := new(creations)
	acceptVideos(t, r, viewer, model, made, 3)
	l.await(t, 60, answered)
	copied := filepath.Join(t.TempDir(), "postgres")
	r.RestartPostgres(t, func(dir string) error { return copyTree(t, dir, copied) })
	before := l.settled(t, 0)
	acceptVideos(t, r, viewer, model, made, 5)
	l.settled(t, before+lost)
	viewer.AwaitUsage(t, len(made.accepted))
	acceptVideos(t, r, viewer, model, made, 8) // these are still running when Postgres is replaced
	stopWatching := watchVideos(t, r, viewer, made.accepted)
	r.RestartPostgres(t, func(dir string) error { return errors.Join(os.RemoveAll(dir), copyTree(t, copied, dir)) })
	l.await(t, 20, on(0))
	l.await(t, 20, on(1))
	stopWatching()
	if epoch, err := r.Number(t.Context(), "select cluster_epoch from cluster_state"); err != nil || epoch != 2 {
		t.Errorf("cluster epoch %d, %v; want one loss declared, for the copy and not for the restart before it", epoch, err)
	}
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
	checkVideos(t, r, viewer, model, made)
}

// settled waits until the account has usage records, and returns their number.
func (l *load) settled(t *testing.T, records int) (found int) {
	t.Helper()
	rig.Await(t, fmt.Sprintf("%d usage records", records), func(ctx context.Context) error {
		usage, err := l.account.Usage(ctx)
		if found = len(usage); err == nil && found < records {
			err = fmt.Errorf("there are %d usage records", found)
		}
		return err
	})
	return found
}

// copyTree copies files with their owners: Postgres may run as another user.
func copyTree(t *testing.T, from, to string) error {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", from, err, out)
	}
	return nil
}

// acceptVideos creates jobs until a number of them was accepted.
func acceptVideos(t *testing.T, r *rig.Rig, account *rig.Account, model string, made *creations, n int) {
	t.Helper()
	for accepted := 0; accepted < n; {
		if made.make(t.Context(), r, 0, account, model) != "" {
			accepted++
		}
	}
}

// watchVideos polls jobs like their clients. The returned function waits until each has been
// seen on both proxies after its call. No poll may ever report that a job does not exist.
func watchVideos(t *testing.T, r *rig.Rig, account *rig.Account, ids []string) (done func()) {
	t.Helper()
	var client sync.WaitGroup
	last := make(chan struct{})
	client.Go(func() {
		for i, ending, left := 0, false, 0; !ending || left > 0; i++ {
			if !ending {
				select {
				case <-last:
					ending, left = true, 2*len(ids)
				case <-t.Context().Done():
					return
				default:
				}
			}
			id := ids[i/2%len(ids)]
			answer, err := r.Try(t.Context(), rig.Request{Proxy: i % 2, Path: "/v1/videos/" + id, Key: account.Key})
			switch {
			case answer != nil && answer.Status == http.StatusNotFound:
				t.Errorf("job %s is no longer found", id)
				return
			case err == nil && answer.Status == http.StatusOK:
				left--
			}
			pause(t.Context())
		}
	})
	return func() { close(last); client.Wait() }
}
