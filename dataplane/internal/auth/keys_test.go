package auth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"modelgateway/shared/apikey"
	"modelgateway/shared/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const account = "acc_1"

// plane is the control plane's table of keys, with a revision of its own.
type fakeControlPlane struct {
	mu       sync.Mutex
	revision int64
	records  map[apikey.Hash]wire.KeyRecord
	loads    atomic.Int64
	// asked, when set, is called with the number of the load before the record is read, read after it.
	beforeRead, afterRead func(n int64)
	err                   error
	status                wire.Status
}

func (p *fakeControlPlane) LoadKey(_ context.Context, q *wire.LoadKeyRequest) (*wire.LoadKeyResponse, error) {
	n := p.loads.Add(1)
	if p.beforeRead != nil {
		p.beforeRead(n)
	}
	p.mu.Lock()
	reply := &wire.LoadKeyResponse{Status: p.status, ReadRevision: p.revision}
	if record, ok := p.records[q.KeyHash]; ok {
		reply.Record = &record
	}
	err := p.err
	p.mu.Unlock()
	if p.afterRead != nil {
		p.afterRead(n)
	}
	return reply, err
}

// change commits a change and returns it.
func (p *fakeControlPlane) change(kind wire.KeyChangeKind, hash apikey.Hash) wire.KeyChange {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.revision++
	for h, record := range p.records {
		if (kind == wire.KeyRevoked && h == hash) || kind == wire.AccountUpdated {
			record.Active = false
		}
		p.records[h] = record
	}
	return wire.KeyChange{Revision: p.revision, PreviousRevision: p.revision - 1, Kind: kind, KeyHash: hash, Account: account}
}

// add issues a key.
func (p *fakeControlPlane) add(k *Keys) (text string, hash apikey.Hash) {
	text = apikey.Generate()
	hash = k.hasher.Hash(text)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records[hash] = wire.KeyRecord{KeyID: "key_" + text[4:10], AccountID: account, Active: true}
	return text, hash
}

func setup(t *testing.T) (*Keys, *fakeControlPlane) {
	t.Helper()
	hasher, err := apikey.NewHasher([]byte("a pepper of more than 16 bytes"))
	if err != nil {
		t.Fatal(err)
	}
	p := &fakeControlPlane{revision: 10, records: map[apikey.Hash]wire.KeyRecord{}, status: wire.Done}
	k, err := New(hasher, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	k.Reset(10)
	return k, p
}

// settle has the caches take in what was set.
func (k *Keys) waitCaches() {
	k.records.Wait()
	k.unknown.Wait()
}

func lookup(t *testing.T, k *Keys, text string, want error) *Key {
	t.Helper()
	key, err := k.Lookup(t.Context(), text)
	if !errors.Is(err, want) || (err == nil) != (want == nil) || (err == nil) != (key != nil) {
		t.Fatalf("got %+v, %v; want %v", key, err, want)
	}
	k.waitCaches()
	return key
}

func TestMalformedIsNotLookedUp(t *testing.T) {
	t.Parallel()
	k, p := setup(t)
	good, _ := p.add(k)
	for _, text := range []string{"", "mgw_", good[:len(good)-1], good + "x", "xgw" + good[3:], good[:10] + "!" + good[11:]} {
		lookup(t, k, text, ErrInvalid)
	}
	if n := p.loads.Load(); n != 0 {
		t.Errorf("%d lookups; want none", n)
	}
}

func TestLookupIsCached(t *testing.T) {
	t.Parallel()
	k, p := setup(t)
	text, hash := p.add(k)
	for range 3 {
		key := lookup(t, k, text, nil)
		if !key.HasHash(hash) || key.HasHash(apikey.Hash{}) || key.AccountID != account || !k.Valid(key) {
			t.Errorf("got %+v; want the valid record of its key", key)
		}
	}
	if n := p.loads.Load(); n != 1 {
		t.Errorf("%d lookups; want 1", n)
	}
}

func TestUnknownIsRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, unknownIsRemembered)
}

