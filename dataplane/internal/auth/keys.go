// Package auth looks up the record of an API key, in a cache, at the control plane
// or, if that does not decide, in the bucket of key records, and decides whether the
// record may be used.
//
// The cache may evict a record at any time, and of two writes it may keep the
// older one. So every record has the revision at which it was read, and the
// decision does not depend on the cache: session.Invalidations has the revoked
// keys and, for the session and for changed keys and accounts, the lowest revision
// at which a record must have been read. Other records are never admitted.
//
// The text of a key is not kept, only its lookup hash.
package auth

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dgraph-io/ristretto/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/singleflight"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/pulse"
	"modelgateway/shared/wire"
)

var (
	// ErrInvalid means that the key is missing, malformed, unknown, inactive or revoked.
	ErrInvalid = errors.New("auth: invalid API key")
	// ErrUnavailable means that it cannot be decided now whether the key is valid.
	ErrUnavailable = errors.New("auth: key record is not available")
)

// Loader reads key records from the control plane.
type Loader interface {
	LoadKey(ctx context.Context, q *wire.LoadKeyRequest) (*wire.LoadKeyResponse, error)
}

// Key is the record of a key with the revision at which it was read. It is
// immutable.
type Key struct {
	wire.KeyRecord
	version session.RecordVersion
}

// HasHash reports whether the record is that of the key with the given hash.
func (k *Key) HasHash(hash apikey.Hash) bool { return k.version.Hash == hash }

const (
	// MaxKeys is the number of records that a proxy caches.
	MaxKeys = 1 << 18
	// keysPerUnknown is the number of cached records for each cached hash of an unknown key.
	keysPerUnknown = 16
	// countersPerKey is the number of use counters of the cache for each cached entry. Ristretto recommends ten; they
	// would take 12 MB.
	countersPerKey = 4
	// negativeTTL is how long an unknown key is refused without another load. A key that was just created may be refused
	// for this time.
	negativeTTL = time.Second
	// loadTimeout bounds a load with all its attempts.
	loadTimeout = 2 * time.Second
	// askTimeout bounds a question to the control plane: the bucket is read after it.
	askTimeout = loadTimeout / 2
	// loadAttempts bounds how often a record is read again because a key change made it out of date.
	loadAttempts = 4
)

// Config says which keys there are.
type Config struct {
	// Hasher hashes keys under the current pepper, Previous under the previous peppers.
	Hasher   *apikey.Hasher
	Previous []*apikey.Hasher
	// Bucket has key records for when the control plane does not decide.
	Bucket Bucket
	// MaxKeys bounds the cached records.
	MaxKeys int64
}

// Keys looks up key records. It is safe for concurrent use.
type Keys struct {
	cfg        Config
	loader     Loader
	loadCounts *prometheus.CounterVec
	cacheUse   cacheUse
	records    *ristretto.Cache[uint64, *Key]
	unknown    *ristretto.Cache[uint64, negativeEntry]
	loadGroup  singleflight.Group
	lanes      lanes
	bucketUse  bucketUse

	mu            sync.RWMutex
	invalidations session.Invalidations
	// epoch is the cluster epoch of the session.
	epoch int64
	// keysAdded is the revision of the last import of keys. A hash that was unknown below it may be known now.
	keysAdded int64
	// requireMAC means that every key has a MAC under one of the peppers: others are refused without a lookup.
	requireMAC bool
}

// negativeEntry is a hash that no key had at a revision.
type negativeEntry struct {
	hash     apikey.Hash
	revision int64
}

// New returns Keys with an empty cache. A key is looked up by its hash under the
// current pepper and, if it is unknown, under each of the previous peppers.
func New(cfg Config, loader Loader, reg prometheus.Registerer) (*Keys, error) {
	records, err := ristretto.NewCache(&ristretto.Config[uint64, *Key]{
		NumCounters:        countersPerKey * cfg.MaxKeys,
		MaxCost:            cfg.MaxKeys,
		BufferItems:        64,
		IgnoreInternalCost: true,
	})
	if err != nil {
		return nil, fmt.Errorf("auth: create cache: %w", err)
	}

	maxUnknown := cfg.MaxKeys / keysPerUnknown
	unknown, err := ristretto.NewCache(&ristretto.Config[uint64, negativeEntry]{
		NumCounters:        countersPerKey * maxUnknown,
		MaxCost:            maxUnknown,
		BufferItems:        64,
		IgnoreInternalCost: true,
	})
	if err != nil {
		return nil, fmt.Errorf("auth: create cache: %w", err)
	}

	k := &Keys{
		cfg:     cfg,
		loader:  loader,
		records: records,
		unknown: unknown,
		loadCounts: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_key_loads_total",
			Help: "Loads of key records by whether the key has a valid MAC (yes, no, or known: the record was read before) and " +
				"outcome: found, unknown, unavailable.",
		}, []string{"mac", "outcome"}),
		cacheUse:  newCacheUse(reg),
		bucketUse: newBucketUse(reg),
	}
	k.Reset(0, 0)

	return k, nil
}

