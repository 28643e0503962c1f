package auth

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/shared/apikey"
	"modelgateway/shared/wire"
)

// setupTwoPeppers returns Keys with a current and a previous pepper, and the hasher
// of the previous one.
func setupTwoPeppers(tb testing.TB) (*Keys, *fakeControlPlane, *apikey.Hasher) {
	tb.Helper()
	hashers := [2]*apikey.Hasher{}
	for i, pepper := range []string{"the current pepper of the test", "the previous pepper of the test"} {
		var err error
		if hashers[i], err = apikey.NewHasher([]byte(pepper)); err != nil {
			tb.Fatal(err)
		}
	}
	p := &fakeControlPlane{revision: 10, records: map[apikey.Hash]wire.KeyRecord{}, status: wire.Done}
	k, err := New(Config{Hasher: hashers[0], Previous: hashers[1:], Bucket: &fakeBucket{}, MaxKeys: 1 << 10}, p, prometheus.NewRegistry())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(k.Close)
	k.Reset(10, 1)
	return k, p, hashers[1]
}

// A key is found under either pepper, with one load for each pepper at most.
func TestKeyIsFoundUnderPreviousPepper(t *testing.T) {
	t.Parallel()
	k, p, previous := setupTwoPeppers(t)
	text := apikey.Generate()
	p.records[previous.Hash(text)] = wire.KeyRecord{KeyID: "key_1", AccountID: account, Active: true}
	for range 5 {
		if key := lookup(t, k, text, nil); key.KeyID != "key_1" {
			t.Fatalf("found %q", key.KeyID)
		}
	}
	if n := p.loads.Load(); n != 2 { // under the current pepper, then under the previous one
		t.Errorf("%d loads; want 2", n)
	}
	newer, _ := p.add(k)
	lookup(t, k, newer, nil)
	if n := p.loads.Load(); n != 3 {
		t.Errorf("%d loads; want 3", n)
	}
	lookup(t, k, apikey.Generate(), ErrInvalid)
}

// During a change of the pepper, a key gets a second hash while it is cached under
// the first one. After its revocation it is refused, under whichever hash it is
// cached, and in whichever order the two changes come.
func TestKeyIsRevokedUnderEveryHash(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]int{"in order": {0, 1}, "in reverse order": {1, 0}} {
		for _, cached := range []string{"previous", "current"} {
			k, p, previous := setupTwoPeppers(t)
			text := apikey.Generate()
			hashes := [2]apikey.Hash{previous.Hash(text), k.cfg.Hasher.Hash(text)}
			record := wire.KeyRecord{KeyID: "key_1", AccountID: account, Active: true}
			p.records[hashes[0]] = record
			if cached == "current" {
				p.records[hashes[1]] = record
			}
			key := lookup(t, k, text, nil)
			p.records[hashes[1]] = record
			changes := [2]wire.KeyChange{p.change(wire.KeyRevoked, hashes[0]), p.change(wire.KeyRevoked, hashes[1])}
			for _, i := range order {
				k.Apply(changes[i])
			}
			if k.Valid(key) {
				t.Errorf("%s, cached under the %s pepper: the record is still valid", name, cached)
			}
			lookup(t, k, text, ErrInvalid)
		}
	}
}

// BenchmarkLookup measures the lookup of a cached key with one pepper, under the
// first of two, and under the second of two.
func BenchmarkLookup(b *testing.B) {
	for _, test := range []struct {
		name     string
		two      bool
		previous bool
	}{{"one", false, false}, {"first of two", true, false}, {"second of two", true, true}} {
		b.Run(test.name, func(b *testing.B) {
			k, p, previous := setupTwoPeppers(b)
			text := apikey.Generate()
			hash := k.cfg.Hasher.Hash(text)
			if test.previous {
				hash = previous.Hash(text)
			}
			p.records[hash] = wire.KeyRecord{KeyID: "key_1", AccountID: account, Active: true}
			if !test.two {
				k.cfg.Previous = nil
			}
			if _, err := k.Lookup(b.Context(), text); err != nil {
				b.Fatal(err)
			}
			k.waitCaches()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := k.Lookup(b.Context(), text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
