// Package epoch owns the case that Postgres has lost commits: it was restored
// from an older copy, or failed over to a standby that lacked some.
//
// The rules are lease.Attendant's; here they are played with a real Postgres
// and a real bus. Each transaction leaves a witness in Postgres, and each
// replica remembers those that it has answered. A life of Postgres, which is
// one run of one server, is entered only after every replica in the roll, which
// is kept on the bus, has found its witnesses in it. Nothing is served before
// that, over no connection. So a loss is found out before anything is granted
// or confirmed, whichever replica meets it first and however short it is:
//
//   - A commit that some replica has answered, which still runs or has ended in
//     order, is missed if it is lost. Nothing is written outside of Postgres
//     before the answer, and so this costs one row in the same transaction.
//   - A replica that ended otherwise takes what it knows with it. While Postgres
//     goes on, the others strike it off, by a commit that comes after all of its
//     own. If Postgres changes its life before that, or a replica cannot reach
//     it, silence counts as a loss: it costs a pause, and hides nothing.
//   - A commit without an answer, to anyone, may be lost without a word.
//
// This rests on four things: Postgres loses the end of its log and nothing
// before it; there is one server at a time that takes writes; a server that
// goes on running keeps what it has answered, also if its processes crash
// (synchronous_commit is not off); and the bus does not lose the roll together
// with Postgres's commits. Where this does not hold, `controlplane
// declare-loss` does by hand what follows.
//
// Whoever finds a loss declares it in one transaction: the next epoch begins,
// with revisions and ids that nobody has seen; every session is over;
// revocations are made again; video jobs are as they were last; nothing is
// granted until no proxy can admit by what was lost; usage is settled once more
// from the stream, and published once more from the spools.
//
// Video jobs come back because each of their states is kept on the bus before it
// is committed (see video.Keeper): what was made, changed or ended since the
// copy is put into it before anybody is served, so that no client misses its
// job, and an open one is polled and billed as if nothing had been. Whether it
// was billed is not asked: settlement takes a request once, from the stream or
// from whoever sees the job's end again. A job comes back for its account and
// key only: lost with these, its state waits in quarantine. Jobs that a control
// plane of the release before has recorded are not kept, and lost as they were.
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

	"modelgateway/controlplane/internal/video"
	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/rollback"
)

// Store is Postgres as far as epochs go.
type Store interface {
	// Watch has every transaction witnessed, and every connection refused but those to the life that is served in.
	SetGuard(w *Guard)
	// Find reads how Postgres stands, on a connection that is never refused.
	Observe(ctx context.Context, asks []rollback.CommitMarker) (rollback.Observation, error)
	// Attend makes a replica known to Postgres; false if the epoch is another one.
	AddReplica(ctx context.Context, id string, epoch int64) (bool, error)
	// Beat commits a witness, forgets those of the replica below oldest, and fences others. It returns ErrElsewhere
	// or ErrFenced if the life has to be entered again.
	Checkpoint(ctx context.Context, witness rollback.CommitMarker, oldest int64, fence []string) (rollback.Observation, error)
	// Reset closes the connections to a life that was left.
	CloseConnections()
	// Complete is until when nothing is missing; the zero time if nothing tells.
	LastCheckpoint(ctx context.Context) (time.Time, error)
	// Declare begins the epoch after the given one, unless somebody has.
	DeclareLoss(ctx context.Context, epoch int64, seen rollback.HighWaterMark, valid time.Duration, kept Backup) (rollback.HighWaterMark, error)
}

// Kept is what was kept outside of Postgres, and is made again.
type Backup struct {
	RevokedKeys []apikey.Hash
	Videos      []video.Backup
}