// Close stops the goroutines of the caches.
func (k *Keys) Close() {
	k.records.Close()
	k.unknown.Close()
}

// cacheKey returns the key of a hash in the caches. Two hashes may have the same
// one, so a cached entry is compared with the whole hash.
func cacheKey(h apikey.Hash) uint64 { return binary.LittleEndian.Uint64(h[:]) }

// Lookup returns the record of an active key. Its error is ErrInvalid or
// ErrUnavailable.
func (k *Keys) Lookup(ctx context.Context, text string) (*Key, error) {
	if apikey.Check(text) != nil {
		return nil, ErrInvalid
	}

	hash := k.cfg.Hasher.Hash(text)
	if key := k.cached(hash); key != nil {
		k.cacheUse.hits.Inc()
		return active(key)
	}

	var room [4]apikey.Hash // avoids an allocation: there is seldom more than one previous pepper
	hashes := append(room[:0], hash)
	for _, previous := range k.cfg.Previous {
		hash := previous.Hash(text)
		if key := k.cached(hash); key != nil {
			k.cacheUse.hits.Inc()
			return active(key)
		}
		hashes = append(hashes, hash)
	}

	mac := k.macOf(text)
	if mac == macNone && k.requiresMAC() {
		return nil, ErrInvalid
	}

	none := ErrInvalid
	for _, hash := range hashes {
		key, err := k.findByHash(ctx, hash, mac)
		_, inactive := errors.AsType[*InactiveError](err)
		switch {
		case errors.Is(err, errNoEntry):
			none = err
		case inactive, !errors.Is(err, ErrInvalid):
			return key, err
		}
	}

	return nil, none
}

// The values of the label mac of mgw_key_loads_total.
const (
	macValid = "yes"
	macNone  = "no"
	// macKnown: the key was good when its record was read before.
	macKnown = "known"
)

// macOf reports whether a key has a MAC under any of the peppers.
func (k *Keys) macOf(text string) string {
	if k.cfg.Hasher.HasMAC(text) || slices.ContainsFunc(k.cfg.Previous, func(h *apikey.Hasher) bool { return h.HasMAC(text) }) {
		return macValid
	}
	return macNone
}

// cached returns the cached record of a hash, or nil if there is none that may be
// used.
func (k *Keys) cached(hash apikey.Hash) *Key {
	if key, ok := k.records.Get(cacheKey(hash)); ok && key.HasHash(hash) && k.isCurrent(key) {
		return key
	}
	return nil
}

// findByHash returns the record of a hash from the cache or the control plane.
func (k *Keys) findByHash(ctx context.Context, hash apikey.Hash, mac string) (*Key, error) {
	if key := k.cached(hash); key != nil {
		k.cacheUse.hits.Inc()
		return active(key)
	}
	if k.isRevoked(hash) {
		k.cacheUse.refused.Inc()
		return nil, k.refused(hash)
	}
	if e, ok := k.unknown.Get(cacheKey(hash)); ok && e.hash == hash && k.stillUnknown(e) {
		k.cacheUse.refused.Inc()
		return nil, ErrInvalid
	}
	k.cacheUse.misses.Inc()
	return k.load(ctx, hash, mac)
}

// refused returns the error for a revoked key: with its record if the cache still has it.
func (k *Keys) refused(hash apikey.Hash) error {
	if key, ok := k.records.Get(cacheKey(hash)); ok && key.HasHash(hash) {
		return &InactiveError{Key: key, Reason: pulse.ReasonKeyInactive}
	}
	return ErrInvalid
}

// active returns the record, or an InactiveError.
func active(key *Key) (*Key, error) {
	if err := key.Usable(); err != nil {
		return nil, err
	}
	return key, nil
}

// Valid reports whether a record may still be admitted: the key is active, not paused and not expired, and no key change has made
// the record out of date. Callers must check it again after every wait.
func (k *Keys) Valid(key *Key) bool { return key.Usable() == nil && k.isCurrent(key) }

func (k *Keys) isCurrent(key *Key) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.invalidations.IsCurrent(key.version)
}

// stillUnknown reports whether no keys were imported since the entry was read.
func (k *Keys) stillUnknown(e negativeEntry) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return e.revision >= k.keysAdded
}

func (k *Keys) isRevoked(hash apikey.Hash) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.invalidations.Revoked(hash)
}

// session returns the number of the current session and its cluster epoch.
func (k *Keys) session() (number, epoch int64) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.invalidations.Session(), k.epoch
}

