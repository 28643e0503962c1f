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

	"modelgateway/shared/subject"
)

// store keeps entries as the catalog does, and tells of each Apply.
type store struct {
	mu      sync.Mutex
	entries map[string]string
	applied chan string
}

func (s *store) Set(kind, name string, value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.TrimSuffix(kind+" "+name, " ")
	if value == nil {
		delete(s.entries, key)
		return
	}
	s.entries[key] = string(value)
}

func (s *store) Apply() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, key := range slices.Sorted(maps.Keys(s.entries)) {
		all = append(all, key+"="+s.entries[key])
	}
	s.applied <- strings.Join(all, ", ")
	return errors.New("reported, and no reason to stop")
}

func (s *store) BeginReload() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = map[string]string{}
}

// bucket is the other side's way to the catalog.
type bucket struct {
	t  *testing.T
	b  *bundle
	kv jetstream.KeyValue
}

func (b *bundle) bucket(t *testing.T) *bucket {
	t.Helper()
	kv, err := b.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: subject.CatalogBucket})
	if err != nil {
		t.Fatal(err)
	}
	return &bucket{t, b, kv}
}

// put writes entries "key=value"; one without value is deleted.
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

// watch follows the catalog until the test ends.
func (b *bundle) watch(t *testing.T) *store {
	t.Helper()
	s := &store{applied: make(chan string, 100)}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); b.WatchCatalog(ctx, s) }()
	t.Cleanup(func() { stop(); <-done })
	return s
}

func (s *store) next(t *testing.T, want string) {
	t.Helper()
	if got := <-s.applied; got != want {
		t.Errorf("applied %q; want %q", got, want)
	}
}

func TestCatalogIsLoadedAndFollowed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.bucket(t)
	k.put("model a/b.c=1", "model gone=1", "provider p=2", "model gone", "head=r1")
	s := b.watch(t)
	s.next(t, "head=r1, model a/b.c=1, provider p=2")
	k.put("model x=1", "model a/b.c", "head=r2")
	s.next(t, "head=r2, model x=1, provider p=2")
	k.put("head=r3")
	s.next(t, "head=r3, model x=1, provider p=2")
}

// A proxy that starts while a change is being written waits for its head.
func TestHalfAChangeIsNotLoaded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.bucket(t)
	k.put("model a=1", "head=r1", "model a=2")
	s := b.watch(t)
	k.put("model b=2", "head=r2")
	s.next(t, "head=r2, model a=2, model b=2")
	if len(s.applied) != 0 {
		t.Errorf("applied more: %q", <-s.applied)
	}
}

func TestCatalogComesLater(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.watch(t) // there is no bucket
	k := b.bucket(t)
	k.put("model a=1", "head=r1")
	for got := range s.applied {
		if got != "" { // what is watched may be empty at first
			if want := "head=r1, model a=1"; got != want {
				t.Errorf("applied %q; want %q", got, want)
			}
			break
		}
	}
}

// A bucket that was lost and made anew is loaded anew.
func TestBucketMadeAnew(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.bucket(t)
	k.put("model a=1", "model b=1", "head=r1")
	b.Bus.bucketCheckInterval = 10 * time.Millisecond
	s := b.watch(t)
	s.next(t, "head=r1, model a=1, model b=1")
	if err := b.js.DeleteKeyValue(t.Context(), subject.CatalogBucket); err != nil {
		t.Fatal(err)
	}
	k = b.bucket(t)
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

// The server's restart is survived, and what changed meanwhile is seen.
func TestCatalogAfterRestart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.bucket(t)
	k.put("model a=1", "head=r1")
	s := b.watch(t)
	s.next(t, "head=r1, model a=1")
	back := b.far.StatusChanged(nats.CONNECTED)
	b.server.Restart()
	<-back
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

func TestEntryNames(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.bucket(t)
	k.put("model ä *>. x=1", "head=r1")
	s := b.watch(t)
	if diff := cmp.Diff("head=r1, model ä *>. x=1", <-s.applied); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
