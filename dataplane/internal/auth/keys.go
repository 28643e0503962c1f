// Package auth owns the way from the text of an API key to its record: the
// cache of records, the set of revoked keys, and the revisions below which a
// record is too old to be used.
//
// The cache is lossy: it may forget a record or keep an older one. So every
// record carries the revision at which it was read, and what must hold lives
// beside the cache in plain maps: a record read before the floor of the
// session, of its key or of its account is never admitted, nor is a key in the
// revoked set. Texts of keys are not kept.
package auth

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dgraph-io/ristretto/v2"
	"golang.org/x/sync/singleflight"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

var (
	// ErrInvalid says that the key is missing, malformed, unknown or revoked.
	ErrInvalid = errors.New("auth: no such key")
	// ErrUnavailable says that whether the key is good cannot be told now.
	ErrUnavailable = errors.New("auth: cannot tell")
)

// Loader asks the control plane for a record.
type Loader interface {
	LoadKey(ctx context.Context, q *wire.LoadKeyRequest) (*wire.LoadKeyResponse, error)
}

// Key is the record of a key as read at a revision. It is never changed.
type Key struct {
	wire.KeyRecord
	version session.RecordVersion
}

// Is tells whether the record is of the key with a hash.
func (k *Key) HasHash(hash apikey.Hash) bool { return k.version.Hash == hash }

const (
	// maxKeys bounds the cached records, maxUnknown the remembered hashes of unknown keys.
	maxKeys    = 1 << 18
	maxUnknown = 1 << 14
	// countersPerKey is how many keys' uses are counted for each that is kept. Ten are usual; they would be 12 MB.
	countersPerKey = 4
	// unknownFor is how long a key stays unknown without being asked for again: as long as a key issued just now may be refused.
	negativeTTL = time.Second
	// maxLoads bounds the concurrent lookups: forged keys must not crowd out good ones.
	maxConcurrentLoads = 64
	// loadTimeout bounds a lookup; loadAttempts how often one that was overtaken by a change is repeated.
	loadTimeout  = 2 * time.Second
	loadAttempts = 4
)

// Keys is the store of key records. It is safe for concurrent use.
type Keys struct {
	hasher    *apikey.Hasher
	previous  []*apikey.Hasher
	loader    Loader
	records   *ristretto.Cache[uint64, *Key]
	unknown   *ristretto.Cache[uint64, negativeEntry]
	loadGroup singleflight.Group
	loadSlots chan struct{}

	mu            sync.RWMutex
	invalidations session.Invalidations
	// added is the revision of the last time that keys were added: a hash that was unknown before may be known.
	keysAdded int64
}

// miss is a hash that no key had at a revision.
type negativeEntry struct {
	hash     apikey.Hash
	revision int64
}

// New returns an empty store. Keys are looked up under the pepper of hasher, and
// under those of old if there are any.
func New(hasher *apikey.Hasher, loader Loader, old ...*apikey.Hasher) (*Keys, error) {
	records, err := ristretto.NewCache(&ristretto.Config[uint64, *Key]{
		NumCounters: countersPerKey * maxKeys, MaxCost: maxKeys, BufferItems: 64, IgnoreInternalCost: true,
	})
	if err != nil {
		return nil, fmt.Errorf("auth: make cache: %w", err)
	}
	unknown, err := ristretto.NewCache(&ristretto.Config[uint64, negativeEntry]{
		NumCounters: countersPerKey * maxUnknown, MaxCost: maxUnknown, BufferItems: 64, IgnoreInternalCost: true,
	})
	if err != nil {
		return nil, fmt.Errorf("auth: make cache: %w", err)
	}
	k := &Keys{hasher: hasher, previous: old, loader: loader, records: records, unknown: unknown, loadSlots: make(chan struct{}, maxConcurrentLoads)}
	k.Reset(0)
	return k, nil
}

// Close frees the caches.
func (k *Keys) Close() {
	k.records.Close()
	k.unknown.Close()
}

// slot is the cache's key of a hash. Two hashes may share one: what is found
// there is compared whole.
func cacheKey(h apikey.Hash) uint64 { return binary.LittleEndian.Uint64(h[:]) }

// Lookup returns the record of an active key, ErrInvalid, or ErrUnavailable.
func (k *Keys) Lookup(ctx context.Context, text string) (*Key, error) {
	if apikey.Check(text) != nil {
		return nil, ErrInvalid
	}
	hash := k.hasher.Hash(text)
	if len(k.previous) == 0 {
		return k.findByHash(ctx, hash)
	}
	return k.findUnderAnyPepper(ctx, text, hash)
}

