package devstack

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Secrets are the secrets of a stack. They are generated once and stored in files, whose
// paths the planes get.
type Secrets struct {
	Pepper, FleetKey, MasterKey, AdminToken, NATSControl, NATSData, NATSOperator, PostgresPassword, PostgresRuntimePassword string
}

// loadSecrets reads the secrets and generates missing ones.
func (l Layout) loadSecrets() (Secrets, error) {
	var s Secrets
	for _, secret := range []struct {
		name  string
		value *string
		make  func() string
	}{
		{"pepper", &s.Pepper, rand.Text},
		{"fleet_key", &s.FleetKey, randomKey},
		{"master_key", &s.MasterKey, randomKey},
		{"admin_token", &s.AdminToken, rand.Text},
		{"nats_controlplane", &s.NATSControl, rand.Text},
		{"nats_dataplane", &s.NATSData, rand.Text},
		{"nats_operator", &s.NATSOperator, rand.Text},
		{"postgres_password", &s.PostgresPassword, rand.Text},
		{"postgres_runtime_password", &s.PostgresRuntimePassword, rand.Text},
	} {
		text, err := os.ReadFile(l.secret(secret.name))
		if errors.Is(err, fs.ErrNotExist) {
			text = []byte(secret.make() + "\n")
			err = writeFile(l.secret(secret.name), text)
		}
		if err != nil {
			return Secrets{}, fmt.Errorf("secret: %w", err)
		}
		*secret.value = string(bytes.TrimSpace(text))
	}

	return s, nil
}

// randomKey returns 32 random bytes in base64.
func randomKey() string {
	const size = 32
	key := make([]byte, size)
	_, _ = rand.Read(key) // it never fails
	return base64.StdEncoding.EncodeToString(key)
}
