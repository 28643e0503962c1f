package rig

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/shared/natsuser"
)

// variables are environment variables that a test has set for the planes, by the prefix of their
// names. A plane gets them at its next start.
type variables struct {
	mu       sync.Mutex
	byPrefix map[string][]string
}

func (v *variables) of(prefix string) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.byPrefix[prefix])
}

func (v *variables) add(prefix string, entries []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byPrefix == nil {
		v.byPrefix = map[string][]string{}
	}
	v.byPrefix[prefix] = append(v.byPrefix[prefix], entries...)
}

// SetControlPlanes adds environment variables, NAME=value, of all control planes from their next
// start on. Later ones take precedence.
func (r *Rig) SetControlPlanes(entries ...string) { r.variables.add(ControlPlane, entries) }

// SetDataPlanes is SetControlPlanes for the data planes.
func (r *Rig) SetDataPlanes(entries ...string) { r.variables.add(dataPlanes, entries) }

// Restart shuts parts down and starts them again, one after the other, as a rolling upgrade does.
func (r *Rig) Restart(t *testing.T, parts ...string) {
	t.Helper()
	for _, part := range parts {
		r.End(t, part)
		r.Resume(t, part)
	}
}

// Secret returns the content of a secret file of the stack.
func (r *Rig) Secret(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, "secrets", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(text))
}

// SetSecret writes a secret file of the stack, which the planes read when they start.
func (r *Rig) SetSecret(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "secrets", name), []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// SetAdminToken makes Admin use another token.
func (r *Rig) SetAdminToken(t *testing.T, token string) {
	t.Helper()
	admin, err := adminclient.New(r.AdminURL(), token)
	if err != nil {
		t.Fatal(err)
	}
	r.Admin = admin
}

// SetNATSUsers replaces the users of both planes in NATS, with their passwords by name.
func (r *Rig) SetNATSUsers(t *testing.T, users []natsuser.User, passwords map[string]string) {
	t.Helper()
	if err := r.stack.SetNATSUsers(users, passwords); err != nil {
		t.Fatal(err)
	}
}

// PostgresURL returns the connection string of the owner of the database.
func (r *Rig) PostgresURL() string { return r.stack.State().PostgresURL }
