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

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"modelgateway/shared/apikey"
	"modelgateway/shared/pulse"
	"modelgateway/shared/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const account = "acc_1"

// fakeControlPlane has a table of keys and its revision.
type fakeControlPlane struct {
	mu       sync.Mutex
	revision int64
	records  map[apikey.Hash]wire.KeyRecord
	loads    atomic.Int64
	// beforeRead and afterRead, if set, are called with the number of the load before and after the record is read.
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

// change makes a key change and returns it.
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

// add creates a key.
func (p *fakeControlPlane) add(k *Keys) (text string, hash apikey.Hash) {
	text = k.cfg.Hasher.Generate()
	hash = k.cfg.Hasher.Hash(text)
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
	k, err := New(Config{Hasher: hasher, Bucket: &fakeBucket{}, MaxKeys: 1 << 10}, p, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	k.Reset(10, 1)
	return k, p
}

// waitCaches waits until the caches contain every entry that was set.
func (k *Keys) waitCaches() {
	k.records.Wait()
	k.unknown.Wait()
}

// revoked reports whether Renew finds that the key was revoked. It returns an error
// if that cannot be decided.
func (k *Keys) revoked(t *testing.T, key *Key) (bool, error) {
	t.Helper()
	_, err := k.Renew(t.Context(), key)
	if errors.Is(err, ErrInvalid) {
		return true, nil
	}
	return false, err
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

func TestMalformedKeyIsNotLoaded(t *testing.T) {
	t.Parallel()
	k, p := setup(t)
	good, _ := p.add(k)
	for _, text := range []string{"", "mgw_", good[:len(good)-1], good + "x", "xgw" + good[3:], good[:10] + "!" + good[11:]} {
		lookup(t, k, text, ErrInvalid)
	}
	if n := p.loads.Load(); n != 0 {
		t.Errorf("%d loads; want none", n)
	}
}

func TestRecordIsCached(t *testing.T) {
	t.Parallel()
	k, p := setup(t)
	text, hash := p.add(k)
	for range 3 {
		key := lookup(t, k, text, nil)
		if !key.HasHash(hash) || key.HasHash(apikey.Hash{}) || key.AccountID != account || !k.Valid(key) {
			t.Errorf("got %+v; want the valid record of the key", key)
		}
	}
	if n := p.loads.Load(); n != 1 {
		t.Errorf("%d loads; want 1", n)
	}
}

func TestUnknownKeyIsCachedForAShortTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, unknownKeyIsCached)
}

func unknownKeyIsCached(t *testing.T) {
	k, p := setup(t)
	text := apikey.Generate()
	for range 3 {
		lookup(t, k, text, ErrInvalid)
		time.Sleep(negativeTTL / 4)
	}
	if n := p.loads.Load(); n != 1 {
		t.Errorf("%d loads; want 1", n)
	}
	time.Sleep(negativeTTL / 2)
	if lookup(t, k, text, ErrInvalid); p.loads.Load() != 2 {
		t.Errorf("%d loads; want a second one after %s", p.loads.Load(), negativeTTL)
	}
	// The key is created, and the change is pushed.
	hash := k.cfg.Hasher.Hash(text)
	p.records[hash] = wire.KeyRecord{AccountID: account, Active: true}
	k.Apply(p.change(wire.KeyUpdated, hash))
	lookup(t, k, text, nil)
}

// An import makes keys known at once that are cached as unknown, also for a lookup
// that began before the import.
func TestImportInvalidatesUnknownKeys(t *testing.T) {
	t.Parallel()
	k, p := setup(t)
	text := apikey.Generate()
	lookup(t, k, text, ErrInvalid)
	p.afterRead = func(n int64) {
		if n == 2 { // the import comes between the read and the reply
			p.records[k.cfg.Hasher.Hash(text)] = wire.KeyRecord{AccountID: account, Active: true}
			k.Apply(p.change(wire.KeysAdded, apikey.Hash{}))
		}
	}
	other := apikey.Generate()
	lookup(t, k, other, ErrInvalid)
	lookup(t, k, text, nil)
	if n := p.loads.Load(); n != 4 {
		t.Errorf("%d loads; want 4: the one during the import is repeated", n)
	}
}

func TestInactiveKeyIsInvalid(t *testing.T) {
	t.Parallel()
	k, p := setup(t)
	text, hash := p.add(k)
	p.records[hash] = wire.KeyRecord{AccountID: account}
	for range 2 {
		lookup(t, k, text, ErrInvalid)
	}
}

// A failed load does not make a key invalid, and is not cached.
func TestFailedLoadIsUnavailable(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		fail func(p *fakeControlPlane)
	}{
		{"error", func(p *fakeControlPlane) { p.err = errors.New("no responders") }},
		{"status", func(p *fakeControlPlane) { p.status = wire.Unavailable }},
		{"status without a record", func(p *fakeControlPlane) { p.status = wire.Unavailable; clear(p.records) }},
		{"record older than the session", func(p *fakeControlPlane) { p.revision = 9 }},
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

func TestConcurrentLookupsShareOneLoad(t *testing.T) {
	t.Parallel()
	k, p := setup(t)
	text, hash := p.add(k)
	entered, release := make(chan struct{}), make(chan struct{})
	p.beforeRead = func(int64) { close(entered); <-release }
	var wg sync.WaitGroup
	first, cancel := context.WithCancel(t.Context())
	wg.Go(func() {
		if _, err := k.Lookup(first, text); !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("canceled lookup: got %v; want %v", err, context.Canceled)
		}
	})
	<-entered
	joined := make([]<-chan error, 20)
	for i := range joined {
		joined[i] = k.joinLoad(hash)
	}
	cancel() // the load continues without the lookup that began it
	wg.Wait()
	close(release)
	for _, done := range joined {
		if err := <-done; err != nil {
			t.Errorf("waiting lookup: got %v", err)
		}
	}
	if n := p.loads.Load(); n != 1 {
		t.Errorf("%d loads; want 1", n)
	}
}

// joinLoad waits for the load of a hash that is under way.
func (k *Keys) joinLoad(hash apikey.Hash) <-chan error {
	result := k.loadGroup.DoChan(string(hash[:]), func() (any, error) { return nil, errors.New("no load is under way") })
	done := make(chan error, 1)
	go func() { done <- (<-result).Err }()
	return done
}

// A change comes before the record is read, between the read and the reply, after
// the lookup, or while the record is cached. In each case the record is not used
// after the change.
func TestChangeDuringLoadInvalidatesRecord(t *testing.T) {
	t.Parallel()
	for _, kind := range []wire.KeyChangeKind{wire.KeyRevoked, wire.AccountUpdated} {
		for _, moment := range []string{"before the read", "after the read", "after the lookup", "while cached"} {
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
				case "before the read":
					p.beforeRead = apply
				case "after the read":
					p.afterRead = apply
				}
				key, err := k.Lookup(t.Context(), text)
				if moment == "while cached" && err == nil {
					k.waitCaches()
					key, err = k.Lookup(t.Context(), text)
				}
				if p.beforeRead == nil && p.afterRead == nil {
					if err != nil {
						t.Fatalf("lookup before the change: %v", err)
					}
					apply(1)
					if k.Valid(key) {
						t.Error("the record is valid after the change")
					}
					if revoked, err := k.revoked(t, key); !revoked || err != nil {
						t.Errorf("revoked after the change: got %v, %v; want true", revoked, err)
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

// A revoked key is refused without a load, which might return a record from before
// the revocation.
func TestRevokedKeyIsNotLoaded(t *testing.T) {
	t.Parallel()
	k, p := setup(t)
	text, hash := p.add(k)
	k.Apply(wire.KeyChange{Revision: 11, Kind: wire.KeyRevoked, KeyHash: hash})
	lookup(t, k, text, ErrInvalid)
	if n := p.loads.Load(); n != 0 {
		t.Errorf("%d loads of a revoked key; want none", n)
	}
}

// A record that was read before a change is not used, however often it is loaded.
func TestRecordReadBeforeChangeIsNotUsed(t *testing.T) {
	t.Parallel()
	for _, kind := range []wire.KeyChangeKind{wire.KeyUpdated, wire.AccountUpdated, "unknown kind"} {
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

func TestChangeOfAnotherKeyOrAccountHasNoEffect(t *testing.T) {
	t.Parallel()
	k, p := setup(t)
	text, hash := p.add(k)
	key := lookup(t, k, text, nil)
	other := hash
	other[31] ^= 1 // has the same cache key
	k.Apply(wire.KeyChange{Revision: 11, Kind: wire.KeyRevoked, KeyHash: other})
	k.Apply(wire.KeyChange{Revision: 12, Kind: wire.KeyUpdated, KeyHash: other})
	k.Apply(wire.KeyChange{Revision: 13, Kind: wire.AccountUpdated, Account: "acc_2"})
	if !k.Valid(key) {
		t.Error("the change of another key made the record invalid")
	}
	lookup(t, k, text, nil)
}

// A late or repeated change does not lower the least usable revision.
func TestChangesApplyInAnyOrder(t *testing.T) {
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

// A new session uses no record from before it, even if its revision is lower:
// Postgres may have lost commits.
func TestNewSessionInvalidatesAllRecords(t *testing.T) {
	t.Parallel()
	for _, floor := range []int64{5, 10, 20} {
		t.Run(fmt.Sprint("floor ", floor), func(t *testing.T) {
			t.Parallel()
			k, p := setup(t)
			text, hash := p.add(k)
			key := lookup(t, k, text, nil)
			k.Reset(floor, 1)
			if k.Valid(key) {
				t.Error("a record of the earlier session is valid")
			}
			p.revision = floor
			lookup(t, k, text, nil)
			if n := p.loads.Load(); n != 2 {
				t.Errorf("%d loads; want 2", n)
			}
			// A load that began in an earlier session ends in this one.
			k.Apply(p.change(wire.KeyUpdated, hash))
			before := p.loads.Load()
			p.afterRead = func(n int64) {
				if n == before+1 {
					k.Reset(floor, 1)
				}
			}
			lookup(t, k, text, nil)
			if n := p.loads.Load(); n != before+2 {
				t.Errorf("%d loads; want 2, the second one in the new session", n-before)
			}
		})
	}
}

func TestRenewReadsRecordAgain(t *testing.T) {
	t.Parallel()
	k, p := setup(t)
	text, hash := p.add(k)
	key := lookup(t, k, text, nil)
	loads := p.loads.Load()
	if revoked, err := k.revoked(t, key); revoked || err != nil || p.loads.Load() != loads {
		t.Errorf("valid key: got %v, %v, %d loads; want false without a load", revoked, err, p.loads.Load()-loads)
	}
	k.Apply(wire.KeyChange{Revision: 11, Kind: wire.AccountUpdated, Account: account})
	p.revision = 11 // the key is still active
	if revoked, err := k.revoked(t, key); revoked || err != nil || k.Valid(key) {
		t.Errorf("key that is still active after a change: got %v, %v, record valid %v; want false, no error, record not valid", revoked, err, k.Valid(key))
	}
	p.err = errors.New("no reply")
	k.Apply(wire.KeyChange{Revision: 12, Kind: wire.AccountUpdated, Account: account})
	if revoked, err := k.revoked(t, key); revoked || err == nil {
		t.Errorf("without a control plane: got %v, %v; want an error", revoked, err)
	}
	k.Apply(wire.KeyChange{Revision: 13, Kind: wire.KeyRevoked, KeyHash: hash})
	if revoked, err := k.revoked(t, key); !revoked || err != nil {
		t.Errorf("known revocation without a control plane: got %v, %v; want true", revoked, err)
	}
}

// The known changes are bounded. When the bound is exceeded, every record that was
// read before counts as out of date.
func TestInvalidationsAreBounded(t *testing.T) {
	t.Parallel()
	k, p := setup(t)
	text, hash := p.add(k)
	revoked := lookup(t, k, text, nil)
	other, _ := p.add(k)
	active := lookup(t, k, other, nil)
	k.Apply(p.change(wire.KeyRevoked, hash))
	const bound = 1 << 16 // of the known changes of single keys and accounts
	for i := range bound {
		p.mu.Lock()
		p.revision++
		c := wire.KeyChange{Revision: p.revision, Kind: wire.KeyRevoked}
		p.mu.Unlock()
		c.KeyHash[0], c.KeyHash[1], c.KeyHash[2], c.KeyHash[3] = byte(i), byte(i>>8), byte(i>>16), 1
		k.Apply(c)
	}
	if k.isRevoked(hash) {
		t.Error("the first revocation is still in memory")
	}
	if k.Valid(revoked) || k.Valid(active) {
		t.Error("a record from before the last change is valid")
	}
	lookup(t, k, text, ErrInvalid)
	lookup(t, k, other, nil)
}

// While many readers look up keys, no record is valid after its revocation was
// applied.
func TestNoRecordIsValidAfterConcurrentRevocation(t *testing.T) {
	t.Parallel()
	k, p := setup(t)
	const keys = 50
	texts, hashes, revoked := make([]string, keys), make([]apikey.Hash, keys), make([]atomic.Bool, keys)
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
				wasRevoked := revoked[i%keys].Load()
				key, err := k.Lookup(t.Context(), texts[i%keys])
				if wasRevoked && err == nil && k.Valid(key) {
					t.Error("a record was valid after its revocation")
					return
				}
			}
		})
	}
	for i := range keys {
		k.Apply(p.change(wire.KeyRevoked, hashes[i]))
		revoked[i].Store(true)
	}
	close(stop)
	wg.Wait()
}

// The end of an overlap needs nothing but the proxy's clock, and a secret that has ended needs not even that.
func TestReplacedSecretEndsByTheProxysTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, p := setup(t)
		old, oldHash := p.add(k)
		ended, endedHash := p.add(k)
		p.mu.Lock()
		record := p.records[oldHash]
		record.SecretUntilMS = time.Now().Add(time.Hour).UnixMilli()
		p.records[oldHash] = record
		record.SecretUntilMS = 1
		p.records[endedHash] = record
		p.mu.Unlock()

		key, err := k.Lookup(t.Context(), old)
		if err != nil || !k.Valid(key) {
			t.Fatalf("in the overlap: %v", err)
		}
		_, err = k.Lookup(t.Context(), ended)
		if inactive, ok := errors.AsType[*InactiveError](err); !ok || inactive.Reason != pulse.ReasonKeyRotated || Ended(err) {
			t.Errorf("a secret that has ended: %v", err)
		}

		p.err = errors.New("no control plane")
		time.Sleep(time.Hour)
		_, err = k.Lookup(t.Context(), old)
		if inactive, ok := errors.AsType[*InactiveError](err); !ok || inactive.Reason != pulse.ReasonKeyRotated || k.Valid(key) {
			t.Errorf("after the overlap: %v", err)
		}
	})
}
