package apikey

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"testing"
)

var pepper = []byte("0123456789abcdef")

func TestGeneratedKeysPassTheCheck(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		key := Generate()
		if err := Check(key); err != nil {
			t.Fatalf("a generated key is rejected: %v", err)
		}
		if seen[key] {
			t.Fatal("a key was generated twice")
		}
		seen[key] = true
	}
}

func TestCheckRejectsOtherTexts(t *testing.T) {
	t.Parallel()
	key := Generate()
	for name, text := range map[string]string{
		"empty": "", "prefix only": "mgw_", "short": key[:len(key)-1], "long": key + "0",
		"other prefix": "sk-_" + key[4:], "lower": strings.ToLower(key) + "", "not base62": "mgw_" + strings.Repeat("-", 38),
	} {
		if text != key && Check(text) == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	// Any single changed character is detected.
	for i := len(prefix); i < len(key); i++ {
		c := byte('0')
		if key[i] == c {
			c = '1'
		}
		if Check(key[:i]+string(c)+key[i+1:]) == nil {
			t.Errorf("a change at %d was not detected", i)
		}
	}
}

func TestHasherComputesTheHMACUnderThePepper(t *testing.T) {
	t.Parallel()
	h, err := NewHasher(pepper)
	if err != nil {
		t.Fatal(err)
	}
	key := Generate()
	m := hmac.New(sha256.New, pepper)
	m.Write([]byte(key))
	if got := h.Hash(key); !hmac.Equal(got[:], m.Sum(nil)) {
		t.Error("not the HMAC of the key")
	}
	if again := h.Hash(key); again != h.Hash(key) || again == h.Hash(Generate()) {
		t.Error("the hash is not a function of the key")
	}
	var back Hash
	text, _ := h.Hash(key).MarshalText()
	if err := back.UnmarshalText(text); err != nil || back != h.Hash(key) {
		t.Errorf("text parsed back: %v", err)
	}
	if back.UnmarshalText([]byte("zz")) == nil || back.UnmarshalText([]byte(strings.Repeat("z", 64))) == nil {
		t.Error("bad hexadecimal was accepted")
	}
	if _, err := NewHasher(pepper[:15]); err == nil {
		t.Error("a short pepper was accepted")
	}
}

// Only keys that were issued under the pepper have a MAC under it: not imported ones, not those of another pepper, and
// none that a forger made with a correct checksum.
func TestOnlyIssuedKeysHaveTheMAC(t *testing.T) {
	t.Parallel()
	var hashers [2]*Hasher
	for i := range hashers {
		var err error
		if hashers[i], err = NewHasher(append([]byte{byte(i)}, pepper...)); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		key := hashers[0].Generate()
		if err := Check(key); err != nil || !hashers[0].HasMAC(key) {
			t.Fatalf("an issued key: %v, has its MAC %v; want a key with one", err, hashers[0].HasMAC(key))
		}
		if hashers[1].HasMAC(key) || hashers[0].HasMAC(Generate()) {
			t.Fatal("a key has a MAC under a pepper that it was not issued under")
		}
		for i := len(prefix); i < textLen-sumLen; i++ {
			forged := []byte(key[:textLen-sumLen])
			forged[i] = alphabet[(strings.IndexByte(alphabet, forged[i])+1)%len(alphabet)]
			text := string(appendSum(forged))
			if Check(text) != nil || hashers[0].HasMAC(text) {
				t.Fatalf("a key with character %d changed and a correct checksum passes as issued", i)
			}
		}
	}
}

func TestMACIsNoPartOfTheLookupHash(t *testing.T) {
	t.Parallel()
	h, err := NewHasher(pepper)
	if err != nil {
		t.Fatal(err)
	}
	key := h.Generate()
	hash := h.Hash(key)
	if mac := string(appendDigits(nil, binary.BigEndian.Uint64(hash[:]))); strings.Contains(key, mac) {
		t.Error("the key shows a part of its lookup hash")
	}
}

func FuzzCheck(f *testing.F) {
	f.Add(Generate())
	f.Add("mgw_")
	f.Fuzz(func(t *testing.T, s string) {
		if Check(s) == nil && (len(s) != textLen || !strings.HasPrefix(s, prefix)) {
			t.Errorf("%q accepted", s)
		}
	})
}

func BenchmarkHash(b *testing.B) {
	h, err := NewHasher(pepper)
	if err != nil {
		b.Fatal(err)
	}
	key := Generate()
	b.ReportAllocs()
	for b.Loop() {
		h.Hash(key)
	}
}