// Anchor is what outlives a loss in Postgres.
type Bucket interface {
	// Roll returns the roll with its revision, zero if there is none.
	Membership(ctx context.Context) (rollback.Membership, uint64, error)
	// PutRoll replaces the roll of a revision; false if it is another one by now.
	PutMembership(ctx context.Context, roll rollback.Membership, revision uint64) (bool, error)
	// RevokedKeys lists the keys whose revocation was ever to be confirmed.
	RevokedKeys(ctx context.Context) ([]apikey.Hash, error)
	// KeptVideos reads the newest state of each video job that was kept since a time, or that is kept at all.
	VideoBackups(ctx context.Context, since time.Time) ([]video.Backup, error)
}

// Keeper enters the lives of Postgres, and declares losses. Start it before
// anything else uses Postgres, and stop it last.
type Monitor struct {
	store      Store
	bucket     Bucket
	sessionTTL time.Duration
	guard      *Guard
	// onEpoch is told of the epoch at every look.
	onEpoch func(int64)
	log     *slog.Logger
	epoch   prometheus.Gauge
	losses  prometheus.Counter

	guarded sync.Once
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// New returns a Keeper that is not started; valid is the length of sessions.
func New(store Store, anchor Bucket, valid time.Duration, onEpoch func(int64), log *slog.Logger, reg prometheus.Registerer) *Monitor {
	with := promauto.With(reg)
	return &Monitor{
		store: store, bucket: anchor, sessionTTL: valid, guard: newGuard(rand.Text(), silenceLimit), onEpoch: onEpoch, log: log,
		epoch:  with.NewGauge(prometheus.GaugeOpts{Name: "mgw_cluster_epoch", Help: "How often Postgres has lost commits, plus one."}),
		losses: with.NewCounter(prometheus.CounterOpts{Name: "mgw_cluster_losses_total", Help: "Losses of commits that this replica has declared."}),
	}
}

const (
	// every is the time between two looks, pause that while others are waited for; timeout bounds one, but for what
	// a declaration takes.
	checkInterval  = time.Second
	retryInterval  = 200 * time.Millisecond
	checkTimeout   = 5 * time.Second
	declareTimeout = time.Minute
	// silence is how long another replica may be silent: longer than a connection to a server that is gone takes to
	// fail and to be made to the next one.
	silenceLimit = 15 * time.Second
	// looks bounds how often one look is begun again because another replica was faster.
	maxAttempts = 5
)

// errWaiting says that other replicas have to be waited for.
var errWaiting = errors.New("epoch: waits for other control planes to find their commits in this postgres")

// Start enters the life of Postgres that it meets, and goes on looking until
// Stop.
func (k *Monitor) Start(ctx context.Context) error {
	for {
		err := k.Check(ctx)
		if err == nil {
			break
		}
		if !errors.Is(err, errWaiting) {
			return err
		}
		if !sleep(ctx, retryInterval, nil) {
			return context.Cause(ctx)
		}
	}
	ctx, k.stop = context.WithCancel(context.WithoutCancel(ctx))
	k.done.Go(func() { k.run(ctx) })
	return nil
}

func (k *Monitor) run(ctx context.Context) {
	wait, moved := checkInterval, (<-chan struct{})(k.guard.moved)
	for sleep(ctx, wait, moved) {
		wait, moved = checkInterval, k.guard.moved
		if err := k.Check(ctx); err != nil && ctx.Err() == nil {
			k.log.WarnContext(ctx, "compare postgres with what is known of it", "error", err)
			if errors.Is(err, errWaiting) {
				wait, moved = retryInterval, nil // every connection is refused now
			}
		}
	}
}

// sleep waits for a time, or until a connection has met another life of
// Postgres; false if the context ends.
func sleep(ctx context.Context, d time.Duration, moved <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-moved:
	case <-timer.C:
	}
	return true
}

// Stop ends looking, and takes this replica out of the roll. Nothing may use
// Postgres after it.
func (k *Monitor) Stop(ctx context.Context) {
	if k.stop != nil {
		k.stop()
	}
	k.done.Wait()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if k.serving() {
		if _, err := k.checkpoint(ctx, true); err != nil { // the others wait for it, and strike it off
			k.log.WarnContext(ctx, "leave the roll", "error", err)
		}
	}
}

