package certfile

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestExpiryIsThatOfTheFile(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	write(t, f, 1)
	at, err := Expiry(f.Cert)
	if left := time.Until(at); err != nil || left < 50*time.Minute || left > time.Hour {
		t.Errorf("it expires in %v, %v; want an hour", left, err)
	}
	if _, err := Expiry(f.Key); err == nil {
		t.Error("a key has an expiry")
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{text, text + ".missing"} {
		if _, err := Expiry(file); err == nil {
			t.Errorf("%s has an expiry", file)
		}
	}
}

func TestFirstExpiryIsThatOfAnyCertificate(t *testing.T) {
	t.Parallel()
	var long, short strings.Builder
	end := time.Now().Add(48 * time.Hour).Truncate(time.Second)
	for text, at := range map[*strings.Builder]time.Time{&long: end.Add(time.Hour), &short: end} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: at}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		if err := pem.Encode(text, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]time.Time{
		"": {}, "no certificate": {}, long.String(): end.Add(time.Hour), long.String() + short.String(): end, short.String() + "\n" + long.String(): end,
	} {
		if got := FirstExpiry(text); !got.Equal(want) {
			t.Errorf("got %v; want %v of %q", got, want, text)
		}
	}
}
