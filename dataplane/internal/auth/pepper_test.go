package auth

import (
	"testing"

	"modelgateway/shared/apikey"
	"modelgateway/shared/wire"
)

// peppered is a store that knows an old pepper beside the current one.
func setupTwoPeppers(tb testing.TB) (*Keys, *fakeControlPlane, *apikey.Hasher) {
	tb.Helper()
	hashers := [2]*apikey.Hasher{}
	for i, pepper := range []string{"the pepper of these days", "the pepper of before"} {
		var err error
		if hashers[i], err = apikey.NewHasher([]byte(pepper)); err != nil {
			tb.Fatal(err)
		}
	}
	p := &fakeControlPlane{revision: 10, records: map[apikey.Hash]wire.KeyRecord{}, status: wire.Done}
	k, err := New(hashers[0], p, hashers[1])
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(k.Close)
	k.Reset(10)
	return k, p, hashers[1]
}

// A key is found under either pepper, and asked for no more often than it has
// to be.
func TestOldPepper(t *testing.T) {
	t.Parallel()
	k, p, old := setupTwoPeppers(t)
	text := apikey.Generate()
	p.records[old.Hash(text)] = wire.KeyRecord{KeyID: "key_1", AccountID: account, Active: true}
	for range 5 {
		if key := lookup(t, k, text, nil); key.KeyID != "key_1" {
			t.Fatalf("found %q", key.KeyID)
		}
	}
	if n := p.loads.Load(); n != 2 { // under the current pepper, then under the old one
		t.Errorf("asked %d times; want 2", n)
	}
	newer, _ := p.add(k)
	lookup(t, k, newer, nil)
	if n := p.loads.Load(); n != 3 {
		t.Errorf("asked %d times; want 3", n)
	}
	lookup(t, k, apikey.Generate(), ErrInvalid)
}

// A key that got a second hash while it was cached under the first is refused
// when it is revoked, whichever of its hashes a proxy knows it by, and however
// the two changes come.
func TestRevokedUnderEveryHash(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]int{"in order": {0, 1}, "last first": {1, 0}} {
		for _, known := range []string{"old", "new"} {
			k, p, old := setupTwoPeppers(t)
			text := apikey.Generate()
			hashes := [2]apikey.Hash{old.Hash(text), k.hasher.Hash(text)}
			record := wire.KeyRecord{KeyID: "key_1", AccountID: account, Active: true}
			p.records[hashes[0]] = record
			if known == "new" {
				p.records[hashes[1]] = record
			}
			key := lookup(t, k, text, nil)
			p.records[hashes[1]] = record // the rotation comes by
			changes := [2]wire.KeyChange{p.change(wire.KeyRevoked, hashes[0]), p.change(wire.KeyRevoked, hashes[1])}
			for _, i := range order {
				k.Apply(changes[i])
			}
			if k.Valid(key) {
				t.Errorf("%s, known by its %s hash: the cached record is still good", name, known)
			}
			lookup(t, k, text, ErrInvalid)
		}
	}
}

// BenchmarkLookup finds a cached key: with one pepper, under the first of two,
// and under the second.
func BenchmarkLookup(b *testing.B) {
	for _, test := range []struct {
		name  string
		two   bool
		older bool
	}{{"one", false, false}, {"first of two", true, false}, {"second of two", true, true}} {
		b.Run(test.name, func(b *testing.B) {
			k, p, old := setupTwoPeppers(b)
			text := apikey.Generate()
			hash := k.hasher.Hash(text)
			if test.older {
				hash = old.Hash(text)
			}
			p.records[hash] = wire.KeyRecord{KeyID: "key_1", AccountID: account, Active: true}
			if !test.two {
				k.previous = nil
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
