package auth

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"modelgateway/shared/apikey"
	"modelgateway/shared/wire"
)

// fakeBucket is a bucket of key records.
type fakeBucket struct {
	mu      sync.Mutex
	mark    wire.KeyMark
	at      uint64
	entries map[apikey.Hash]wire.KeyEntry
	err     error
	reads   int
	// onEntry, if set, is called when an entry was read.
	onEntry func()
}

func (b *fakeBucket) KeyMark(context.Context) (wire.KeyMark, uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads++
	return b.mark, b.at, b.err
}

func (b *fakeBucket) KeyEntry(_ context.Context, hash apikey.Hash) (wire.KeyEntry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	entry := b.entries[hash]
	if b.onEntry != nil {
		b.onEntry()
	}
	return entry, nil
}

// withBucket returns keys that nobody knows but the bucket: the control plane does
// not decide. The session has the floor 10 and the cluster epoch 1, as the bucket.
func withBucket(t *testing.T) (k *Keys, p *fakeControlPlane, b *fakeBucket, text string, hash apikey.Hash) {
	t.Helper()
	k, p = setup(t)
	b = &fakeBucket{mark: wire.KeyMark{V: wire.Version, Epoch: 1, Revision: 10}, at: 20, entries: map[apikey.Hash]wire.KeyEntry{}}
	k.cfg.Bucket = b
	text, hash = p.add(k)
	b.entries[hash] = wire.KeyEntry{V: wire.Version, Hash: hash, Epoch: 1, Revision: 3, Record: p.records[hash]}
	p.err = errors.New("no responders")
	return k, p, b, text, hash
}

func TestRecordComesFromTheBucketIfNoControlPlaneDecides(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*fakeControlPlane){
		"no response": func(*fakeControlPlane) {},
		"unavailable": func(p *fakeControlPlane) { p.err, p.status = nil, wire.Unavailable },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, p, b, text, hash := withBucket(t)
			fail(p)
			for range 3 {
				if key := lookup(t, k, text, nil); !key.HasHash(hash) || key.AccountID != account || !k.Valid(key) {
					t.Errorf("got %+v; want the valid record of the key", key)
				}
			}
			if b.reads != 2 || testutil.ToFloat64(k.bucketUse.read) != 1 {
				t.Errorf("the mark was read %d times; want one read of the bucket, and then the cache", b.reads)
			}
		})
	}
}

// A control plane that is stopped does not take all the time that the client waits.
func TestBucketIsReadBeforeTheLookupTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, p, _, text, _ := withBucket(t)
		k.loader = &gate{fakeControlPlane: p, running: map[apikey.Hash]chan struct{}{}}
		began := time.Now()
		lookup(t, k, text, nil)
		if waited := time.Since(began); waited != askTimeout {
			t.Errorf("the lookup took %v; want %v", waited, askTimeout)
		}
	})
}

func TestBucketIsNotReadWhileAControlPlaneDecides(t *testing.T) {
	t.Parallel()
	k, p, b, text, _ := withBucket(t)
	p.err = nil
	lookup(t, k, text, nil)
	lookup(t, k, apikey.Generate(), ErrInvalid)
	if b.reads != 0 {
		t.Errorf("the mark was read %d times; want 0", b.reads)
	}
}

