package leasing

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/apikey"
	"modelgateway/shared/wire"
)

// keyStore is a Store whose LoadKeys takes some time. It records the batch sizes.
type keyStore struct {
	Store
	takes time.Duration
	fails error
	sizes []int
}

func (s *keyStore) LoadKeys(ctx context.Context, hashes []apikey.Hash) (map[apikey.Hash]*wire.LoadKeyResponse, error) {
	s.sizes = append(s.sizes, len(hashes))
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	loaded := map[apikey.Hash]*wire.LoadKeyResponse{}
	for _, h := range hashes {
		if h[0] != broken {
			loaded[h] = &wire.LoadKeyResponse{V: wire.Version, Status: wire.Done, ReadRevision: int64(h[1])}
		}
	}
	return loaded, s.fails
}

func (s *keyStore) Sweep(context.Context, time.Duration, time.Duration, bool) (int, error) {
	return 0, nil
}

// broken begins the hash of a key whose record cannot be read.
const broken = 255

// lookUp sends a lookup. The response comes on the channel.
func lookUp(s *Service, hash apikey.Hash) <-chan wire.LoadKeyResponse {
	answer := make(chan wire.LoadKeyResponse, 1)
	s.LoadKey(&wire.LoadKeyRequest{V: wire.Version, KeyHash: hash}, func(r wire.LoadKeyResponse) { answer <- r })
	return answer
}

func TestLookupsDuringAReadFormTheNextBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &keyStore{takes: 100 * time.Millisecond}
		s := start(t, store)
		const more = 300
		answers := []<-chan wire.LoadKeyResponse{lookUp(s, apikey.Hash{0, 7})}
		synctest.Wait()
		for range more {
			answers = append(answers, lookUp(s, apikey.Hash{0, 7}))
		}
		for _, answer := range answers {
			if got := <-answer; got.Status != wire.Done || got.ReadRevision != 7 {
				t.Fatalf("got %+v; want the record of the store", got)
			}
		}
		if diff := cmp.Diff([]int{1, maxBatch, more - maxBatch}, store.sizes); diff != "" {
			t.Errorf("batch sizes (-want +got):\n%s", diff)
		}
	})
}

// Otherwise a store that was slow for a while would only answer proxies that no longer wait.
func TestStaleLookupsAreDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &keyStore{takes: staleLookup + time.Second}
		s := start(t, store)
		first := lookUp(s, apikey.Hash{1})
		synctest.Wait()
		for range 1000 {
			lookUp(s, apikey.Hash{2})
		}
		time.Sleep(staleLookup)
		late := lookUp(s, apikey.Hash{3})
		if got := <-first; got.Status != wire.Done {
			t.Errorf("first lookup: got %+v; want a record", got)
		}
		if got := <-late; got.Status != wire.Done {
			t.Errorf("lookup after the stale ones: got %+v; want a record", got)
		}
		if diff := cmp.Diff([]int{1, 1}, store.sizes); diff != "" {
			t.Errorf("batch sizes (-want +got):\n%s", diff)
		}
	})
}

func TestBrokenRecordDoesNotFailOtherLookups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &keyStore{fails: errors.New("one record is broken")})
		bad, good := lookUp(s, apikey.Hash{broken}), lookUp(s, apikey.Hash{1})
		if got := <-bad; got.Status != wire.Unavailable {
			t.Errorf("got %+v; want %s", got, wire.Unavailable)
		}
		if got := <-good; got.Status != wire.Done {
			t.Errorf("got %+v; want %s", got, wire.Done)
		}
	})
}

func TestLookupsAreUnavailableWhenQueueIsFullOrServiceStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(&keyStore{takes: time.Hour}, nil)
		s.Start(t.Context())
		answers := []<-chan wire.LoadKeyResponse{lookUp(s, apikey.Hash{1})}
		synctest.Wait()
		for range maxQueue {
			answers = append(answers, lookUp(s, apikey.Hash{1}))
		}
		if got := <-lookUp(s, apikey.Hash{1}); got.Status != wire.Unavailable {
			t.Errorf("lookup with a full queue: got %+v; want %s", got, wire.Unavailable)
		}
		s.Stop()
		for _, answer := range append(answers, lookUp(s, apikey.Hash{1})) {
			if got := <-answer; got.Status != wire.Unavailable {
				t.Fatalf("got %+v; want %s", got, wire.Unavailable)
			}
		}
	})
}
