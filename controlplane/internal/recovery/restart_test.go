package recovery_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/recovery"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/wire"
)

// killedTogether returns the replica that survives when Postgres and another
// replica, which has committed meanwhile, are killed. It does not wait.
func (s *site) killedTogether(between func(data string)) *replica {
	s.t.Helper()
	survivor, killed := s.replica(), s.replica()
	survivor.monitor = newMonitor(recovery.NewID(), survivor.db, survivor.bus, rollback.KeepsOnRestart)
	survivor.monitor.WaitForNoReplica()
	survivor.check(nil)
	killed.check(nil)
	survivor.check(nil)
	killed.commit(nil)
	s.restart(between)
	return survivor
}

func TestServerThatOnlyRestartsHasLostNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	survivor := s.killedTogether(func(string) {})
	survivor.check(nil)
	survivor.commit(nil)
	s.epochIs(1)
	survivor.check(nil)
	members, _, err := survivor.bus.Membership(t.Context())
	if err != nil || len(members.Members) != 1 {
		t.Errorf("members %v, %v; want only the survivor", members.Members, err)
	}
}

func TestServerThatStartsFromACopyHasLostCommits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.replica()
	first.check(nil)
	s.restart(s.copy)
	first.check(nil)
	survivor := s.killedTogether(s.restoreCopy)
	s.advanceLog()
	survivor.check(nil)
	s.epochIs(2)
}

func TestReadinessSaysWhatTheReplicaWaitsFor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.replica()
	confirmed := false
	r.monitor = monitorWith(r, func(int64) bool { return confirmed })
	if err := r.monitor.Ready(t.Context()); err == nil {
		t.Error("ready before the first check")
	}
	r.check(nil)
	if err := r.monitor.Ready(t.Context()); err != nil {
		t.Errorf("not ready though nothing was lost: %v", err)
	}
	if err := r.monitor.Declare(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.check(nil)
	if err := r.monitor.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "waiting until the stream of changes has had cluster epoch 2 ") {
		t.Errorf("readiness after a declared loss: %v", err)
	}
	if n := s.number("select recovered_epoch from cluster_state"); n != 1 {
		t.Errorf("the recovery wait of epoch %d is over; want 1", n)
	}

	// The wait counts by the stream of changes, not by the clock of Postgres.
	s.number("with changed as (update cluster_state set lost_at = lost_at - interval '1 day' returning 1) select count(*) from changed")
	r.check(nil)
	if err := r.monitor.Ready(t.Context()); err == nil {
		t.Error("the wait has ended because the clock of Postgres was set")
	}
	confirmed = true
	r.check(nil) // enters
	r.check(nil) // ends the wait
	r.check(nil)
	if err := r.monitor.Ready(t.Context()); err != nil {
		t.Errorf("not ready after the recovery wait: %v", err)
	}
}

func monitorWith(r *replica, confirmed func(int64) bool) *recovery.Monitor {
	m := newMonitor(recovery.NewID(), r.db, r.bus, rollback.KeepsNever)
	m.SetEpochConfirmed(confirmed)
	m.WaitForNoReplica()
	return m
}

// The clock of the server that Postgres fails over to may be ahead. A session has
// expired when the replica has served there for the whole window.
func TestSessionDoesNotExpireByTheClockOfAnotherServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.replica()
	r.check(nil)
	store := leasestore.NewLeases(r.db)
	registered, err := store.Register(t.Context(), &wire.RegisterRequest{V: wire.Version, Name: "proxy", BootID: "boot"}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	s.restart(func(string) {})
	r.check(nil)
	err = r.db.InTx(t.Context(), func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "update proxy_sessions set valid_until = clock_timestamp() - interval '1 hour' where id = $1", registered.Session)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for want, window := range []time.Duration{time.Hour, time.Nanosecond} {
		if _, err := store.Sweep(t.Context(), window, 24*time.Hour, true); err != nil {
			t.Fatal(err)
		}
		if ending, _, err := store.EndingSessions(t.Context()); err != nil || len(ending) != want {
			t.Errorf("window %v: sessions %+v are to end, %v; want %d, since the replica has just entered", window, ending, err, want)
		}
	}
}
