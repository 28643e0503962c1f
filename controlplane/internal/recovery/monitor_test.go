package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/controlplane/internal/bus"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/recovery"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/platform/testkit/natstest"
	"modelgateway/shared/platform/testkit/pgcluster"
)

// site is a bus and a Postgres server whose data can be copied and restored.
type site struct {
	t       *testing.T
	cfg     pgcluster.Config
	cluster *pgcluster.Cluster
	nats    *natstest.Server
	copied  string
}

// template is a migrated cluster that the site of each test is a copy of: creating and migrating one takes seconds.
var template pgcluster.Config

func TestMain(m *testing.M) {
	code, err := withTemplate(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func withTemplate(run func() int) (code int, err error) {
	dir, err := os.MkdirTemp("", "modelgateway-recovery-")
	if err != nil {
		return 0, err
	}
	template.Dir = filepath.Join(dir, "postgres")
	defer func() {
		err = errors.Join(err, pgcluster.Remove(context.Background(), template.Dir), os.RemoveAll(dir))
	}()

	cluster, err := pgcluster.Start(context.Background(), template)
	if err != nil {
		return 0, err
	}
	_, err = postgres.Migrate(context.Background(), postgres.Config{URL: cluster.URL("")})
	if err := errors.Join(err, cluster.Stop(context.Background())); err != nil {
		return 0, err
	}
	template.Template = cluster.Dir()
	return run(), nil
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{
		t:    t,
		cfg:  pgcluster.Config{Dir: filepath.Join(t.TempDir(), "postgres"), Template: template.Template},
		nats: natstest.New(t),
	}
	s.start()
	t.Cleanup(func() {
		s.stop()
		if err := pgcluster.Remove(context.WithoutCancel(t.Context()), s.cfg.Dir); err != nil {
			t.Error(err)
		}
	})
	s.cfg.Port = s.cluster.Port()
	return s
}

func (s *site) start() {
	s.t.Helper()
	var err error
	if s.cluster, err = pgcluster.Start(s.t.Context(), s.cfg); err != nil {
		s.t.Fatal(err)
	}
}

// stop stops the server gracefully.
func (s *site) stop() {
	s.t.Helper()
	if err := syscall.Kill(s.cluster.PID(), syscall.SIGINT); err != nil {
		s.t.Fatal(err)
	}
	<-s.cluster.Done()
}

// restart stops the server, calls between, and starts it again on the same data.
func (s *site) restart(between func(data string)) {
	s.t.Helper()
	s.stop()
	between(s.cluster.Dir())
	s.start()
}

// copy copies the data of the stopped server.
func (s *site) copy(data string) {
	s.t.Helper()
	s.copied = data + ".copy"
	s.t.Cleanup(func() { _ = os.RemoveAll(s.copied) })
	copyTree(s.t, data, s.copied)
}

// restoreCopy replaces the data by the copy.
func (s *site) restoreCopy(data string) {
	s.t.Helper()
	if err := os.RemoveAll(data); err != nil {
		s.t.Fatal(err)
	}
	copyTree(s.t, s.copied, data)
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	// keeps the server's user as the owner
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v: %s", from, err, out)
	}
}

// number reads a number over a connection without a guard.
func (s *site) number(query string) (n int64) {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.cluster.URL(""))
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = conn.Close(s.t.Context()) }()
	if err := conn.QueryRow(s.t.Context(), query).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// replica has the parts of a control plane that recovery needs.
type replica struct {
	t       *testing.T
	db      *postgres.DB
	bus     *bus.Bus
	monitor *recovery.Monitor
}

func (s *site) replica() *replica {
	s.t.Helper()
	db, err := postgres.Open(s.t.Context(), postgres.Config{URL: s.cluster.URL("")})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(db.Close)
	b, err := bus.Connect(bus.Config{URL: s.nats.URL(), Name: "replica"}, leasestore.NewRecovery(db), slog.New(slog.DiscardHandler))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(b.Close)
	return &replica{s.t, db, b, newMonitor(recovery.NewID(), db, b, rollback.KeepsNever)}
}

