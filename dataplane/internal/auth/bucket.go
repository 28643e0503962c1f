package auth

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// Bucket is the bucket of key records. It is read at the server that leads it.
type Bucket interface {
	// KeyMark returns the mark and its sequence number. The mark is not valid if there is none.
	KeyMark(ctx context.Context) (wire.KeyMark, uint64, error)
	// KeyEntry returns the entry of a hash. It is not valid if there is none.
	KeyEntry(ctx context.Context, hash apikey.Hash) (wire.KeyEntry, error)
}

var (
	// errNoEntry means that the bucket has no record of a hash. The key may be newer than the bucket, so it is not known to be
	// invalid; another hash of the key may have a record.
	errNoEntry = errors.New("auth: the bucket has no record of the key")
	// errBucketBehind means that the bucket may lack a change that the proxy must know.
	errBucketBehind = errors.New("auth: the bucket of key records is out of date")
)

// bucketUse counts the reads of the bucket.
type bucketUse struct {
	read, none, behind, failed prometheus.Counter
}

func newBucketUse(reg prometheus.Registerer) bucketUse {
	reads := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "mgw_key_bucket_reads_total",
		Help: "Reads of the bucket of key records, because no control plane has decided about a key, by result: " +
			"read, none if it has no record of the key, behind if it may lack a change, failed.",
	}, []string{"result"})
	return bucketUse{
		read:   reads.WithLabelValues("read"),
		none:   reads.WithLabelValues("none"),
		behind: reads.WithLabelValues("behind"),
		failed: reads.WithLabelValues("failed"),
	}
}

// readBucket reads the record of a hash from the bucket, in a session and its
// cluster epoch, and caches it.
func (k *Keys) readBucket(ctx context.Context, hash apikey.Hash, number, epoch int64) (*Key, error) {
	key, err := k.readEntry(ctx, hash, number, epoch)
	switch {
	case err == nil && k.isRevoked(hash):
		err = ErrInvalid
	case err == nil && !k.isCurrent(key):
		err = errBucketBehind
	}

	switch {
	case err == nil:
		k.store(key)
		k.bucketUse.read.Inc()
		return key, nil
	case errors.Is(err, ErrInvalid):
		k.bucketUse.read.Inc()
		return nil, err
	case errors.Is(err, errNoEntry):
		k.bucketUse.none.Inc()
	case errors.Is(err, errBucketBehind):
		k.bucketUse.behind.Inc()
	default:
		k.bucketUse.failed.Inc()
	}

	return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// readEntry reads the record of a hash. The mark is read before the record, so the
// record has every change up to the mark's revision. A server that leads the bucket
// no more may have an older record, and then it has an older mark, too: so the mark
// is read again.
func (k *Keys) readEntry(ctx context.Context, hash apikey.Hash, number, epoch int64) (*Key, error) {
	mark, at, err := k.cfg.Bucket.KeyMark(ctx)
	if err != nil {
		return nil, err
	}
	if !mark.Valid() || mark.Epoch != epoch {
		return nil, fmt.Errorf("%w: it has cluster epoch %d", errBucketBehind, mark.Epoch)
	}

	entry, err := k.cfg.Bucket.KeyEntry(ctx, hash)
	if err != nil {
		return nil, err
	}

	again, later, err := k.cfg.Bucket.KeyMark(ctx)
	if err != nil {
		return nil, err
	}
	if again.Epoch != mark.Epoch || again.Revision < mark.Revision || later < at {
		return nil, fmt.Errorf("%w: another server has answered", errBucketBehind)
	}

	// After a loss of commits, an entry of an earlier epoch may be that of a key that was lost.
	if !entry.Valid(hash) || entry.Epoch != epoch {
		return nil, errNoEntry
	}

	return &Key{entry.Record, session.RecordVersion{
		Hash:     hash,
		Account:  entry.Record.AccountID,
		Revision: max(mark.Revision, entry.Revision),
		Session:  number,
	}}, nil
}