func unknownIsRemembered(t *testing.T) {
	k, p := setup(t)
	text := apikey.Generate()
	for range 3 {
		lookup(t, k, text, ErrInvalid)
		time.Sleep(negativeTTL / 4)
	}
	if n := p.loads.Load(); n != 1 {
		t.Errorf("%d lookups; want 1", n)
	}
	time.Sleep(negativeTTL / 2)
	if lookup(t, k, text, ErrInvalid); p.loads.Load() != 2 {
		t.Errorf("%d lookups; want 2: it is not remembered for ever", p.loads.Load())
	}
	// Its creation is announced: it is not unknown any longer.
	hash := k.hasher.Hash(text)
	p.records[hash] = wire.KeyRecord{AccountID: account, Active: true}
	k.Apply(p.change(wire.KeyUpdated, hash))
	lookup(t, k, text, nil)
}

// Keys that were imported are known at once, although they were asked for
// before; also to a lookup that had begun before the import.
func TestKeysAdded(t *testing.T) {
	t.Parallel()
	k, p := setup(t)
	text := apikey.Generate()
	lookup(t, k, text, ErrInvalid)
	p.afterRead = func(n int64) {
		if n == 2 { // the record was read, and the import comes before the answer
			p.records[k.hasher.Hash(text)] = wire.KeyRecord{AccountID: account, Active: true}
			k.Apply(p.change(wire.KeysAdded, apikey.Hash{}))
		}
	}
	other := apikey.Generate()
	lookup(t, k, other, ErrInvalid)
	lookup(t, k, text, nil)
	if n := p.loads.Load(); n != 4 {
		t.Errorf("%d lookups; want 4: the one that the import overtook is repeated", n)
	}
}

func TestInactive(t *testing.T) {
	t.Parallel()
	k, p := setup(t)
	text, hash := p.add(k)
	p.records[hash] = wire.KeyRecord{AccountID: account}
	for range 2 {
		lookup(t, k, text, ErrInvalid)
	}
}

// What the control plane cannot tell is not an invalid key, and is not
// remembered.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		fail func(p *fakeControlPlane)
	}{
		{"error", func(p *fakeControlPlane) { p.err = errors.New("no responders") }},
		{"status", func(p *fakeControlPlane) { p.status = wire.Unavailable }},
		{"status without record", func(p *fakeControlPlane) { p.status = wire.Unavailable; clear(p.records) }},
		{"older than the session", func(p *fakeControlPlane) { p.revision = 9 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			k, p := setup(t)
			text, hash := p.add(k)
			tt.fail(p)
			lookup(t, k, text, ErrUnavailable)
			p.err, p.status, p.revision = nil, wire.Done, 10
			p.records[hash] = wire.KeyRecord{AccountID: account, Active: true}
			lookup(t, k, text, nil)
		})
	}
}

func TestSingleFlight(t *testing.T) {
	t.Parallel()
	k, p := setup(t)
	text, hash := p.add(k)
	entered, release := make(chan struct{}), make(chan struct{})
	p.beforeRead = func(int64) { close(entered); <-release }
	var wg sync.WaitGroup
	first, leave := context.WithCancel(t.Context())
	wg.Go(func() {
		if _, err := k.Lookup(first, text); !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("who leaves: got %v", err)
		}
	})
	<-entered
	joined := make([]<-chan error, 20)
	for i := range joined {
		joined[i] = k.joinLoad(hash)
	}
	leave() // the one who asked first
	wg.Wait()
	close(release)
	for _, done := range joined {
		if err := <-done; err != nil {
			t.Errorf("who waits: got %v", err)
		}
	}
	if n := p.loads.Load(); n != 1 {
		t.Errorf("%d lookups; want 1", n)
	}
}

// join waits for the load of a hash that is under way.
func (k *Keys) joinLoad(hash apikey.Hash) <-chan error {
	result := k.loadGroup.DoChan(string(hash[:]), func() (any, error) { return nil, errors.New("none is under way") })
	done := make(chan error, 1)
	go func() { done <- (<-result).Err }()
	return done
}

