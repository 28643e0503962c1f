// Package recovery detects that Postgres has lost commits, because it was
// restored from an older copy or failed over to a standby without them, and
// starts a new cluster epoch.
//
// rollback.Detector makes the decisions; this package connects it with Postgres
// and the bus (NATS). The rest of the control plane uses recovery at three
// points only: each new connection (Guard.OnConnect), each commit
// (Guard.BeginCommit, Committed, Failed) and each check (the onEpoch callback of
// the Monitor).
//
// Each transaction writes a commit marker, and each replica remembers the
// markers of the commits whose results it has reported to anyone. A server
// incarnation is used only after every member has found its markers in it. So a
// loss is detected before anything is granted or confirmed, whichever replica
// connects first:
//
//   - The loss of a commit is detected if the replica that committed it still
//     runs or has stopped gracefully. A commit needs only one more row in its
//     transaction, and no write outside of Postgres.
//   - If a replica was killed, its markers are unknown. While the server
//     incarnation lasts, the other replicas fence it by a commit that comes
//     after all of its commits. If the incarnation changes before that, or a
//     replica cannot reach it, a loss is declared without proof. This costs a
//     pause, but no loss stays undetected.
//   - The loss of a commit whose result nobody got may stay undetected.
//
// This relies on four facts: Postgres loses only the end of its log; only one
// server at a time accepts writes; a running server keeps the commits that it
// acknowledged, even if its processes crash (synchronous_commit is not off); and
// the bus does not lose the recovery bucket together with the commits. If one of
// them does not hold, `controlplane declare-loss` declares the loss by hand.
//
// A loss is declared in one transaction: the next cluster epoch begins, with
// revisions and ids above all that were given out; every session ends;
// revocations and video jobs are restored from their backups on the bus. Nothing
// is granted until no proxy can admit on the lost state; usage is settled again
// from the stream, and published again from the spools.
//
// Each state of a video job is backed up on the bus before it is committed
// (videojob.BackupStore), so that clients find their jobs after a loss, and open
// jobs are polled and billed. A job may be billed again then: settlement charges
// each request only once. A job is restored only if its account and key exist;
// otherwise its state goes into quarantine.
package recovery

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"modelgateway/controlplane/internal/videojob"
	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/rollback"
)

// Store is the part of Postgres that recovery uses.
type Store interface {
	// SetGuard makes every connection and every transaction call the guard.
	SetGuard(g *Guard)
	// Observe reads the state of Postgres, on a connection that the guard does not refuse, and looks for markers.
	Observe(ctx context.Context, markers []rollback.CommitMarker) (rollback.Observation, error)
	// AddReplica adds a replica in Postgres. It returns false if the cluster epoch is another one.
	AddReplica(ctx context.Context, id string, epoch int64) (bool, error)
	// Checkpoint commits a checkpoint. It returns ErrNotServing or ErrFenced if the incarnation must be verified again.
	Checkpoint(ctx context.Context, c Checkpoint) (rollback.Observation, error)
	// CloseConnections closes the connections to the incarnation in which the replica no longer serves.
	CloseConnections()
	// LastCheckpoint returns the time up to which no commit is missing; the zero time if that is unknown.
	LastCheckpoint(ctx context.Context) (time.Time, error)
	// DeclareLoss begins the cluster epoch after the given one, unless another replica has. window is that of sessions.
	DeclareLoss(
		ctx context.Context,
		epoch int64,
		seen rollback.HighWaterMark,
		window time.Duration,
		backup Backup,
	) (rollback.HighWaterMark, error)
}

// Checkpoint is what one checkpoint changes in Postgres.
type Checkpoint struct {
	Marker rollback.CommitMarker
	// Oldest is the first number of the replica's markers that is still needed.
	Oldest int64
	// Fence are the replicas that must not commit any more; their connections are closed.
	Fence []string
	// Recovered is the epoch whose recovery wait is over, or zero.
	Recovered int64
}

// Backup is the state that is stored outside of Postgres and restored after a
// loss.
type Backup struct {
	RevokedKeys []apikey.Hash
	Videos      []videojob.Backup
}

