package auth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"modelgateway/shared/apikey"
	"modelgateway/shared/wire"
)

// gate is a control plane that answers each load when it is told to.
type gate struct {
	*fakeControlPlane
	mu      sync.Mutex
	running map[apikey.Hash]chan struct{}
}

func (g *gate) LoadKey(ctx context.Context, q *wire.LoadKeyRequest) (*wire.LoadKeyResponse, error) {
	answer := make(chan struct{})
	g.mu.Lock()
	g.running[q.KeyHash] = answer
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		delete(g.running, q.KeyHash)
		g.mu.Unlock()
	}()
	select {
	case <-answer:
		return g.fakeControlPlane.LoadKey(ctx, q)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// loading reports whether a hash is being loaded, and how many are.
func (g *gate) loading(hash apikey.Hash) (this bool, all int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running[hash] != nil, len(g.running)
}

// answer answers the load of a hash.
func (g *gate) answer(t *testing.T, hash apikey.Hash) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running[hash] == nil {
		t.Fatal("the key is not being loaded")
	}
	close(g.running[hash])
}

// answerOne answers any load.
func (g *gate) answerOne(t *testing.T) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for hash := range g.running {
		close(g.running[hash])
		return
	}
	t.Fatal("no key is being loaded")
}

// flood is a proxy under a flood of forged keys, which the control plane has not answered yet.
type flood struct {
	*Keys
	*gate
	t       *testing.T
	lookups sync.WaitGroup
	results chan error
}

// newFlood runs n lookups of forged keys at once, after before.
func newFlood(t *testing.T, n int, before func(f *flood)) *flood {
	k, p := setup(t)
	f := &flood{Keys: k, gate: &gate{fakeControlPlane: p, running: map[apikey.Hash]chan struct{}{}}, t: t, results: make(chan error, n)}
	if before != nil {
		before(f)
	}
	k.loader = f.gate
	for range n {
		f.lookups.Go(func() {
			_, err := k.Lookup(t.Context(), apikey.Generate())
			f.results <- err
		})
	}
	synctest.Wait()
	return f
}

// begin begins the lookup of a key that is not cached.
func (f *flood) begin(text string) <-chan error {
	done := make(chan error, 1)
	f.lookups.Go(func() {
		_, err := f.Lookup(f.t.Context(), text)
		done <- err
	})
	synctest.Wait()
	return done
}

func TestForgedKeysDoNotDelayIssuedOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlood(t, 10*maxLoads, nil)
		if _, n := f.loading(apikey.Hash{}); n != maxUnprovenLoads {
			t.Errorf("%d forged keys are being loaded; want %d", n, maxUnprovenLoads)
		}
		text, hash := f.add(f.Keys)
		done := f.begin(text)
		f.answer(t, hash)
		if err := <-done; err != nil {
			t.Errorf("issued key beside the flood: got %v", err)
		}
		if got := testutil.ToFloat64(f.loadCounts.WithLabelValues(macValid, "found")); got != 1 {
			t.Errorf("%v loads of keys with a MAC are counted; want 1", got)
		}
		f.lookups.Wait() // the forged ones time out
	})
}

// All cached records are out of date when a session begins.
func TestForgedKeysDoNotDelayKeysThatWereGoodBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		text := apikey.Generate() // imported: it has no MAC
		var hash apikey.Hash
		f := newFlood(t, 10*maxLoads, func(f *flood) {
			hash = f.cfg.Hasher.Hash(text)
			f.fakeControlPlane.records[hash] = wire.KeyRecord{KeyID: "key", AccountID: account, Active: true}
			lookup(t, f.Keys, text, nil)
			f.Reset(10, 1)
		})
		done := f.begin(text)
		f.answer(t, hash)
		if err := <-done; err != nil {
			t.Errorf("key that was good before: got %v", err)
		}
		f.lookups.Wait()
	})
}

// The newest lookup of a key without a MAC is the next one, because the oldest are about to time out.
func TestNewestUnprovenKeyIsLoadedNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlood(t, 10*maxLoads, nil)
		text := apikey.Generate()
		hash := f.cfg.Hasher.Hash(text)
		f.fakeControlPlane.records[hash] = wire.KeyRecord{KeyID: "key", AccountID: account, Active: true}
		done := f.begin(text)
		if isLoading, _ := f.loading(hash); isLoading {
			t.Error("a key without a MAC got a reserved lane")
		}
		f.answerOne(t)
		synctest.Wait()
		f.answer(t, hash)
		if err := <-done; err != nil {
			t.Errorf("imported key beside the flood: got %v", err)
		}
		f.lookups.Wait()
	})
}

func TestLoadsAndWaitingLoadsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlood(t, maxUnprovenLoads+maxWaitingLoads, nil)
		if n := len(f.results); n != 0 {
			t.Errorf("%d lookups have ended; want all to wait", n)
		}
		f.begin(apikey.Generate())
		if n := len(f.results); n != 1 {
			t.Fatalf("%d lookups were refused; want the oldest", n)
		}
		if err := <-f.results; !errors.Is(err, ErrUnavailable) {
			t.Errorf("got %v; want %v", err, ErrUnavailable)
		}
		for i := range maxLoads {
			text, _ := f.add(f.Keys)
			f.begin(text)
			if _, n := f.loading(apikey.Hash{}); n != min(maxUnprovenLoads+i+1, maxLoads) {
				t.Fatalf("%d keys are being loaded after %d issued ones have come; want at most %d", n, i+1, maxLoads)
			}
		}
		f.lookups.Wait()
		if l := &f.lanes; l.running != 0 || l.unproven != 0 || len(l.waiting[0])+len(l.waiting[1]) != 0 {
			t.Errorf("after all: %d loads run, %d of unproven keys, %d wait; want none", l.running, l.unproven, len(l.waiting[0])+len(l.waiting[1]))
		}
	})
}

// The control plane says that no key was imported, until one is.
func TestForgedKeysAreNotLoadedIfAllKeysHaveAMAC(t *testing.T) {
	t.Parallel()
	k, p, previous := setupTwoPeppers(t)
	k.RequireMAC(true)
	for range 100 {
		lookup(t, k, apikey.Generate(), ErrInvalid)
	}
	if n := p.loads.Load(); n != 0 {
		t.Errorf("%d loads of forged keys; want none", n)
	}
	for name, text := range map[string]string{"current": k.cfg.Hasher.Generate(), "previous": previous.Generate()} {
		p.records[k.cfg.Hasher.Hash(text)] = wire.KeyRecord{KeyID: fmt.Sprint("key_", name), AccountID: account, Active: true}
		lookup(t, k, text, nil)
	}
	imported := apikey.Generate()
	p.records[k.cfg.Hasher.Hash(imported)] = wire.KeyRecord{KeyID: "key_imported", AccountID: account, Active: true}
	lookup(t, k, imported, ErrInvalid)
	k.Apply(wire.KeyChange{Kind: wire.KeysAdded, Revision: 11})
	lookup(t, k, imported, nil)
	k.RequireMAC(true)
	k.Reset(10, 1)
	lookup(t, k, imported, nil)
}