// A change overtakes a load at each moment there is: before the record is
// read, after it, after its check, and in the cache.
func TestRevokeVersusLoadRace(t *testing.T) {
	t.Parallel()
	for _, kind := range []wire.KeyChangeKind{wire.KeyRevoked, wire.AccountUpdated} {
		for _, moment := range []string{"before the reading", "after the reading", "after the lookup", "from the cache"} {
			t.Run(fmt.Sprint(kind, " ", moment), func(t *testing.T) {
				t.Parallel()
				k, p := setup(t)
				text, hash := p.add(k)
				apply := func(n int64) {
					if n == 1 {
						k.Apply(p.change(kind, hash))
					}
				}
				switch moment {
				case "before the reading":
					p.beforeRead = apply
				case "after the reading":
					p.afterRead = apply
				}
				key, err := k.Lookup(t.Context(), text)
				if moment == "from the cache" && err == nil {
					k.waitCaches()
					key, err = k.Lookup(t.Context(), text)
				}
				if p.beforeRead == nil && p.afterRead == nil {
					if err != nil {
						t.Fatalf("before the change: %v", err)
					}
					apply(1)
					if k.Valid(key) {
						t.Error("the record is valid after the change")
					}
					if dead, err := k.Revoked(t.Context(), key); !dead || err != nil {
						t.Error("the key is not dead after the change")
					}
				} else if !errors.Is(err, ErrInvalid) {
					t.Errorf("got %+v, %v; want ErrInvalid", key, err)
				}
				k.waitCaches()
				lookup(t, k, text, ErrInvalid)
			})
		}
	}
}

// A reply that was read before a revocation and arrives after it, with the
// record that is in the cache already gone.
func TestRevokedIsNotAskedFor(t *testing.T) {
	t.Parallel()
	k, p := setup(t)
	text, hash := p.add(k)
	k.Apply(wire.KeyChange{Revision: 11, Kind: wire.KeyRevoked, KeyHash: hash})
	lookup(t, k, text, ErrInvalid)
	if n := p.loads.Load(); n != 0 {
		t.Errorf("%d lookups of a revoked key; want none", n)
	}
}

// A loader that always answers from before the change is never believed.
func TestOldRecordIsRefused(t *testing.T) {
	t.Parallel()
	for _, kind := range []wire.KeyChangeKind{wire.KeyUpdated, wire.AccountUpdated, "of a later version"} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			k, p := setup(t)
			text, hash := p.add(k)
			k.Apply(wire.KeyChange{Revision: 11, Kind: kind, KeyHash: hash, Account: account})
			lookup(t, k, text, ErrUnavailable)
			p.revision = 11
			lookup(t, k, text, nil)
		})
	}
}

// A change concerns its key or account alone.
func TestChangeConcernsItsOwn(t *testing.T) {
	t.Parallel()
	k, p := setup(t)
	text, hash := p.add(k)
	key := lookup(t, k, text, nil)
	other := hash
	other[31] ^= 1 // it shares the cache's slot
	k.Apply(wire.KeyChange{Revision: 11, Kind: wire.KeyRevoked, KeyHash: other})
	k.Apply(wire.KeyChange{Revision: 12, Kind: wire.KeyUpdated, KeyHash: other})
	k.Apply(wire.KeyChange{Revision: 13, Kind: wire.AccountUpdated, Account: "acc_2"})
	if !k.Valid(key) {
		t.Error("another key's change made the record invalid")
	}
	lookup(t, k, text, nil)
}

// Late and doubled changes do not lower what is known.
func TestChangesInAnyOrder(t *testing.T) {
	t.Parallel()
	k, p := setup(t)
	text, hash := p.add(k)
	p.revision = 15
	for _, kind := range []wire.KeyChangeKind{wire.KeyUpdated, wire.AccountUpdated} {
		for _, rev := range []int64{16, 12, 16} {
			k.Apply(wire.KeyChange{Revision: rev, Kind: kind, KeyHash: hash, Account: account})
		}
	}
	lookup(t, k, text, ErrUnavailable)
	p.revision = 16
	lookup(t, k, text, nil)
}

// A new session trusts nothing from before it, even if its revision is lower:
// Postgres may have lost commits.
func TestReset(t *testing.T) {
	t.Parallel()
	for _, floor := range []int64{5, 10, 20} {
		t.Run(fmt.Sprint("floor ", floor), func(t *testing.T) {
			t.Parallel()
			k, p := setup(t)
			text, hash := p.add(k)
			key := lookup(t, k, text, nil)
			k.Reset(floor)
			if k.Valid(key) {
				t.Error("a record of the earlier session is valid")
			}
			p.revision = floor
			lookup(t, k, text, nil)
			if n := p.loads.Load(); n != 2 {
				t.Errorf("%d lookups; want 2", n)
			}
			// The load of an earlier session ends in this one.
			k.Apply(p.change(wire.KeyUpdated, hash))
			begun := p.loads.Load()
			p.afterRead = func(n int64) {
				if n == begun+1 {
					k.Reset(floor)
				}
			}
			lookup(t, k, text, nil)
			if n := p.loads.Load(); n != begun+2 {
				t.Errorf("%d lookups; want a second one for the new session", n-begun)
			}
		})
	}
}