// Bucket is the state on the bus that outlives a loss in Postgres: the recovery
// bucket and the backups of video jobs.
type Bucket interface {
	// Membership returns the membership with its revision, zero if there is none.
	Membership(ctx context.Context) (rollback.Membership, uint64, error)
	// PutMembership replaces the membership of a revision. It returns false if another replica has replaced it.
	PutMembership(ctx context.Context, m rollback.Membership, revision uint64) (bool, error)
	// RevokedKeys returns the hashes of all keys whose revocation was requested.
	RevokedKeys(ctx context.Context) ([]apikey.Hash, error)
	// VideoBackups returns the newest state of each video job that was written since a time; the zero time for all.
	VideoBackups(ctx context.Context, since time.Time) ([]videojob.Backup, error)
}

// Monitor verifies incarnations of Postgres and declares losses. Start it before
// anything else uses Postgres, and stop it last.
type Monitor struct {
	cfg        Config
	store      Store
	bucket     Bucket
	guard      *Guard
	log        *slog.Logger
	epoch      prometheus.Gauge
	recovering prometheus.Gauge
	losses     prometheus.Counter

	guarded sync.Once
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu sync.Mutex
	// obstacle is why this replica does not admit requests now; nil if it does.
	obstacle error
}

// Config configures a Monitor.
type Config struct {
	// ID is the name of this process in the membership: random, and new with each process.
	ID     string
	Store  Store
	Bucket Bucket
	// Window is that of sessions.
	Window time.Duration
	// EpochConfirmed reports whether no proxy admits any more in a session from before a cluster epoch.
	EpochConfirmed func(epoch int64) bool
	// Keeps is when Postgres certainly keeps every commit that it has acknowledged.
	Keeps rollback.Keeps
	// OnEpoch is called with the cluster epoch after each check.
	OnEpoch    func(int64)
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// New returns a Monitor that is not started.
func New(cfg Config) *Monitor {
	with := promauto.With(cfg.Registerer)
	return &Monitor{
		cfg:      cfg,
		store:    cfg.Store,
		bucket:   cfg.Bucket,
		log:      cfg.Log,
		obstacle: errNoCheck,
		guard:    newGuard(cfg.ID, rollback.Config{SilenceLimit: silenceLimit, RestartLimit: restartLimit, Keeps: cfg.Keeps}),
		epoch: with.NewGauge(
			prometheus.GaugeOpts{Name: "mgw_cluster_epoch", Help: "Cluster epoch: declared losses of Postgres commits, plus one."},
		),
		recovering: with.NewGauge(prometheus.GaugeOpts{
			Name: "mgw_recovering",
			Help: "1 while nothing is granted after a declared loss of Postgres commits, as proxies may act on the lost state; " +
				"otherwise 0.",
		}),
		losses: with.NewCounter(
			prometheus.CounterOpts{Name: "mgw_cluster_losses_total", Help: "Losses of Postgres commits that this replica has declared."},
		),
	}
}

// NewID returns a name for this process in the membership.
func NewID() string { return rand.Text() }

const (
	// checkInterval is the time between two checks; retryInterval is that time while the replica waits for others.
	checkInterval = time.Second
	retryInterval = 200 * time.Millisecond
	// checkTimeout bounds one check without a declaration, declareTimeout a declaration.
	checkTimeout   = 5 * time.Second
	declareTimeout = time.Minute
	// silenceLimit is how long another replica may be silent. It is longer than a replica needs to notice that its server is
	// gone and to connect to the next one.
	silenceLimit = 15 * time.Second
	// restartLimit is that time after a restart of the server, if it keeps its commits: the others need only connect again.
	restartLimit = 3 * time.Second
	// maxAttempts bounds how often one check is repeated because another replica has replaced the membership.
	maxAttempts = 5
)

// errNoCheck means that no check has been made yet.
var errNoCheck = errors.New("postgres has not been compared with the recovery bucket yet")

// ErrNoLeader is wrapped by the errors of a Bucket that no server leads at the moment: the NATS servers are electing a leader, as
// they do after the loss of one and after another replica has created the bucket.
var ErrNoLeader = errors.New("recovery: the recovery bucket has no leader")

// leaderLimit bounds the wait for a leader at the start. An election takes up to ten seconds.
const leaderLimit = 30 * time.Second

// errWaiting means that other replicas have not verified their commits yet.
var errWaiting = errors.New("recovery: waiting for other control planes to verify their commits in this postgres")

// Start verifies the current incarnation of Postgres, and continues checking until
// Stop.
func (m *Monitor) Start(ctx context.Context) error {
	for began := time.Now(); ; {
		err := m.Check(ctx)
		if err == nil {
			break
		}
		if !errors.Is(err, errWaiting) && (!errors.Is(err, ErrNoLeader) || time.Since(began) > leaderLimit) {
			return err
		}
		if !sleep(ctx, retryInterval, nil) {
			return context.Cause(ctx)
		}
	}
	ctx, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	m.done.Go(func() { m.run(ctx) })
	return nil
}

func (m *Monitor) run(ctx context.Context) {
	wait, wake := checkInterval, (<-chan struct{})(m.guard.wake)
	logged := ""
	for sleep(ctx, wait, wake) {
		wait, wake = checkInterval, m.guard.wake
		err := m.Check(ctx)
		if err == nil {
			logged = ""
		}
		if err != nil && ctx.Err() == nil {
			if text := err.Error(); text != logged { // the checks are repeated often
				m.log.WarnContext(ctx, "check of postgres for lost commits failed", "error", err)
				logged = text
			}
			if errors.Is(err, errWaiting) {
				wait, wake = retryInterval, nil // the guard refuses every connection now, and would wake this loop each time
			}
		}
	}
}

// sleep waits for a time or until wake. It returns false if the context ends.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C:
	}
	return true
}