// What the bucket has is used only if it has every change that the proxy must know.
func TestBucketIsUsedOnlyIfItHasEveryKnownChange(t *testing.T) {
	t.Parallel()
	var other apikey.Hash
	change := func(c wire.KeyChange) func(*Keys, *fakeBucket, apikey.Hash) {
		return func(k *Keys, _ *fakeBucket, hash apikey.Hash) {
			if c.Kind != wire.AccountUpdated {
				c.KeyHash = hash
			}
			k.Apply(c)
		}
	}
	tests := map[string]struct {
		before func(k *Keys, b *fakeBucket, hash apikey.Hash)
		want   error
	}{
		"a revocation behind the mark":                {change(wire.KeyChange{Kind: wire.KeyRevoked, Revision: 11}), ErrInvalid},
		"a revocation that only the stream has":       {change(wire.KeyChange{Kind: wire.KeyRevoked}), ErrInvalid},
		"a change of the key behind the mark":         {change(wire.KeyChange{Kind: wire.KeyUpdated, Revision: 11}), ErrUnavailable},
		"a change of the account behind the mark":     {change(wire.KeyChange{Kind: wire.AccountUpdated, Account: account, Revision: 11}), ErrUnavailable},
		"a change of the account before the mark":     {change(wire.KeyChange{Kind: wire.AccountUpdated, Account: account, Revision: 10}), nil},
		"a change of another account behind the mark": {change(wire.KeyChange{Kind: wire.AccountUpdated, Account: "acc_2", Revision: 11}), nil},
		"a change of unknown kind behind the mark":    {change(wire.KeyChange{Kind: "later", Revision: 11}), ErrUnavailable},
		"a session that began behind the mark":        {func(k *Keys, _ *fakeBucket, _ apikey.Hash) { k.Reset(11, 1) }, ErrUnavailable},
		"a record that was read behind the mark": {func(k *Keys, b *fakeBucket, hash apikey.Hash) {
			k.Reset(11, 1)
			entry := b.entries[hash]
			entry.Revision = 11
			b.entries[hash] = entry
		}, nil},
		"a session of another cluster epoch": {func(k *Keys, _ *fakeBucket, _ apikey.Hash) { k.Reset(10, 2) }, ErrUnavailable},
		"a mark of another cluster epoch":    {func(_ *Keys, b *fakeBucket, _ apikey.Hash) { b.mark.Epoch = 2 }, ErrUnavailable},
		"a record of another cluster epoch": {func(k *Keys, b *fakeBucket, _ apikey.Hash) {
			k.Reset(10, 2)
			b.mark.Epoch = 2
		}, ErrUnavailable},
		"no mark":  {func(_ *Keys, b *fakeBucket, _ apikey.Hash) { b.mark, b.at = wire.KeyMark{}, 0 }, ErrUnavailable},
		"no entry": {func(_ *Keys, b *fakeBucket, hash apikey.Hash) { delete(b.entries, hash) }, ErrUnavailable},
		"the entry of another key": {func(_ *Keys, b *fakeBucket, hash apikey.Hash) {
			entry := b.entries[hash]
			entry.Hash = other
			b.entries[hash] = entry
		}, ErrUnavailable},
		"an entry without a record": {func(_ *Keys, b *fakeBucket, hash apikey.Hash) {
			b.entries[hash] = wire.KeyEntry{Hash: hash, Epoch: 1, Revision: 3}
		}, ErrUnavailable},
		"an inactive key": {func(_ *Keys, b *fakeBucket, hash apikey.Hash) {
			entry := b.entries[hash]
			entry.Record.Active = false
			b.entries[hash] = entry
		}, ErrInvalid},
		"no connection": {func(_ *Keys, b *fakeBucket, _ apikey.Hash) { b.err = errors.New("timeout") }, ErrUnavailable},
		"a server with an older mark answers in between": {func(_ *Keys, b *fakeBucket, _ apikey.Hash) {
			b.onEntry = func() { b.mark.Revision, b.at = 9, 17 }
		}, ErrUnavailable},
		"another bucket answers in between": {func(_ *Keys, b *fakeBucket, _ apikey.Hash) {
			b.onEntry = func() { b.at = 17 }
		}, ErrUnavailable},
		"the bucket is written in between": {func(_ *Keys, b *fakeBucket, _ apikey.Hash) {
			b.onEntry = func() { b.mark.Revision, b.at = 12, 27 }
		}, nil},
		"a session begins in between": {func(k *Keys, b *fakeBucket, _ apikey.Hash) {
			b.onEntry = func() { k.Reset(10, 1) }
		}, ErrUnavailable},
		"the account is changed in between": {func(k *Keys, b *fakeBucket, _ apikey.Hash) {
			b.onEntry = func() { k.Apply(wire.KeyChange{Kind: wire.AccountUpdated, Account: account, Revision: 11}) }
		}, ErrUnavailable},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, _, b, text, hash := withBucket(t)
			tt.before(k, b, hash)
			lookup(t, k, text, tt.want)
		})
	}
}

// A key without an entry may be newer than the bucket: that it is not there is not
// remembered.
func TestKeyThatTheBucketLacksIsFoundLater(t *testing.T) {
	t.Parallel()
	k, p, b, text, hash := withBucket(t)
	entry := b.entries[hash]
	delete(b.entries, hash)
	lookup(t, k, text, ErrUnavailable)
	b.entries[hash] = entry
	lookup(t, k, text, nil)
	newer, _ := p.add(k)
	lookup(t, k, newer, ErrUnavailable)
	p.err = nil
	lookup(t, k, newer, nil)
	if none := testutil.ToFloat64(k.bucketUse.none); none != 2 {
		t.Errorf("%v reads found no entry; want 2", none)
	}
}

func TestBucketIsReadUnderPreviousPeppers(t *testing.T) {
	t.Parallel()
	k, p, previous := setupTwoPeppers(t)
	text := apikey.Generate()
	hash := previous.Hash(text)
	p.err = errors.New("no responders")
	k.cfg.Bucket = &fakeBucket{mark: wire.KeyMark{Epoch: 1, Revision: 10}, entries: map[apikey.Hash]wire.KeyEntry{
		hash: {Hash: hash, Epoch: 1, Revision: 1, Record: wire.KeyRecord{KeyID: "key_1", AccountID: account, Active: true}},
	}}
	lookup(t, k, text, nil)
	lookup(t, k, apikey.Generate(), ErrUnavailable)
}

// slowBucket counts the reads that run at the same time.
type slowBucket struct {
	*fakeBucket
	running, most int
}

func (b *slowBucket) KeyEntry(ctx context.Context, hash apikey.Hash) (wire.KeyEntry, error) {
	b.mu.Lock()
	b.running++
	b.most = max(b.most, b.running)
	b.mu.Unlock()
	time.Sleep(100 * time.Millisecond)
	b.mu.Lock()
	b.running--
	b.mu.Unlock()
	return b.fakeBucket.KeyEntry(ctx, hash)
}

func TestReadsOfTheBucketAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, _, b, _, _ := withBucket(t)
		slow := &slowBucket{fakeBucket: b}
		k.cfg.Bucket = slow
		var lookups sync.WaitGroup
		for range 5 * maxLoads {
			lookups.Go(func() { lookup(t, k, apikey.Generate(), ErrUnavailable) })
		}
		if lookups.Wait(); slow.most != maxUnprovenLoads {
			t.Errorf("%d reads of unproven keys ran at once; want %d", slow.most, maxUnprovenLoads)
		}
	})
}
