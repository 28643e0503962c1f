package oidc

import (
	"context"
	"crypto"
	"fmt"
	"os"
	"sync"
	"time"

	oidclib "github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

// fileKeys are the keys of a JWKS file, read again when the file changes.
type fileKeys struct {
	path string

	mu   sync.Mutex
	read time.Time // modification time of the file that keys were read from
	keys *oidclib.StaticKeySet
}

func (f *fileKeys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	if err := f.load(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	keys := f.keys
	f.mu.Unlock()
	payload, err := keys.VerifySignature(ctx, token)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoKey, err)
	}
	return payload, nil
}

// load reads the file if it has changed. If it cannot be read, the keys that were read before stay
// valid.
func (f *fileKeys) load() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err == nil && f.keys != nil && info.ModTime().Equal(f.read) {
		return nil
	}

	var set jose.JSONWebKeySet
	if err == nil {
		var text []byte
		if text, err = os.ReadFile(f.path); err == nil {
			err = decode(text, &set)
		}
	}

	var public []crypto.PublicKey
	for i := range set.Keys {
		if key := &set.Keys[i]; key.Valid() && key.IsPublic() {
			public = append(public, key.Key)
		}
	}

	switch {
	case err == nil && len(public) > 0:
		f.read, f.keys = info.ModTime(), &oidclib.StaticKeySet{PublicKeys: public}
		return nil
	case f.keys != nil:
		return nil
	case err != nil:
		return fmt.Errorf("oidc: read keys: %w", err)
	default:
		return fmt.Errorf("oidc: %s contains no public key", f.path)
	}
}