// Stop ends the checks and removes this replica from the membership. Nothing may
// use Postgres after it.
func (m *Monitor) Stop(ctx context.Context) {
	if m.stop != nil {
		m.stop()
	}
	m.done.Wait()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if m.serving() {
		if _, err := m.checkpoint(ctx, true); err != nil { // then the other replicas fence it after the silence limit
			m.log.WarnContext(ctx, "removal of this replica from the membership failed", "error", err)
		}
	}
}

func (m *Monitor) serving() (serving bool) {
	m.guard.with(func(d *rollback.Detector, _ time.Duration) { serving = d.Incarnation() != "" })
	return serving
}

// Check makes one check: it verifies the server incarnation, or commits a
// checkpoint if the incarnation is verified; it declares a loss if it finds one.
// From the first check on, Postgres can be used only in a verified incarnation.
// Check is not safe for concurrent use.
func (m *Monitor) Check(ctx context.Context) error {
	m.guarded.Do(func() { m.store.SetGuard(m.guard) })
	err := m.check(ctx)
	if err != nil && !m.serving() {
		m.setObstacle(err)
	}
	return err
}

func (m *Monitor) check(ctx context.Context) error {
	for range maxAttempts {
		if done, err := m.attempt(ctx); done || err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: gave up after %d conflicting updates", errWaiting, maxAttempts)
}

func (m *Monitor) setObstacle(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.obstacle = err
}

// Ready returns nil if this replica can grant units; otherwise an error that says
// what it waits for.
func (m *Monitor) Ready(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.obstacle
}

// observed records the epoch and the recovery wait of an incarnation in which the
// replica serves.
func (m *Monitor) observed(o rollback.Observation) {
	if !o.Recovering {
		m.recovering.Set(0)
		m.setObstacle(nil)
		return
	}
	m.recovering.Set(1)
	m.setObstacle(fmt.Errorf(
		"waiting until the stream of changes has had cluster epoch %d for the window of earlier sessions", o.Mark.Epoch))
}

// attempt is one attempt of a check; it returns false if another one is needed.
func (m *Monitor) attempt(whole context.Context) (done bool, err error) {
	ctx, cancel := context.WithTimeout(whole, checkTimeout)
	defer cancel()
	if m.serving() {
		return m.checkpoint(ctx, false)
	}
	members, observed, action, err := m.verify(ctx)
	if err == nil && action == rollback.DeclareLoss {
		return false, m.declare(whole, members, observed)
	}
	if err == nil && m.serving() {
		m.observed(observed)
	}
	return err == nil && m.serving(), err
}

// checkpoint commits a checkpoint and writes the membership. If last is set, it
// removes this replica from the membership. It returns false if another replica
// has replaced the membership, or if this one has stopped serving.
func (m *Monitor) checkpoint(ctx context.Context, last bool) (done bool, err error) {
	members, revision, unread := m.bucket.Membership(ctx)
	var c Checkpoint
	var t rollback.Transaction
	m.guard.with(func(d *rollback.Detector, now time.Duration) {
		if unread == nil {
			c.Fence = d.SilentReplicas(members, now)
		}
		if last {
			c.Fence = append(c.Fence, d.ID())
		}
		t, c.Oldest, _ = d.BeginCheckpoint()
		c.Marker = t.CommitMarker
		if epoch := d.Epoch(); m.cfg.EpochConfirmed(epoch) {
			c.Recovered = epoch
		}
	})

	switch {
	case unread != nil:
		c.Oldest = 0 // the last marker of the membership is unknown: delete none
	case members.LastMarker.Replica == t.Replica:
		c.Oldest = min(c.Oldest, members.LastMarker.N) // until the bucket has a newer one
	}

	observed, err := m.store.Checkpoint(ctx, c)
	switch {
	case err == nil:
		err = m.guard.Committed(t)
	case errors.Is(err, ErrNotServing), errors.Is(err, ErrFenced):
		m.guard.with(func(d *rollback.Detector, _ time.Duration) { d.Failed(t); d.StopServing() })
		m.store.CloseConnections()
		return false, nil
	default:
		m.guard.Failed(t)
	}

	if err != nil {
		return false, fmt.Errorf("recovery: checkpoint: %w", err)
	}

	m.observed(observed)
	if unread != nil { // the checkpoint is valid all the same
		return false, fmt.Errorf("recovery: read membership: %w", unread)
	}

	serving := false
	m.guard.with(func(d *rollback.Detector, _ time.Duration) {
		members, serving = d.AfterCheckpoint(members, observed, t, c.Fence)
	})

	if !serving {
		m.store.CloseConnections()
		return false, nil
	}

	return m.putMembership(ctx, members, revision)
}

// putMembership writes the membership. It returns false if another replica has
// replaced it.
func (m *Monitor) putMembership(ctx context.Context, members rollback.Membership, revision uint64) (bool, error) {
	m.epoch.Set(float64(members.Mark.Epoch))
	m.cfg.OnEpoch(members.Mark.Epoch)
	done, err := m.bucket.PutMembership(ctx, members, revision)
	if err != nil {
		return false, fmt.Errorf("recovery: write membership: %w", err)
	}
	return done, nil
}

// verify observes an incarnation in which the replica does not serve, and starts
// serving if nothing is lost, unless another replica has replaced the membership.
func (m *Monitor) verify(
	ctx context.Context,
) (members rollback.Membership, observed rollback.Observation, action rollback.Action, err error) {
	members, revision, err := m.bucket.Membership(ctx)
	if err != nil {
		return members, observed, action, fmt.Errorf("recovery: read membership: %w", err)
	}

	var markers []rollback.CommitMarker
	var id string
	m.guard.with(func(d *rollback.Detector, _ time.Duration) { id, markers = d.ID(), d.MarkersToVerify(members) })
	if observed, err = m.store.Observe(ctx, markers); err != nil {
		return members, observed, action, fmt.Errorf("recovery: observe postgres: %w", err)
	}

	var next rollback.Membership
	m.guard.with(func(d *rollback.Detector, now time.Duration) { next, action = d.Observe(members, observed, now) })

	if action == rollback.DeclareLoss {
		later, _, err := m.bucket.Membership(ctx)
		switch {
		case err != nil:
			return members, observed, action, fmt.Errorf("recovery: read membership again: %w", err)
		case members.Outdated(later):
			return members, observed, rollback.Wait, nil
		}
		return members, observed, action, nil
	}

	put, err := m.putMembership(ctx, next, revision)
	switch {
	case err != nil || !put:
		return members, observed, action, err
	case action == rollback.Wait:
		return members, observed, action, fmt.Errorf("%w: %v", errWaiting, next.UnverifiedReplicas(observed.Incarnation, id))
	}

	if released := next.UnverifiedReplicas(observed.Incarnation, id); len(released) > 0 {
		m.log.WarnContext(
			ctx,
			"postgres keeps its commits, so this control plane does not wait for those that are silent since it has restarted or "+
				"failed over",
			"silent_replicas",
			released,
			"keeps_commits",
			m.cfg.Keeps,
		)
	}

	added, err := m.store.AddReplica(ctx, id, observed.Mark.Epoch)
	if err != nil {
		return members, observed, action, fmt.Errorf("recovery: add replica: %w", err)
	}
	if added {
		m.guard.with(func(d *rollback.Detector, now time.Duration) { d.StartServing(observed, now) })
	}

	return members, observed, action, nil
}

// Declare declares a loss on the request of an operator, because not every loss
// can be detected. The time of such a loss is unknown.
func (m *Monitor) Declare(ctx context.Context) error {
	members, _, err := m.bucket.Membership(ctx)
	if err != nil {
		return fmt.Errorf("recovery: read membership: %w", err)
	}
	observed, err := m.store.Observe(ctx, nil)
	if err != nil {
		return fmt.Errorf("recovery: observe postgres: %w", err)
	}
	return m.declareBecause(ctx, "an operator has declared that postgres has lost commits", members, observed, true)
}

// declare declares a loss that this replica has found, or cannot exclude.
func (m *Monitor) declare(ctx context.Context, members rollback.Membership, observed rollback.Observation) error {
	reason := "it cannot be known whether postgres has lost commits: control planes that were connected to its former server stay silent"
	if len(observed.MissingMarkers) > 0 || members.Lost(observed) {
		reason = "postgres has lost commits"
	}
	return m.declareBecause(ctx, reason, members, observed, false)
}

func (m *Monitor) declareBecause(
	ctx context.Context,
	reason string,
	members rollback.Membership,
	observed rollback.Observation,
	byHand bool,
) error {
	ctx, cancel := context.WithTimeout(ctx, declareTimeout)
	defer cancel()
	backup, err := m.readBackup(ctx, byHand)
	if err != nil {
		return err
	}
	now, err := m.store.DeclareLoss(ctx, observed.Mark.Epoch, members.Mark, m.cfg.Window, backup)
	if err != nil {
		return fmt.Errorf("recovery: declare loss: %w", err)
	}
	m.losses.Inc()
	m.log.ErrorContext(
		ctx,
		"a new cluster epoch begins, and nothing is granted until every earlier session has expired",
		"reason",
		reason,
		"epoch",
		now.Epoch,
		"revision",
		now.Revision,
		"revocations_restored",
		len(backup.RevokedKeys),
		"video_jobs_restored",
		len(backup.Videos),
		"markers_missing",
		len(observed.MissingMarkers),
		"silent_replicas",
		members.UnverifiedReplicas(observed.Incarnation, ""),
	)
	return nil
}

// replayMargin is how long before the last checkpoint the backups are read from:
// the clocks of Postgres and of the bus differ, and some writes were running
// then.
const replayMargin = time.Hour

// readBackup reads the state that Postgres may have lost. A loss that is
// declared by hand may be older than the last checkpoint, so all of it is read.
func (m *Monitor) readBackup(ctx context.Context, byHand bool) (b Backup, err error) {
	if b.RevokedKeys, err = m.bucket.RevokedKeys(ctx); err != nil {
		return b, fmt.Errorf("recovery: read revocations: %w", err)
	}

	var since time.Time
	if !byHand {
		if since, err = m.store.LastCheckpoint(ctx); err != nil {
			return b, fmt.Errorf("recovery: read last checkpoint: %w", err)
		}
	}

	if !since.IsZero() {
		since = since.Add(-replayMargin)
	}
	if b.Videos, err = m.bucket.VideoBackups(ctx, since); err != nil {
		return b, fmt.Errorf("recovery: read video jobs: %w", err)
	}

	return b, nil
}