func (k *Monitor) serving() (serving bool) {
	k.guard.with(func(a *rollback.Detector, _ time.Duration) { serving = a.Incarnation() != "" })
	return serving
}

// Look looks once: it enters the life of Postgres, or beats if it has; and
// declares a loss if it finds one. From the first look on nothing else can be
// done with Postgres but in a life that was entered. It is not safe for
// concurrent use.
func (k *Monitor) Check(ctx context.Context) error {
	k.guarded.Do(func() { k.store.SetGuard(k.guard) })
	for range maxAttempts {
		if done, err := k.step(ctx); done || err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: they are always faster", errWaiting)
}

// step is one attempt of a look; it is not done if it has to be looked at once
// more.
func (k *Monitor) step(whole context.Context) (done bool, err error) {
	ctx, cancel := context.WithTimeout(whole, checkTimeout)
	defer cancel()
	if k.serving() {
		return k.checkpoint(ctx, false)
	}
	roll, found, advice, err := k.verify(ctx)
	if err == nil && advice == rollback.DeclareLoss {
		return false, k.declare(whole, roll, found, false)
	}
	return err == nil && k.serving(), err
}

// stay beats, and puts it into the roll; the last time it takes the replica out
// of it. It is not done if another replica has put the roll, or the life is left.
func (k *Monitor) checkpoint(ctx context.Context, last bool) (done bool, err error) {
	roll, revision, unread := k.bucket.Membership(ctx)
	var fence []string
	var beat rollback.Transaction
	var oldest int64
	k.guard.with(func(a *rollback.Detector, now time.Duration) {
		if unread == nil {
			fence = a.SilentReplicas(roll, now)
		}
		if last {
			fence = append(fence, a.ID())
		}
		beat, oldest, _ = a.BeginCheckpoint()
	})
	switch {
	case unread != nil:
		oldest = 0 // whatever the roll asks for next is kept
	case roll.LastMarker.Replica == beat.Replica:
		oldest = min(oldest, roll.LastMarker.N) // as long as the bus takes no roll with a newer one
	}
	found, err := k.store.Checkpoint(ctx, beat.CommitMarker, oldest, fence)
	switch {
	case err == nil:
		err = k.guard.Committed(beat)
	case errors.Is(err, ErrNotServing), errors.Is(err, ErrFenced):
		k.guard.with(func(a *rollback.Detector, _ time.Duration) { a.Failed(beat); a.StopServing() })
		k.store.CloseConnections()
		return false, nil
	default:
		k.guard.Failed(beat)
	}
	if err != nil {
		return false, fmt.Errorf("epoch: %w", err)
	}
	if unread != nil { // the beat counts all the same
		return false, fmt.Errorf("epoch: read roll: %w", unread)
	}
	stays := false
	k.guard.with(func(a *rollback.Detector, _ time.Duration) { roll, stays = a.AfterCheckpoint(roll, found, beat, fence) })
	if !stays {
		k.store.CloseConnections()
		return false, nil
	}
	return k.putMembership(ctx, roll, revision)
}

// put puts the roll; false if another replica was faster.
func (k *Monitor) putMembership(ctx context.Context, roll rollback.Membership, revision uint64) (bool, error) {
	k.epoch.Set(float64(roll.Mark.Epoch))
	k.onEpoch(roll.Mark.Epoch)
	done, err := k.bucket.PutMembership(ctx, roll, revision)
	if err != nil {
		return false, fmt.Errorf("epoch: put roll: %w", err)
	}
	return done, nil
}

// enter looks at a life of Postgres that is not served in, and serves in it if
// it may. If another replica was faster, it does not.
func (k *Monitor) verify(ctx context.Context) (roll rollback.Membership, found rollback.Observation, advice rollback.Action, err error) {
	roll, revision, err := k.bucket.Membership(ctx)
	if err != nil {
		return roll, found, advice, fmt.Errorf("epoch: read roll: %w", err)
	}
	var asks []rollback.CommitMarker
	var id string
	k.guard.with(func(a *rollback.Detector, _ time.Duration) { id, asks = a.ID(), a.MarkersToVerify(roll) })
	if found, err = k.store.Observe(ctx, asks); err != nil {
		return roll, found, advice, fmt.Errorf("epoch: %w", err)
	}
	var next rollback.Membership
	k.guard.with(func(a *rollback.Detector, now time.Duration) { next, advice = a.Observe(roll, found, now) })
	if advice == rollback.DeclareLoss {
		return roll, found, advice, nil
	}
	put, err := k.putMembership(ctx, next, revision)
	switch {
	case err != nil || !put:
		return roll, found, advice, err
	case advice == rollback.Wait:
		return roll, found, advice, fmt.Errorf("%w: %v", errWaiting, next.UnverifiedReplicas(found.Incarnation, id))
	}
	known, err := k.store.AddReplica(ctx, id, found.Mark.Epoch)
	if err != nil {
		return roll, found, advice, fmt.Errorf("epoch: %w", err)
	}
	if known {
		k.guard.with(func(a *rollback.Detector, _ time.Duration) { a.StartServing(found) })
	}
	return roll, found, advice, nil
}

// Declare declares a loss by hand, for one that nothing can show. When it
// happened is not known either.
func (k *Monitor) Declare(ctx context.Context) error {
	roll, _, err := k.bucket.Membership(ctx)
	if err != nil {
		return fmt.Errorf("epoch: read roll: %w", err)
	}
	found, err := k.store.Observe(ctx, nil)
	if err != nil {
		return fmt.Errorf("epoch: %w", err)
	}
	return k.declare(ctx, roll, found, true)
}

func (k *Monitor) declare(ctx context.Context, roll rollback.Membership, found rollback.Observation, byHand bool) error {
	ctx, cancel := context.WithTimeout(ctx, declareTimeout)
	defer cancel()
	kept, err := k.readBackup(ctx, byHand)
	if err != nil {
		return err
	}
	now, err := k.store.DeclareLoss(ctx, found.Mark.Epoch, roll.Mark, k.sessionTTL, kept)
	if err != nil {
		return fmt.Errorf("epoch: declare: %w", err)
	}
	k.losses.Inc()
	k.log.ErrorContext(ctx, "postgres has lost commits, or a control plane that may know it remains silent: "+
		"a new epoch begins, and nothing is granted until every session from before is over",
		"epoch", now.Epoch, "rev", now.Revision, "revocations_kept", len(kept.RevokedKeys), "video_jobs_kept", len(kept.Videos), "witnesses_missing", len(found.MissingMarkers),
		"silent", roll.UnverifiedReplicas(found.Incarnation, ""))
	return nil
}

// margin is how much more is read of what was kept than seems to be missing:
// for the clocks of Postgres and of the bus, and for what was on its way.
const replayMargin = time.Hour

// readKept reads what a loss may have taken. One that is declared by hand may
// be older than what Postgres has seen since.
func (k *Monitor) readBackup(ctx context.Context, byHand bool) (kept Backup, err error) {
	if kept.RevokedKeys, err = k.bucket.RevokedKeys(ctx); err != nil {
		return kept, fmt.Errorf("epoch: read revocations: %w", err)
	}
	var since time.Time
	if !byHand {
		if since, err = k.store.LastCheckpoint(ctx); err != nil {
			return kept, fmt.Errorf("epoch: %w", err)
		}
	}
	if !since.IsZero() {
		since = since.Add(-replayMargin)
	}
	if kept.Videos, err = k.bucket.VideoBackups(ctx, since); err != nil {
		return kept, fmt.Errorf("epoch: read video jobs: %w", err)
	}
	return kept, nil
}
