package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"modelgateway/shared/lease/checkpoint"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// ErrBeatRefused means that the stream does not have the beat before as the
// last one of the proxy.
var ErrBeatRefused = errors.New("session: the stream of changes does not have the beat before as the last one")

// Stream is the stream of changes.
type Stream interface {
	// Follow subscribes to the changes that the stream stores. Some may be missing. It is called once.
	Follow(apply func(wire.StreamChange)) error
	// PublishBeat publishes a beat behind the one that it names. It returns ErrBeatRefused if that one is not the last.
	PublishBeat(ctx context.Context, b *wire.Beat) error
	// Open opens the stream to read it at the server that leads it.
	Open(ctx context.Context) (Reader, error)
}

// Reader reads single messages of the stream of changes.
type Reader interface {
	// Incarnation returns that of the stream when it was opened.
	Incarnation() string
	// LastBeat returns the last beat of the proxy and its sequence number; zero if there is none.
	LastBeat(ctx context.Context) (wire.Beat, uint64, error)
	// NextChange returns the first change behind a sequence number, and its own; zero if there is none. direct passes over
	// those that control planes have appended.
	NextChange(ctx context.Context, after uint64, direct bool) (wire.StreamChange, uint64, error)
}

// beatsPerWindow is how many beats a proxy sends in the window of freshness,
// so that some may fail; retriesPerBeat how often a failed one is repeated
// meanwhile.
const beatsPerWindow, retriesPerBeat = 4, 10

// fresh is the freshness of one session. Its fields are guarded by the lock of the
// Keeper, except for source, session and window.
type fresh struct {
	*session.Freshness
	source  string
	session wire.SessionID
	window  time.Duration
	// number and sequence are those of the last beat that was read.
	number   int64
	sequence uint64
	// seen has the ids of the changes that were applied since the beat before the last, so that they are applied once:
	// each application drops a cached record. older has those that came before the last beat.
	seen, older map[string]bool
	// was and alone are whether the proxy was fresh, and alone, when this was looked at last.
	was, alone bool
	// resumed is the checkpoint of a resumed session until this process has read what the stream has since; nil otherwise.
	resumed *checkpoint.Checkpoint
}

// beginFresh begins the freshness of a new session. The lock is held.
func (k *Keeper) beginFresh(id wire.SessionID, window time.Duration) {
	k.fresh = &fresh{
		Freshness: session.NewFreshness(window),
		source:    rand.Text(),
		session:   id,
		window:    window,
		seen:      map[string]bool{},
		older:     map[string]bool{},
	}
	k.wakeFresh()
}

// wakeFresh wakes the goroutine that sends beats in the stream of changes.
func (k *Keeper) wakeFresh() {
	select {
	case k.freshBegun <- struct{}{}:
	default: // it is awake
	}
}

// runFresh sends beats in the stream of changes and reads them, while there
// is a session, until ctx ends.
func (k *Keeper) runFresh(ctx context.Context) {
	following := false
	for ctx.Err() == nil {
		k.mu.Lock()
		f := k.fresh
		k.mu.Unlock()
		pause := session.Never
		if f != nil {
			began, interval := time.Now(), f.window/beatsPerWindow
			err := error(nil)
			if !following {
				err = k.stream.Follow(k.streamed)
				following = err == nil
			}
			if err == nil {
				err = k.beat(ctx, f, interval)
			}
			k.noteFresh(ctx, f, err)
			if pause = interval - time.Since(began); err != nil {
				pause = interval / retriesPerBeat
			}
		}

		timer := time.NewTimer(max(pause, 0))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-k.freshBegun:
		}

		timer.Stop()
	}
}

