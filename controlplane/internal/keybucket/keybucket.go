// Package keybucket writes the record of every API key to a bucket in NATS, from
// which proxies read the keys that they do not know while no control plane
// responds or Postgres is unavailable.
//
// The bucket has an entry for each lookup hash, and a mark: a cluster epoch and a
// revision up to which every change is in the bucket. What is missing follows from
// the mark and from the revisions of the rows in Postgres, so a Writer needs no
// other state: it continues wherever another one has ended, and writes all keys only
// if there is no mark of this cluster epoch.
//
// Any replica may write. Each write names the number of the last message of the
// bucket that its writer knew before it read Postgres, and is refused if there is
// another one. So an older record never replaces a newer one, and no mark is
// written behind records that the bucket has lost, unless others have written
// exactly as many messages between that look and the write.
package keybucket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
	"modelgateway/shared/platform/retry"
	"modelgateway/shared/wire"
)

// ErrOvertaken means that the bucket has another last message: another replica
// writes, too, or the bucket has lost messages.
var ErrOvertaken = errors.New("keybucket: the bucket has another last message")

// Bucket is the bucket of key records.
type Bucket interface {
	// KeyState returns the state of the bucket, after it has created it if it is missing.
	KeyState(ctx context.Context) (State, error)
	// NextKeyEntry returns the first message behind a sequence number, and its own; zero if there is none.
	NextKeyEntry(ctx context.Context, after uint64) (Found, uint64, error)
	// AppendKeys writes entries, and then the mark if it is not nil: all of them, or nothing. It returns the sequence number of
	// the last one. The error is ErrOvertaken unless the last message of the bucket is the given one.
	AppendKeys(ctx context.Context, last uint64, entries []wire.KeyEntry, mark *wire.KeyMark) (uint64, error)
}

// State is the state of the bucket.
type State struct {
	// Last is the sequence number of the last message.
	Last uint64
	// Mark is the mark, read after that, and At its sequence number; zero if there is none.
	Mark wire.KeyMark
	At   uint64
}

// Found is a message in the bucket.
type Found struct {
	// Hash is that of an entry; zero if the message is none.
	Hash apikey.Hash
	// Foreign means that no control plane has written the message: NATS sends its replies to any subject that a request
	// names, so a stolen proxy can overwrite entries with them.
	Foreign bool
}

// Store is the Writer's view of Postgres.
type Store interface {
	// Head returns the cluster epoch and the revision.
	Head(ctx context.Context) (wire.KeyMark, error)
	// Keys returns the next keys behind an id, in the order of ids: those whose records may have changed since a revision, or
	// all if that is zero.
	Keys(ctx context.Context, since int64, after ident.UUID, limit int) (Page, error)
	// KeyEntries returns the entries of hashes. It leaves out those that no key has.
	KeyEntries(ctx context.Context, hashes []apikey.Hash) ([]wire.KeyEntry, error)
	// CountKeys returns the number of all keys.
	CountKeys(ctx context.Context) (int64, error)
}

// Page is a page of keys with all their hashes.
type Page struct {
	Keys   int
	Last   ident.UUID
	Hashes []apikey.Hash
}

const (
	// interval is the time between two looks at Postgres and the bucket.
	interval = time.Second
	// maxPage bounds the keys of a page, maxAppend the entries that are written at once.
	maxPage, maxAppend = 20_000, 500
	// stepTimeout bounds one read of Postgres or the bucket, or one write.
	stepTimeout = 10 * time.Second
	// patience is how long another replica, which has written entries without a mark, may write nothing before this one takes
	// its place.
	patience = 10 * time.Second
)

// Writer keeps the bucket up to date. It is not safe for concurrent use.
type Writer struct {
	store   Store
	bucket  Bucket
	log     *slog.Logger
	metrics *metrics
	// own is the last message that this replica has written. seen is the last one that it has seen of another, first at
	// seenAt.
	own, seen uint64
	seenAt    time.Time
	failing   bool
	// Tests change these.
	maxPage, maxAppend int
}

// New returns a Writer.
func New(store Store, bucket Bucket, log *slog.Logger, reg prometheus.Registerer) *Writer {
	return &Writer{
		store:     store,
		bucket:    bucket,
		log:       log,
		metrics:   newMetrics(reg),
		maxPage:   maxPage,
		maxAppend: maxAppend,
	}
}

// Run writes until ctx ends.
func (w *Writer) Run(ctx context.Context) {
	for {
		complete, err := w.Round(ctx)
		w.note(ctx, complete, err)
		if !retry.Sleep(ctx, interval) {
			return
		}
	}
}

// note counts and logs the outcome of a round.
func (w *Writer) note(ctx context.Context, complete bool, err error) {
	if ctx.Err() != nil {
		return
	}
	w.metrics.behind.set(!complete)
	if err == nil {
		w.failing = false
		return
	}
	w.metrics.failed.Inc()
	if !w.failing {
		w.failing = true
		w.log.WarnContext(ctx, "key records are not written to their bucket", slog.Any("error", err))
	}
}

