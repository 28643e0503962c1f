package outbox

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/controlplane/internal/catalog"
)

// fakeStore stores entries in memory; filled wakes Wait.
type fakeStore struct {
	mu      sync.Mutex
	entries []catalog.Entry
	leads   bool
	filled  chan struct{}
}

func newStore() *fakeStore { return &fakeStore{leads: true, filled: make(chan struct{}, 1)} }

func (f *fakeStore) add(entries ...catalog.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.entries = append(f.entries, entries...)
	select {
	case f.filled <- struct{}{}:
	default:
	}
}

func (f *fakeStore) Drain(ctx context.Context, publish func(context.Context, []catalog.Entry) error) (int, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.leads {
		return 0, false, nil
	}
	n := min(len(f.entries), 2)
	if err := publish(ctx, f.entries[:n]); err != nil {
		return 0, true, err
	}
	f.entries = f.entries[n:]
	return n, true, nil
}

func (f *fakeStore) Age(context.Context) (time.Duration, error) { return 0, nil }

func (f *fakeStore) Wait(ctx context.Context, atMost time.Duration) error {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-f.filled:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// fakeBucket is a bucket in memory that can be unavailable.
type fakeBucket struct {
	mu       sync.Mutex
	values   map[string]string
	position uint64
	log      []string
	err      error
}

func (f *fakeBucket) Position(context.Context) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.position, f.err
}

func (f *fakeBucket) Put(_ context.Context, entry catalog.Entry, at uint64) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.err != nil:
		return 0, f.err
	case at != f.position:
		return 0, ErrOvertaken
	case entry.Payload == nil:
		f.log = append(f.log, "delete "+entry.Subject)
		delete(f.values, entry.Subject)
	default:
		f.log = append(f.log, "put "+entry.Subject)
		f.values[entry.Subject] = string(entry.Payload)
	}
	f.position++
	return f.position, nil
}

func (f *fakeBucket) Get(_ context.Context, key string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v, ok := f.values[key]; ok {
		return []byte(v), f.err
	}
	return nil, f.err
}

func (f *fakeBucket) Keys(context.Context) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var keys []string
	for k := range f.values {
		keys = append(keys, k)
	}
	return keys, f.err
}

func (f *fakeBucket) lose(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeBucket) content() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.values)
}

func setup(store Store, bucket Bucket, snapshot SnapshotFunc) *Publisher {
	return New(store, bucket, snapshot, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}

func nothing(context.Context) ([]catalog.Entry, int64, error) { return nil, 0, nil }

// headOfNothing is the head of the catalog nothing.
const headOfNothing = `{"v":1,"rev":0}`

func entry(subject, payload string) catalog.Entry {
	return catalog.Entry{Subject: subject, Payload: []byte(payload)}
}

func TestPublishesInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, bucket := newStore(), &fakeBucket{values: map[string]string{"head": headOfNothing}}
		p := setup(store, bucket, nothing)
		p.Start(t.Context())
		defer p.Stop()
		store.add(entry("a", "1"), entry("b", "2"), catalog.Entry{Subject: "a"}, entry("c", "3"), entry("b", "4"))
		synctest.Wait()
		want := []string{"put a", "put b", "delete a", "put c", "put b"}
		if diff := cmp.Diff(want, bucket.log); diff != "" {
			t.Errorf("published (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{"head": headOfNothing, "b": "4", "c": "3"}, bucket.content()); diff != "" {
			t.Errorf("bucket (-want +got):\n%s", diff)
		}
	})
}

func TestPublishesAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, bucket := newStore(), &fakeBucket{values: map[string]string{"head": headOfNothing}, err: errors.New("the bus is away")}
		p := setup(store, bucket, nothing)
		p.Start(t.Context())
		defer p.Stop()
		store.add(entry("a", "1"), entry("b", "2"))
		synctest.Wait()
		if got := bucket.content(); len(got) != 1 {
			t.Fatalf("bucket holds %v; want nothing new", got)
		}
		bucket.lose(nil)
		time.Sleep(2 * retryPause) // of the bubble
		synctest.Wait()
		if diff := cmp.Diff(map[string]string{"head": headOfNothing, "a": "1", "b": "2"}, bucket.content()); diff != "" {
			t.Errorf("bucket (-want +got):\n%s", diff)
		}
	})
}

// stalledStore is the store of a replica that pauses after it has read entries, long enough for
// another replica to take over.
type stalledStore struct {
	*fakeStore
	meanwhile func()
}

func (s stalledStore) Drain(ctx context.Context, publish func(context.Context, []catalog.Entry) error) (int, bool, error) {
	return s.fakeStore.Drain(ctx, func(ctx context.Context, entries []catalog.Entry) error {
		s.meanwhile()
		return publish(ctx, entries)
	})
}