// noteFresh counts and logs the outcome of a beat, and whether the proxy has
// stopped to be fresh.
func (k *Keeper) noteFresh(ctx context.Context, f *fresh, err error) {
	if ctx.Err() != nil {
		return
	}

	result := "read"
	switch {
	case errors.Is(err, ErrBeatRefused):
		result = "refused"
	case err != nil:
		result = "failed"
	}

	k.freshMetrics.beats.WithLabelValues(result).Inc()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.freshTrouble.IsNew(err) {
		k.log.Warn("beat in the stream of changes failed", slog.Any("error", err))
	}

	if alone := k.Alone(); alone != f.alone {
		if f.alone = alone; alone {
			k.log.Warn("no control plane answers: requests are served by the stream of changes and the units of this proxy",
				slog.Int64("session", int64(f.session)))
		}
	}

	was, is := f.was, f.Fresh(k.clock())
	if f.was = is; was && !is {
		k.freshMetrics.lapses.Inc()
		k.log.Warn("it is not certain that no change was missed: all requests get 503", slog.Int64("session", int64(f.session)))
	}
}

// beat sends a beat, and reads it with the changes before it.
func (k *Keeper) beat(ctx context.Context, f *fresh, limit time.Duration) error {
	k.mu.Lock()
	b := f.Beat(k.clock())
	k.mu.Unlock()
	sending, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	sent := k.stream.PublishBeat(sending, &wire.Beat{
		V:        wire.Version,
		Source:   f.source,
		Session:  f.session,
		Number:   b.Number,
		Previous: b.Previous,
	})

	reading, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := errors.Join(sent, k.readBack(reading, f, sent))
	k.saveCheckpoint()

	return err
}

// readBack reads the last own beat in the stream, which may be stored although
// its acknowledgement was lost, and every change between the one before and this
// one. sent is the outcome of the last beat.
func (k *Keeper) readBack(ctx context.Context, f *fresh, sent error) error {
	reader, err := k.stream.Open(ctx)
	if err != nil {
		return err
	}

	b, sequence, err := reader.LastBeat(ctx)
	if err != nil {
		return err
	}

	k.mu.Lock()
	isNew, lost := b.Source == f.source && b.Number > f.number, sequence != f.sequence
	k.mu.Unlock()

	if !isNew {
		if errors.Is(sent, ErrBeatRefused) && lost {
			k.event(func(session.Instant) { k.lose(f) })
		}
		return nil
	}

	changes, err := k.readSince(ctx, reader, f, b.Previous, sequence)
	if err != nil {
		return err
	}

	// A server that leads the stream no more may lack changes, and this beat, too.
	switch again, at, err := reader.LastBeat(ctx); {
	case err != nil:
		return err
	case at != sequence || again != b:
		return fmt.Errorf("session: the stream of changes has beat %d at %d instead of %d at %d", again.Number, at, b.Number, sequence)
	}

	handle := k.event
	if len(changes) > 0 {
		handle = k.actOn
	}

	handle(func(now session.Instant) {
		if k.fresh != f {
			return
		}

		for _, c := range changes {
			if k.applyStreamed(now, c); k.fresh != f {
				return // the session has ended
			}
		}

		if !f.ReadBack(now, reader.Incarnation(), session.Beat{Number: b.Number, Previous: b.Previous}, sequence) {
			k.lose(f)
			return
		}

		f.number, f.sequence = b.Number, sequence
		f.seen, f.older = f.older, f.seen
		clear(f.seen)
		if f.resumed != nil && f.Fresh(now) {
			k.beginResumed(f)
		}

		k.setFresh(f)
		if f.Reads(now) && !f.Fresh(now) {
			k.client.HeartbeatNow() // the response ends the lapse
		}
	})

	return nil
}

// readSince reads the changes before a beat: those behind the one that it names.
// The first time in a resumed session, it reads those behind the last beat that
// the earlier process had read, and all revocations by operators.
func (k *Keeper) readSince(ctx context.Context, reader Reader, f *fresh, previous, until uint64) ([]wire.StreamChange, error) {
	k.mu.Lock()
	resumed := f.resumed
	k.mu.Unlock()
	if resumed == nil {
		return readChanges(ctx, reader, previous, until)
	}
	direct, err := readChanges(ctx, reader, 0, resumed.Freshness.Last)
	if err != nil {
		return nil, err
	}
	changes, err := readChanges(ctx, reader, resumed.Freshness.Last, until)
	return append(direct, changes...), err
}