func TestDead(t *testing.T) {
	t.Parallel()
	k, p := setup(t)
	text, hash := p.add(k)
	key := lookup(t, k, text, nil)
	loads := p.loads.Load()
	if dead, err := k.Revoked(t.Context(), key); dead || err != nil || p.loads.Load() != loads {
		t.Error("a valid key is dead, or was asked for")
	}
	k.Apply(wire.KeyChange{Revision: 11, Kind: wire.AccountUpdated, Account: account})
	p.revision = 11 // something harmless
	if dead, err := k.Revoked(t.Context(), key); dead || err != nil || k.Valid(key) {
		t.Error("a key is dead by a harmless change, or its old record valid")
	}
	p.err = errors.New("silent")
	k.Apply(wire.KeyChange{Revision: 12, Kind: wire.AccountUpdated, Account: account})
	if dead, err := k.Revoked(t.Context(), key); dead || err == nil {
		t.Error("it is told of a key what nobody can tell")
	}
	k.Apply(wire.KeyChange{Revision: 13, Kind: wire.KeyRevoked, KeyHash: hash})
	if dead, err := k.Revoked(t.Context(), key); !dead || err != nil {
		t.Error("a revoked key lives while nobody can tell")
	}
}

// The maps beside the cache are bounded; what they forget is made good by the
// floor.
func TestCompaction(t *testing.T) {
	t.Parallel()
	k, p := setup(t)
	text, hash := p.add(k)
	old := lookup(t, k, text, nil)
	other, _ := p.add(k)
	fine := lookup(t, k, other, nil)
	k.Apply(p.change(wire.KeyRevoked, hash))
	const bound = 1 << 16 // of what is remembered of single keys
	for i := range bound {
		p.mu.Lock()
		p.revision++
		c := wire.KeyChange{Revision: p.revision, Kind: wire.KeyRevoked}
		p.mu.Unlock()
		c.KeyHash[0], c.KeyHash[1], c.KeyHash[2], c.KeyHash[3] = byte(i), byte(i>>8), byte(i>>16), 1
		k.Apply(c)
	}
	if k.isRevoked(hash) {
		t.Error("nothing was compacted")
	}
	if k.Valid(old) || k.Valid(fine) {
		t.Error("a record from before is valid")
	}
	lookup(t, k, text, ErrInvalid)
	lookup(t, k, other, nil)
}

// Forged keys do not crowd out the rest: only so many are looked up at a time.
func TestLookupsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, lookupsAreBounded) // none waits for longer than two seconds
}

func lookupsAreBounded(t *testing.T) {
	k, p := setup(t)
	var under, most atomic.Int64
	release := make(chan struct{})
	p.beforeRead = func(int64) {
		n := under.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); {
			m = most.Load()
		}
		<-release
		under.Add(-1)
	}
	var wg sync.WaitGroup
	for range 2 * maxConcurrentLoads {
		wg.Go(func() {
			if _, err := k.Lookup(t.Context(), apikey.Generate()); !errors.Is(err, ErrInvalid) {
				t.Errorf("got %v", err)
			}
		})
	}
	synctest.Wait() // who may enter has done so
	close(release)
	wg.Wait()
	if most.Load() != maxConcurrentLoads {
		t.Errorf("%d lookups at a time; want %d", most.Load(), maxConcurrentLoads)
	}
}

// Many readers and one stream of changes: no record is valid once its
// revocation has been applied.
func TestConcurrentRevocations(t *testing.T) {
	t.Parallel()
	k, p := setup(t)
	const keys = 50
	texts, hashes, dead := make([]string, keys), make([]apikey.Hash, keys), make([]atomic.Bool, keys)
	for i := range keys {
		texts[i], hashes[i] = p.add(k)
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for r := range 4 {
		wg.Go(func() {
			for i := r; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				was := dead[i%keys].Load()
				key, err := k.Lookup(t.Context(), texts[i%keys])
				if was && err == nil && k.Valid(key) {
					t.Error("a key was admitted after its revocation")
					return
				}
			}
		})
	}
	for i := range keys {
		k.Apply(p.change(wire.KeyRevoked, hashes[i]))
		dead[i].Store(true)
	}
	close(stop)
	wg.Wait()
}