// A paused replica does not overwrite newer entries, and continues with the current state.
func TestPausedReplicaDoesNotOverwriteNewerEntries(t *testing.T) {
	t.Parallel()
	bucket := &fakeBucket{values: map[string]string{}}
	store := newStore()
	store.add(entry("price", "old"), entry("head", "1"))
	other := setup(newStore(), bucket, nothing)
	meanwhile := sync.OnceFunc(func() {
		if err := other.publish(t.Context(), []catalog.Entry{entry("price", "new"), entry("head", "2")}, 0); err != nil {
			t.Error(err)
		}
	})
	p := setup(stalledStore{store, meanwhile}, bucket, nothing)
	again, err := p.Step(t.Context())
	if err != nil || !again {
		t.Fatalf("overtaken: got %v, %v; want the next step at once", again, err)
	}
	if diff := cmp.Diff(map[string]string{"price": "new", "head": "2"}, bucket.content()); diff != "" {
		t.Errorf("bucket (-want +got):\n%s", diff)
	}
	store.entries = nil // the other replica has deleted them
	store.add(entry("price", "newest"))
	if _, err := p.Step(t.Context()); err != nil || bucket.content()["price"] != "newest" {
		t.Errorf("afterwards: got %v, %v", bucket.content(), err)
	}
}

func TestOnlyTheLeaderPublishes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, bucket := newStore(), &fakeBucket{values: map[string]string{}}
		store.leads = false
		p := setup(store, bucket, func(context.Context) ([]catalog.Entry, int64, error) {
			return []catalog.Entry{entry("a", "1")}, 7, nil
		})
		p.Start(t.Context())
		defer p.Stop()
		time.Sleep(3 * checkEvery)
		synctest.Wait()
		if got := bucket.content(); len(got) != 0 {
			t.Errorf("bucket holds %v; want nothing", got)
		}
	})
}

func TestLostEntriesAreRestored(t *testing.T) {
	t.Parallel()
	snapshot := func(context.Context) ([]catalog.Entry, int64, error) {
		return []catalog.Entry{entry("model.a", "A"), entry("model.b", "B")}, 7, nil
	}
	whole := map[string]string{"model.a": "A", "model.b": "B", "head": `{"v":1,"rev":7}`}
	for _, test := range []struct {
		name   string
		before map[string]string
		log    []string
	}{
		{"empty", map[string]string{}, []string{"put model.a", "put model.b", "put head"}},
		{"older", map[string]string{"head": `{"v":1,"rev":6}`, "model.a": "old"}, []string{"put model.a", "put model.b", "put head"}},
		{
			"newer, from a database that was lost",
			map[string]string{"head": `{"v":1,"rev":9}`, "model.x": "X"},
			[]string{"put model.a", "put model.b", "delete model.x", "put head"},
		},
		{"unreadable", map[string]string{"head": "?"}, []string{"put model.a", "put model.b", "put head"}},
		{"whole", maps.Clone(whole), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			bucket := &fakeBucket{values: test.before}
			again, err := setup(newStore(), bucket, snapshot).Step(t.Context())
			if err != nil || again {
				t.Fatalf("got %v, %v", again, err)
			}
			if diff := cmp.Diff(test.log, bucket.log); diff != "" {
				t.Errorf("done (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(whole, bucket.content()); diff != "" {
				t.Errorf("bucket (-want +got):\n%s", diff)
			}
		})
	}
}

// Proxies are ready when they have a catalog, so a new installation publishes its empty one, once.
func TestNewInstallationPublishesAnEmptyCatalog(t *testing.T) {
	t.Parallel()
	bucket := &fakeBucket{values: map[string]string{}}
	p := setup(newStore(), bucket, nothing)
	for range 2 {
		if _, err := p.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(map[string]string{"head": headOfNothing}, bucket.content()); diff != "" || len(bucket.log) != 1 {
		t.Errorf("published %v; bucket (-want +got):\n%s", bucket.log, diff)
	}
}

// A bucket that is created again while the publisher runs is restored.
func TestRecreatedBucketIsRestored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bucket := &fakeBucket{values: map[string]string{}}
		p := setup(newStore(), bucket, func(context.Context) ([]catalog.Entry, int64, error) {
			return []catalog.Entry{entry("a", "1")}, 7, nil
		})
		p.Start(t.Context())
		defer p.Stop()
		synctest.Wait()
		bucket.mu.Lock()
		clear(bucket.values)
		bucket.mu.Unlock()
		time.Sleep(checkEvery + time.Second)
		synctest.Wait()
		if got := bucket.content(); got["a"] != "1" {
			t.Errorf("bucket holds %v; want the catalog", got)
		}
	})
}

// Credentials that another fleet key has sealed are published again, once.
func TestCatalogIsSealedAgainWithAnotherFleetKey(t *testing.T) {
	t.Parallel()
	sealed := func(key string) func(context.Context) ([]catalog.Entry, int64, error) {
		return func(context.Context) ([]catalog.Entry, int64, error) {
			return []catalog.Entry{entry("model.m", "M"), entry("provider.p", `{"id":"p","fleet_key":"`+key+`"}`)}, 7, nil
		}
	}
	bucket := &fakeBucket{values: map[string]string{}}
	for _, key := range []string{"old", "new"} {
		p := setup(newStore(), bucket, sealed(key))
		for range 2 {
			if _, err := p.Step(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := sealedWith([]byte(bucket.content()["provider.p"])); got != key {
			t.Errorf("the bucket is sealed with %q; want %q", got, key)
		}
	}
	want := []string{"put model.m", "put provider.p", "put head", "put model.m", "put provider.p", "put head"}
	if diff := cmp.Diff(want, bucket.log); diff != "" {
		t.Errorf("done (-want +got):\n%s", diff)
	}
}
