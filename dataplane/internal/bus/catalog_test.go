package bus

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/shared/platform/testkit/natstest"
	"modelgateway/shared/subject"
)

// fakeCatalog has the entries that were set, and sends them at each Apply.
type fakeCatalog struct {
	mu      sync.Mutex
	entries map[string]string
	applied chan string
}

func (c *fakeCatalog) Set(kind, name string, value []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := strings.TrimSuffix(kind+" "+name, " ")
	if value == nil {
		delete(c.entries, key)
		return
	}
	c.entries[key] = string(value)
}

func (c *fakeCatalog) Apply() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, key := range slices.Sorted(maps.Keys(c.entries)) {
		all = append(all, key+"="+c.entries[key])
	}
	c.applied <- strings.Join(all, ", ")
	return errors.New("the watch must go on all the same")
}

func (c *fakeCatalog) BeginReload() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries = map[string]string{}
}

// bucket is the catalog bucket at the control plane.
type bucket struct {
	t  *testing.T
	kv jetstream.KeyValue
}

// createBucket creates the catalog bucket.
func (b *fixture) createBucket(t *testing.T) *bucket {
	t.Helper()
	var kv jetstream.KeyValue
	err := natstest.CreateAgain(t.Context(), func() (err error) {
		kv, err = b.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: subject.CatalogBucket})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return &bucket{t, kv}
}

// put writes entries of the form "key=value". An entry without "=" is deleted.
func (k *bucket) put(entries ...string) {
	k.t.Helper()
	for _, entry := range entries {
		key, value, put := strings.Cut(entry, "=")
		if kind, name, ok := strings.Cut(key, " "); ok {
			key = subject.CatalogKey(kind, name)
		}
		var err error
		if put {
			_, err = k.kv.PutString(k.t.Context(), key, value)
		} else {
			err = k.kv.Delete(k.t.Context(), key)
		}
		if err != nil {
			k.t.Fatal(err)
		}
	}
}

// watch watches the catalog bucket until the test ends.
func (b *fixture) watch(t *testing.T) *fakeCatalog {
	t.Helper()
	s := &fakeCatalog{applied: make(chan string, 100)}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); b.WatchCatalog(ctx, s) }()
	t.Cleanup(func() { stop(); <-done })
	return s
}

// next checks the entries at the next Apply.
func (c *fakeCatalog) next(t *testing.T, want string) {
	t.Helper()
	if got := <-c.applied; got != want {
		t.Errorf("applied %q; want %q", got, want)
	}
}

func TestCatalogIsLoadedAndUpdated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.createBucket(t)
	k.put("model a/b.c=1", "model gone=1", "provider p=2", "model gone", "head=r1")
	s := b.watch(t)
	s.next(t, "head=r1, model a/b.c=1, provider p=2")
	k.put("model x=1", "model a/b.c", "head=r2")
	s.next(t, "head=r2, model x=1, provider p=2")
	k.put("head=r3")
	s.next(t, "head=r3, model x=1, provider p=2")
}

// A proxy that starts while a change is being written waits for its head.
func TestIncompleteChangeIsNotApplied(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.createBucket(t)
	k.put("model a=1", "head=r1", "model a=2")
	s := b.watch(t)
	k.put("model b=2", "head=r2")
	s.next(t, "head=r2, model a=2, model b=2")
	if len(s.applied) != 0 {
		t.Errorf("applied once more: %q", <-s.applied)
	}
}

func TestBucketMayBeCreatedAfterTheProxy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.watch(t) // there is no bucket
	k := b.createBucket(t)
	k.put("model a=1", "head=r1")
	for got := range s.applied {
		if got != "" { // the bucket may be empty at first
			if want := "head=r1, model a=1"; got != want {
				t.Errorf("applied %q; want %q", got, want)
			}
			break
		}
	}
}

// A bucket that was deleted and created again is loaded again.
func TestRecreatedBucketIsLoadedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.createBucket(t)
	k.put("model a=1", "model b=1", "head=r1")
	b.Bus.bucketCheckInterval = 10 * time.Millisecond
	s := b.watch(t)
	s.next(t, "head=r1, model a=1, model b=1")
	if err := b.js.DeleteKeyValue(t.Context(), subject.CatalogBucket); err != nil {
		t.Fatal(err)
	}
	k = b.createBucket(t)
	k.put("model a=2", "head=r2")
	for got := range s.applied {
		if strings.Contains(got, "r2") {
			if want := "head=r2, model a=2"; got != want {
				t.Errorf("applied %q; want %q", got, want)
			}
			break
		}
	}
}

func TestCatalogIsUpdatedAfterServerRestart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.createBucket(t)
	k.put("model a=1", "head=r1")
	s := b.watch(t)
	s.next(t, "head=r1, model a=1")
	reconnected := b.remote.StatusChanged(nats.CONNECTED)
	b.server.Restart()
	<-reconnected
	k.put("head=r2")
	for got := range s.applied {
		if got != "head=r1, model a=1" { // applied again before the change
			if want := "head=r2, model a=1"; got != want {
				t.Errorf("applied %q; want %q", got, want)
			}
			break
		}
	}
}

func TestEntryNameMayHaveAnyCharacters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.createBucket(t)
	k.put("model ä *>. x=1", "head=r1")
	s := b.watch(t)
	if diff := cmp.Diff("head=r1, model ä *>. x=1", <-s.applied); diff != "" {
		t.Errorf("applied entries (-want +got):\n%s", diff)
	}
}