// findAny is find for a key that may be known under the pepper of hash or
// under an old one. What is at hand comes before what has to be asked for.
func (k *Keys) findUnderAnyPepper(ctx context.Context, text string, hash apikey.Hash) (*Key, error) {
	if key := k.cached(hash); key != nil {
		return active(key)
	}
	var room [4]apikey.Hash // two peppers are the rule while there are several
	hashes := append(room[:0], hash)
	for _, old := range k.previous {
		hash := old.Hash(text)
		if key := k.cached(hash); key != nil {
			return active(key)
		}
		hashes = append(hashes, hash)
	}
	for _, hash := range hashes {
		if key, err := k.findByHash(ctx, hash); !errors.Is(err, ErrInvalid) {
			return key, err
		}
	}
	return nil, ErrInvalid
}

// cached is the record of a hash that is at hand and may be used; nil if there
// is none.
func (k *Keys) cached(hash apikey.Hash) *Key {
	if key, ok := k.records.Get(cacheKey(hash)); ok && key.HasHash(hash) && k.isCurrent(key) {
		return key
	}
	return nil
}

// find returns the record of a hash from the cache or the control plane.
func (k *Keys) findByHash(ctx context.Context, hash apikey.Hash) (*Key, error) {
	if key := k.cached(hash); key != nil {
		return active(key)
	}
	if k.isRevoked(hash) {
		return nil, ErrInvalid
	}
	if m, ok := k.unknown.Get(cacheKey(hash)); ok && m.hash == hash && k.stillUnknown(m) {
		return nil, ErrInvalid
	}
	return k.load(ctx, hash)
}

func active(key *Key) (*Key, error) {
	if !key.Active {
		return nil, ErrInvalid
	}
	return key, nil
}

// Valid tells whether a record may still be admitted: nothing that has become
// known since makes it too old. It is asked again after every wait.
func (k *Keys) Valid(key *Key) bool { return key.Active && k.isCurrent(key) }

func (k *Keys) isCurrent(key *Key) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.invalidations.IsCurrent(key.version)
}

func (k *Keys) stillUnknown(m negativeEntry) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return m.revision >= k.keysAdded
}

func (k *Keys) isRevoked(hash apikey.Hash) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.invalidations.Revoked(hash)
}

func (k *Keys) session() int64 {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.invalidations.Session()
}

// load asks the control plane, once for all who want the same key.
func (k *Keys) load(ctx context.Context, hash apikey.Hash) (*Key, error) {
	result := k.loadGroup.DoChan(string(hash[:]), func() (any, error) {
		// The one who asked first may leave: the others still want the answer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
		defer cancel()
		return k.fetch(ctx, hash)
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

func (k *Keys) fetch(ctx context.Context, hash apikey.Hash) (*Key, error) {
	select {
	case k.loadSlots <- struct{}{}:
		defer func() { <-k.loadSlots }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: too many lookups", ErrUnavailable)
	}
	for range loadAttempts {
		current := k.session()
		reply, err := k.loader.LoadKey(ctx, &wire.LoadKeyRequest{V: wire.Version, KeyHash: hash})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		if reply.Status != wire.Done {
			return nil, ErrUnavailable
		}
		if reply.Record == nil {
			m := negativeEntry{hash, reply.ReadRevision}
			if !k.stillUnknown(m) {
				continue
			}
			k.unknown.SetWithTTL(cacheKey(hash), m, 1, negativeTTL)
			return nil, ErrInvalid
		}
		key := &Key{*reply.Record, session.RecordVersion{Hash: hash, Account: reply.Record.AccountID, Revision: reply.ReadRevision, Session: current}}
		if k.isRevoked(hash) {
			return nil, ErrInvalid
		}
		if k.isCurrent(key) {
			k.store(key)
			return key, nil
		}
	}
	return nil, fmt.Errorf("%w: the record keeps being overtaken by changes", ErrUnavailable)
}

// keep replaces a record. Of two quick sets of one slot the cache may keep the
// older, so the slot is emptied first.
func (k *Keys) store(key *Key) {
	s := cacheKey(key.version.Hash)
	k.records.Del(s)
	k.records.Wait()
	k.records.Set(s, key, 1)
}

// Revoked reads the record again and tells whether the key has lost its right to
// run. An error says that this cannot be told now.
func (k *Keys) Revoked(ctx context.Context, key *Key) (bool, error) {
	if k.Valid(key) {
		return false, nil
	}
	_, err := k.findByHash(ctx, key.version.Hash)
	if errors.Is(err, ErrInvalid) {
		return true, nil
	}
	return false, err
}

// Reset begins a session: nothing read before it, or at a revision below
// floor, is used any more.
func (k *Keys) Reset(floor int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.invalidations.BeginSession(floor)
	k.keysAdded = floor
}

// Apply takes in a change. When it returns, no record that the change makes
// obsolete is admitted any more.
func (k *Keys) Apply(c wire.KeyChange) {
	k.mu.Lock()
	if c.Kind == wire.KeysAdded { // which makes no record obsolete
		k.keysAdded = max(c.Revision, k.keysAdded)
	} else {
		k.invalidations.Apply(c)
	}
	k.mu.Unlock()
	if c.Kind != wire.AccountUpdated {
		k.records.Del(cacheKey(c.KeyHash))
		k.unknown.Del(cacheKey(c.KeyHash))
	}
}
