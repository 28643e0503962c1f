package recovery_test

import (
	"context"
	"errors"
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
	"modelgateway/controlplane/internal/postgres/recoverystore"
	"modelgateway/controlplane/internal/recovery"
	"modelgateway/scripts/testkit/natstest"
	"modelgateway/scripts/testkit/pgcluster"
	"modelgateway/shared/lease/rollback"
)

// site is a Postgres server whose data can be copied and put back, and a bus.
type site struct {
	t       *testing.T
	cfg     pgcluster.Config
	cluster *pgcluster.Cluster
	nats    *natstest.Server
	copied  string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, cfg: pgcluster.Config{Dir: filepath.Join(t.TempDir(), "postgres")}, nats: natstest.New(t)}
	s.start()
	t.Cleanup(func() { s.end() })
	s.cfg.Port = s.cluster.Port()
	if _, err := postgres.Migrate(t.Context(), postgres.Config{URL: s.cluster.URL("")}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *site) start() {
	s.t.Helper()
	var err error
	if s.cluster, err = pgcluster.Start(s.t.Context(), s.cfg); err != nil {
		s.t.Fatal(err)
	}
}

// end ends the server in order.
func (s *site) end() {
	s.t.Helper()
	if err := syscall.Kill(s.cluster.PID(), syscall.SIGINT); err != nil {
		s.t.Fatal(err)
	}
	<-s.cluster.Done()
}

// restart begins another life of the same data, after between.
func (s *site) restart(between func(data string)) {
	s.t.Helper()
	s.end()
	between(s.cluster.Dir())
	s.start()
}

// copy keeps the data as it is between two lives.
func (s *site) copy(data string) {
	s.t.Helper()
	s.copied = data + ".copy"
	s.t.Cleanup(func() { _ = os.RemoveAll(s.copied) })
	copyTree(s.t, data, s.copied)
}

// putBack puts the copy in the place of the data.
func (s *site) putBack(data string) {
	s.t.Helper()
	if err := os.RemoveAll(data); err != nil {
		s.t.Fatal(err)
	}
	copyTree(s.t, s.copied, data)
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil { // the server's user keeps its files
		t.Fatalf("copy %s: %v: %s", from, err, out)
	}
}

// number reads a number as nobody that is watched does.
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

// replica is what a control plane has of this.
type replica struct {
	t      *testing.T
	db     *postgres.DB
	bus    *bus.Bus
	keeper *recovery.Monitor
}

func (s *site) replica() *replica {
	s.t.Helper()
	db, err := postgres.Open(s.t.Context(), postgres.Config{URL: s.cluster.URL("")})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(db.Close)
	b, err := bus.Connect(bus.Config{URL: s.nats.URL(), Name: "replica"}, recoverystore.New(db), slog.New(slog.DiscardHandler))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(b.Close)
	return &replica{s.t, db, b, recovery.New(recoverystore.New(db), b, time.Second, func(int64) {}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())}
}

// looks has it look once, and wants what comes of it. Connections that a restart has
// cut are used up before.
func (r *replica) looks(want error) {
	r.t.Helper()
	var err error
	for range 10 {
		if err = r.keeper.Check(r.t.Context()); errors.Is(err, want) {
			return
		}
		if err == nil || errors.Is(err, recovery.ErrWaiting) {
			break
		}
	}
	r.t.Fatalf("look: %v; want %v", err, want)
}

// commits makes a commit that is answered, unless it must be refused.
func (r *replica) commits(want error) {
	r.t.Helper()
	err := r.db.InTx(r.t.Context(), func(tx pgx.Tx) error {
		_, err := tx.Exec(r.t.Context(), "insert into settings (name, value) values ('probe', '1') on conflict (name) do update set value = '2'")
		return err
	})
	if !errors.Is(err, want) {
		r.t.Fatalf("commit: %v; want %v", err, want)
	}
}

// two has two replicas serve, and a copy made with all that the roll knows of.
func (s *site) two() (knowing, ignorant *replica) {
	s.t.Helper()
	knowing, ignorant = s.replica(), s.replica()
	knowing.looks(nil)
	ignorant.looks(nil)
	knowing.looks(nil)
	s.restart(s.copy)
	knowing.looks(recovery.ErrWaiting)
	ignorant.looks(nil)
	knowing.looks(nil)
	return knowing, ignorant
}