// load reads the record of a hash from the control plane or the bucket. Concurrent
// calls for the same hash share one load.
func (k *Keys) load(ctx context.Context, hash apikey.Hash, mac string) (*Key, error) {
	result := k.loadGroup.DoChan(string(hash[:]), func() (any, error) {
		// The load continues if the first caller gives up: others may wait for it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
		defer cancel()
		if mac == macNone && k.wasGood(hash) {
			mac = macKnown
		}
		key, err := k.fetch(ctx, hash, mac != macNone)
		k.loadCounts.WithLabelValues(mac, outcome(err)).Inc()
		return key, err
	})
	select {
	case r := <-result:
		if r.Err != nil {
			return nil, r.Err
		}
		return active(r.Val.(*Key))
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
}

// outcome returns the label of the outcome of a load.
func outcome(err error) string {
	switch {
	case err == nil:
		return "found"
	case errors.Is(err, ErrInvalid):
		return "unknown"
	default:
		return "unavailable"
	}
}

// wasGood reports whether the cache still has a record of an active key, even one
// that is out of date.
func (k *Keys) wasGood(hash apikey.Hash) bool {
	key, ok := k.records.Get(cacheKey(hash))
	return ok && key.HasHash(hash) && key.Active
}

// fetch reads the record of a hash from the control plane and caches it. It reads
// again as long as a key change during the read has made the record out of date. If
// the control plane does not decide, the record comes from the bucket.
func (k *Keys) fetch(ctx context.Context, hash apikey.Hash, proven bool) (*Key, error) {
	if err := k.lanes.enter(ctx, proven); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer k.lanes.leave(proven)

	for range loadAttempts {
		number, epoch := k.session()
		reply, err := k.ask(ctx, hash)
		if err != nil {
			return k.readBucket(ctx, hash, number, epoch)
		}

		if reply.Record == nil {
			e := negativeEntry{hash, reply.ReadRevision}
			if !k.stillUnknown(e) {
				continue
			}
			k.unknown.SetWithTTL(cacheKey(hash), e, 1, negativeTTL)
			return nil, ErrInvalid
		}

		key := &Key{*reply.Record, session.RecordVersion{
			Hash:     hash,
			Account:  reply.Record.AccountID,
			Revision: reply.ReadRevision,
			Session:  number,
		}}

		if k.isRevoked(hash) {
			return nil, ErrInvalid
		}

		if k.isCurrent(key) {
			k.store(key)
			return key, nil
		}
	}

	return nil, fmt.Errorf("%w: the record was out of date at every attempt", ErrUnavailable)
}

// errUndecided means that a control plane has answered that it cannot decide now.
var errUndecided = errors.New("auth: the control plane cannot read key records now")

// ask reads the record of a hash from the control plane.
func (k *Keys) ask(ctx context.Context, hash apikey.Hash) (*wire.LoadKeyResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	reply, err := k.loader.LoadKey(ctx, &wire.LoadKeyRequest{V: wire.Version, KeyHash: hash})
	if err == nil && reply.Status != wire.Done {
		err = errUndecided
	}
	return reply, err
}

// store replaces the cached record of a key. Of two writes in quick succession the
// cache may keep the older one, so the entry is deleted first.
func (k *Keys) store(key *Key) {
	c := cacheKey(key.version.Hash)
	k.records.Del(c)
	k.records.Wait()
	k.records.Set(c, key, 1)
}

// Renew returns the current record of a key. It reads the record again unless the
// given one is still valid. The error is ErrInvalid if the key was revoked or is
// inactive, and ErrUnavailable if this cannot be decided now.
func (k *Keys) Renew(ctx context.Context, key *Key) (*Key, error) {
	if k.Valid(key) {
		return key, nil
	}
	return k.findByHash(ctx, key.version.Hash, macKnown)
}

// Reset begins a session in a cluster epoch. Records that were read before, or at a
// revision below floor, are not used any more.
func (k *Keys) Reset(floor, epoch int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.invalidations.BeginSession(floor)
	k.epoch = epoch
	k.keysAdded, k.requireMAC = floor, false
}

// RequireMAC says, after Reset, whether every key has a MAC under one of the peppers,
// until a change adds keys.
func (k *Keys) RequireMAC(required bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.requireMAC = required
}

func (k *Keys) requiresMAC() bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.requireMAC
}

// Apply applies a key change. When it returns, Valid is false for every record that
// the change makes out of date.
func (k *Keys) Apply(c wire.KeyChange) {
	k.mu.Lock()
	if c.Kind == wire.KeysAdded { // no record becomes out of date
		k.keysAdded, k.requireMAC = max(c.Revision, k.keysAdded), false
	} else {
		k.invalidations.Apply(c)
	}
	k.mu.Unlock()
	if c.Kind != wire.AccountUpdated {
		if c.Kind != wire.KeyRevoked { // the record of a revoked key tells whose requests are refused
			k.records.Del(cacheKey(c.KeyHash))
		}
		k.unknown.Del(cacheKey(c.KeyHash))
	}
}
