package certfile

import (
	"os"
	"path/filepath"
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