// write takes Postgres's log far past everything that was committed before.
func (s *site) write() {
	s.t.Helper()
	s.number(`with written as (insert into settings (name, value) select 'noise ' || i, '1' from generate_series(1, 1000) i returning 1)
		select count(*) from written`)
}

func (s *site) epochIs(want int64) {
	s.t.Helper()
	if got := s.number("select cluster_epoch from meta"); got != want {
		s.t.Errorf("epoch %d; want %d", got, want)
	}
}

// One commit is lost. The replica that has answered it meets the older copy
// last, and nothing outside of Postgres tells of it.
func TestIgnorantReplicaMeetsTheLossFirst(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	knowing, ignorant := s.two()
	knowing.commits(nil)
	s.restart(s.putBack)
	s.write()
	ignorant.commits(recovery.ErrNotServing)
	ignorant.looks(recovery.ErrWaiting)
	ignorant.commits(recovery.ErrNotServing)
	s.epochIs(1)
	knowing.looks(nil)
	s.epochIs(2)
	ignorant.looks(nil)
	ignorant.commits(nil)
	knowing.commits(nil)
	s.epochIs(2)
}

// The same restart without a loss costs a look of each, also if the server was
// killed.
func TestRestartIsNoLoss(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	knowing, ignorant := s.two()
	knowing.commits(nil)
	if err := syscall.Kill(s.cluster.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.cluster.Done()
	s.start()
	ignorant.looks(recovery.ErrWaiting)
	knowing.looks(nil)
	ignorant.looks(nil)
	knowing.commits(nil)
	s.epochIs(1)
	if got := s.number("select value::text::bigint from settings where name = 'probe'"); got != 2 {
		t.Errorf("the probe is %d; want both commits", got)
	}
}

// A replica that ends in order leaves a witness of all that it has done.
func TestReplicaThatEndedIsNotForgotten(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	knowing, ignorant := s.two()
	knowing.commits(nil)
	knowing.keeper.Stop(t.Context())
	knowing.commits(recovery.ErrFenced)
	s.restart(s.putBack)
	ignorant.looks(nil)
	s.epochIs(2)
}

// A replica that died takes what it knows with it. In the same life of Postgres
// the others strike it off; in another one they cannot know.
func TestReplicaThatDied(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	silent, dead, hasty := s.replica(), s.replica(), s.replica()
	hasty.keeper.Hasten()
	silent.looks(nil)
	for range 3 { // it enters, sees the other, and sees that it has not moved
		hasty.looks(nil)
	}
	silent.commits(recovery.ErrFenced)
	silent.looks(nil)
	silent.commits(nil)
	s.epochIs(1)

	dead.looks(nil)
	dead.commits(nil)
	s.restart(func(string) {})
	hasty.looks(nil)
	s.epochIs(2)
	dead.looks(nil)
	s.epochIs(2)
}

// What is declared by hand is taken up by those who serve.
func TestDeclaredByHand(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	serving := s.replica()
	serving.looks(nil)
	serving.commits(nil)
	if err := s.replica().keeper.Declare(t.Context()); err != nil {
		t.Fatal(err)
	}
	serving.commits(recovery.ErrFenced)
	serving.looks(nil)
	serving.commits(nil)
	s.epochIs(2)
}

// deaf is a bus that can be read and, for a while, not written.
type deaf struct {
	*bus.Bus
	is bool
}

var errDeaf = errors.New("the bus takes nothing")

func (d *deaf) PutRoll(ctx context.Context, roll rollback.Membership, revision uint64) (bool, error) {
	if d.is {
		return false, errDeaf
	}
	return d.Bus.PutMembership(ctx, roll, revision)
}

// A replica goes on beating while the bus takes nothing. What the roll knows of
// meanwhile is still found afterwards: a restart is no loss then either.
func TestWitnessOfTheRollIsKept(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.replica()
	anchor := &deaf{Bus: r.bus}
	r.keeper = recovery.New(recoverystore.New(r.db), anchor, time.Second, func(int64) {}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	r.looks(nil)
	r.looks(nil) // the roll has a witness now
	anchor.is = true
	for range 4 {
		r.commits(nil)
		r.looks(errDeaf)
	}
	anchor.is = false
	s.restart(func(string) {})
	r.looks(nil)
	r.commits(nil)
	s.epochIs(1)
	for range 3 {
		r.looks(nil)
	}
	if n := s.number("select count(*) from witnesses"); n > 3 {
		t.Errorf("%d witnesses are kept; want those of the last beats", n)
	}
}