// Round writes what the bucket lacks. It reports whether the bucket has every
// change that was committed when the round began; otherwise another replica writes.
func (w *Writer) Round(ctx context.Context) (complete bool, err error) {
	s, head, err := w.look(ctx)
	switch {
	case err != nil:
		return false, err
	case s.At > s.Last: // another replica has just written it
		return false, nil
	case s.Mark.Epoch > head.Epoch || s.Mark.Epoch == head.Epoch && s.Mark.Revision > head.Revision:
		return false, fmt.Errorf("keybucket: the bucket has cluster epoch %d and revision %d, Postgres %d and %d",
			s.Mark.Epoch, s.Mark.Revision, head.Epoch, head.Revision)
	case s.Mark == head && s.At == s.Last:
		return true, nil
	case s.At < s.Last:
		if wait, err := w.othersWrite(ctx, s.Last); wait || err != nil {
			return false, err
		}
	}

	w.metrics.behind.set(true)
	p := pass{Writer: w, last: s.Last, head: head}
	if s.Mark.Epoch == head.Epoch {
		err = p.writeChanges(ctx, s.Mark.Revision, s.At)
	} else {
		err = p.writeAll(ctx)
	}

	w.own = p.last
	if errors.Is(err, ErrOvertaken) {
		return false, nil
	}

	return err == nil, err
}

// look reads the state of the bucket, and then the head of Postgres.
func (w *Writer) look(ctx context.Context) (s State, head wire.KeyMark, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if s, err = w.bucket.KeyState(ctx); err == nil {
		head, err = w.store.Head(ctx)
	}
	return s, head, err
}

// othersWrite reports whether another replica may be writing: the last message is
// an entry, which this replica has not written, and is new.
func (w *Writer) othersWrite(ctx context.Context, last uint64) (bool, error) {
	if last == w.own {
		return false, nil
	}
	if last != w.seen {
		w.seen, w.seenAt = last, time.Now()
	}
	if time.Since(w.seenAt) >= patience {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	found, _, err := w.bucket.NextKeyEntry(ctx, last-1)
	return !found.Foreign, err
}

// pass is one write of everything that the bucket lacks.
type pass struct {
	*Writer
	// last is the last message of the bucket. head is the mark that is written at the end.
	last uint64
	head wire.KeyMark
}

// writeAll writes all keys.
func (p *pass) writeAll(ctx context.Context) error {
	began := time.Now()
	n, err := p.store.CountKeys(ctx)
	if err != nil {
		return err
	}
	p.log.InfoContext(ctx, "all key records are written to their bucket", slog.Int64("keys", n), slog.Int64("epoch", p.head.Epoch))
	if err := p.writeKeys(ctx, 0, n); err != nil {
		return err
	}
	p.log.InfoContext(ctx, "all key records are in their bucket", slog.Int64("keys", n), slog.Duration("after", time.Since(began)))
	return nil
}

// writeChanges writes what was changed since a revision, and again what others have
// overwritten behind the mark at a sequence number.
func (p *pass) writeChanges(ctx context.Context, since int64, at uint64) error {
	overwritten, err := p.foreign(ctx, at)
	if err != nil {
		return err
	}
	for hashes := range slices.Chunk(overwritten, p.maxAppend) {
		if err := p.write(ctx, hashes, nil); err != nil {
			return err
		}
	}
	return p.writeKeys(ctx, since, 0)
}

// foreign returns the hashes under which something lies, behind a sequence number,
// that no control plane has written.
func (p *pass) foreign(ctx context.Context, at uint64) (hashes []apikey.Hash, err error) {
	for at < p.last {
		step, cancel := context.WithTimeout(ctx, stepTimeout)
		found, next, err := p.bucket.NextKeyEntry(step, at)
		cancel()
		if err != nil {
			return nil, err
		}
		if next == 0 {
			break
		}
		if at = next; found.Foreign {
			hashes = append(hashes, found.Hash)
		}
	}
	return hashes, nil
}

// writeKeys writes the keys that were changed since a revision, or all if that is
// zero, and then the mark. expected is their number, if it is known.
func (p *pass) writeKeys(ctx context.Context, since, expected int64) error {
	defer p.metrics.left.Set(0)
	var after ident.UUID
	for {
		p.metrics.left.Set(float64(max(expected, 0)))
		page, err := p.page(ctx, since, after)
		if err != nil {
			return err
		}

		ends := page.Keys < p.maxPage
		chunks := slices.Collect(slices.Chunk(page.Hashes, p.maxAppend))
		if ends && len(chunks) == 0 {
			chunks = [][]apikey.Hash{nil}
		}

		for i, hashes := range chunks {
			var mark *wire.KeyMark
			if ends && i == len(chunks)-1 {
				mark = &p.head
			}
			if err := p.write(ctx, hashes, mark); err != nil {
				return err
			}
		}

		if ends {
			return nil
		}

		after, expected = page.Last, expected-int64(page.Keys)
	}
}

func (p *pass) page(ctx context.Context, since int64, after ident.UUID) (Page, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return p.store.Keys(ctx, since, after, p.maxPage)
}

// write reads the entries of hashes, and writes them and the mark.
func (p *pass) write(ctx context.Context, hashes []apikey.Hash, mark *wire.KeyMark) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	var entries []wire.KeyEntry
	if len(hashes) > 0 {
		var err error
		if entries, err = p.store.KeyEntries(ctx, hashes); err != nil {
			return err
		}
	}

	for i := range entries {
		if entries[i].Epoch != p.head.Epoch {
			return fmt.Errorf("keybucket: the cluster epoch has changed from %d to %d", p.head.Epoch, entries[i].Epoch)
		}
	}

	if len(entries) == 0 && mark == nil {
		return nil
	}

	last, err := p.bucket.AppendKeys(ctx, p.last, entries, mark)
	if err != nil {
		return err
	}

	p.last = last
	p.metrics.written.Add(float64(len(entries)))
	return nil
}