func newMonitor(id string, db *postgres.DB, bucket recovery.Bucket, keeps rollback.Keeps) *recovery.Monitor {
	return recovery.New(recovery.Config{
		ID: id, Store: leasestore.NewRecovery(db), Bucket: bucket, Window: time.Second, EpochConfirmed: func(int64) bool { return false }, Keeps: keeps,
		OnEpoch: func(int64) {}, Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
}

// check makes one check and fails the test unless it returns want. It repeats a
// check that fails because a restart has closed its connection.
func (r *replica) check(want error) {
	r.t.Helper()
	var err error
	for range 10 {
		if err = r.monitor.Check(r.t.Context()); errors.Is(err, want) {
			return
		}
		if err == nil || errors.Is(err, recovery.ErrWaiting) {
			break
		}
	}
	r.t.Fatalf("check: %v; want %v", err, want)
}

// commit commits a transaction and fails the test unless it returns want.
func (r *replica) commit(want error) {
	r.t.Helper()
	err := r.db.InTx(r.t.Context(), func(tx pgx.Tx) error {
		_, err := tx.Exec(r.t.Context(), "insert into settings (name, value) values ('probe', '1') on conflict (name) do update set value = '2'")
		return err
	})
	if !errors.Is(err, want) {
		r.t.Fatalf("commit: %v; want %v", err, want)
	}
}

// twoReplicas returns two serving replicas. A copy of the data was made after
// their last checkpoints, so it has everything that the membership shows.
func (s *site) twoReplicas() (knowing, ignorant *replica) {
	s.t.Helper()
	knowing, ignorant = s.replica(), s.replica()
	knowing.check(nil)
	ignorant.check(nil)
	knowing.check(nil)
	s.restart(s.copy)
	knowing.check(recovery.ErrWaiting)
	ignorant.check(nil)
	knowing.check(nil)
	return knowing, ignorant
}

// advanceLog advances the log of Postgres far past every earlier commit.
func (s *site) advanceLog() {
	s.t.Helper()
	s.number(`with written as (insert into settings (name, value) select 'noise ' || i, '1' from generate_series(1, 1000) i returning 1)
		select count(*) from written`)
}

func (s *site) epochIs(want int64) {
	s.t.Helper()
	if got := s.number("select cluster_epoch from cluster_state"); got != want {
		s.t.Errorf("epoch %d; want %d", got, want)
	}
}

// One commit is lost, and nothing outside of Postgres shows it. The replica that
// made it connects to the older copy last.
func TestLossIsDetectedIfAnotherReplicaConnectsFirst(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	knowing, ignorant := s.twoReplicas()
	knowing.commit(nil)
	s.restart(s.restoreCopy)
	s.advanceLog()
	ignorant.commit(recovery.ErrNotServing)
	ignorant.check(recovery.ErrWaiting)
	ignorant.commit(recovery.ErrNotServing)
	s.epochIs(1)
	knowing.check(nil)
	s.epochIs(2)
	ignorant.check(nil)
	ignorant.commit(nil)
	knowing.commit(nil)
	s.epochIs(2)
}

// A restart without a loss costs one check of each replica, also after a kill.
func TestRestartIsNotALoss(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	knowing, ignorant := s.twoReplicas()
	knowing.commit(nil)
	if err := syscall.Kill(s.cluster.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.cluster.Done()
	s.start()
	ignorant.check(recovery.ErrWaiting)
	knowing.check(nil)
	ignorant.check(nil)
	knowing.commit(nil)
	s.epochIs(1)
	if got := s.number("select value::text::bigint from settings where name = 'probe'"); got != 2 {
		t.Errorf("the probe is %d; want both commits", got)
	}
}

// A replica that stops gracefully leaves a marker that stands for all its
// commits.
func TestCommitsOfAStoppedReplicaAreVerified(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	knowing, ignorant := s.twoReplicas()
	knowing.commit(nil)
	knowing.monitor.Stop(t.Context())
	knowing.commit(recovery.ErrFenced)
	s.restart(s.restoreCopy)
	ignorant.check(nil)
	s.epochIs(2)
}

// Nobody knows the markers of a replica that was killed. In the same server
// incarnation the others fence it; in another one they must declare a loss.
func TestSilentReplicaIsFencedOrCountsAsLoss(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	silent, dead, hasty := s.replica(), s.replica(), s.replica()
	hasty.monitor.WaitForNoReplica()
	silent.check(nil)
	for range 3 { // it starts to serve, sees the other, and sees that the other's heartbeat does not change
		hasty.check(nil)
	}
	silent.commit(recovery.ErrFenced)
	silent.check(nil)
	silent.commit(nil)
	s.epochIs(1)

	dead.check(nil)
	dead.commit(nil)
	s.restart(func(string) {})
	hasty.check(nil)
	s.epochIs(2)
	dead.check(nil)
	s.epochIs(2)
}

// Serving replicas adopt a loss that was declared by hand.
func TestLossDeclaredByHandIsAdopted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	serving := s.replica()
	serving.check(nil)
	serving.commit(nil)
	if err := s.replica().monitor.Declare(t.Context()); err != nil {
		t.Fatal(err)
	}
	serving.commit(recovery.ErrFenced)
	serving.check(nil)
	serving.commit(nil)
	s.epochIs(2)
}

// readOnlyBus is a bus that cannot be written while its flag is set.
type readOnlyBus struct {
	*bus.Bus
	readOnly bool
}

var errReadOnly = errors.New("the bus cannot be written")

func (b *readOnlyBus) PutMembership(ctx context.Context, m rollback.Membership, revision uint64) (bool, error) {
	if b.readOnly {
		return false, errReadOnly
	}
	return b.Bus.PutMembership(ctx, m, revision)
}

// A replica continues committing checkpoints while the bus cannot be written. It
// keeps the last marker of the membership, so a restart does not count as a
// loss.
func TestLastMarkerIsKeptWhileTheBusIsReadOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.replica()
	bucket := &readOnlyBus{Bus: r.bus}
	r.monitor = newMonitor(recovery.NewID(), r.db, bucket, rollback.KeepsNever)
	r.check(nil)
	r.check(nil) // the membership has a last marker now
	bucket.readOnly = true
	for range 4 {
		r.commit(nil)
		r.check(errReadOnly)
	}
	bucket.readOnly = false
	s.restart(func(string) {})
	r.check(nil)
	r.commit(nil)
	s.epochIs(1)
	for range 3 {
		r.check(nil)
	}
	if n := s.number("select count(*) from commit_markers"); n > 3 {
		t.Errorf("%d commit markers are left; want those of the last checkpoints", n)
	}
}