// readChanges reads the changes between two sequence numbers. From the start of the
// stream, it reads the revocations of operators only: before the proxy is fresh, it
// reads the changes of Postgres, which has all others.
func readChanges(ctx context.Context, reader Reader, after, until uint64) (changes []wire.StreamChange, err error) {
	for direct := after == 0; ; {
		c, sequence, err := reader.NextChange(ctx, after, direct)
		if err != nil {
			return nil, err
		}
		if sequence == 0 || sequence > until {
			return changes, nil
		}
		if after = sequence; c.Valid() {
			changes = append(changes, c)
		}
	}
}

// lose ends freshness, because the stream has lost messages. The lock is held.
func (k *Keeper) lose(f *fresh) {
	if k.fresh != f {
		return
	}
	f.Reset()
	f.sequence = 0
	k.setFresh(f)
	k.log.Warn("the stream of changes has lost messages", slog.Int64("session", int64(f.session)))
}

// streamed applies a change that the stream has stored.
func (k *Keeper) streamed(c wire.StreamChange) {
	if !c.Valid() {
		return
	}
	k.actOn(func(now session.Instant) {
		if k.fresh != nil {
			k.applyStreamed(now, c)
		}
	})
}

// applyStreamed applies a change, unless it is applied. It may end the session. The
// lock is held.
func (k *Keeper) applyStreamed(now session.Instant, c wire.StreamChange) {
	f := k.fresh
	if f.seen[c.ID] || f.older[c.ID] {
		f.seen[c.ID] = true
		return
	}

	f.seen[c.ID] = true
	switch {
	case c.Ended != 0:
		k.client.HandleEnded(now, c.Ended)
	case c.Epoch != 0:
		k.client.HandleEpoch(now, c.Epoch)
	case c.Change.Revision == 0 || c.Change.Revision > k.client.Applied():
		k.freshMetrics.changes.Inc()
		proxy{k}.ApplyChange(c.Change)
		if f.resumed != nil && c.Change.MayReduce() {
			delete(f.resumed.Idle, c.Change.Account) // the earlier process would have returned them
		}
	}
}

// resynced records that a heartbeat of the session, sent at sentAt, was answered,
// and that all changes in the answer are applied. The lock is held.
func (k *Keeper) resynced(now, sentAt session.Instant) {
	f := k.fresh
	if f == nil {
		return
	}
	k.answered(sentAt, f.window)
	f.Resynced(now, sentAt)
	k.setFresh(f)
	f.was = f.was || f.Fresh(now)
}

// setFresh tells the session until when the proxy is fresh. The lock is held.
func (k *Keeper) setFresh(f *fresh) {
	if s := k.Current(); s != nil && s.ID == f.session {
		s.refresh(f.Until())
	}
}

type freshMetrics struct {
	beats           *prometheus.CounterVec
	changes, lapses prometheus.Counter
}

func newFreshMetrics(reg prometheus.Registerer) freshMetrics {
	f := promauto.With(reg)
	return freshMetrics{
		beats: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_fresh_beats_total",
			Help: "Beats in the stream of changes by result: read, refused (the stream has lost the one before, or another one " +
				"is on its way), failed.",
		}, []string{"result"}),
		changes: f.NewCounter(
			prometheus.CounterOpts{
				Name: "mgw_fresh_changes_total",
				Help: "Changes of keys and accounts that the stream of changes brought first.",
			},
		),
		lapses: f.NewCounter(prometheus.CounterOpts{
			Name: "mgw_fresh_lapses_total", Help: "How often it was no longer certain that no change was missed, so that requests got 503.",
		}),
	}
}
