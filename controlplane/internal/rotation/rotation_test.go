package rotation_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"modelgateway/controlplane/internal/rotation"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/shared/apikey"
	"modelgateway/shared/seal"
)

var errText = errors.New("cannot be decrypted")

// store has steps for the master key, of which each skips some rows.
type store struct {
	rotation.Store

	skipped []int
	froms   []rotation.Cursor
	// running is the target of the rotation that runs.
	running string
}

func (s *store) Step(_ context.Context, kind rotation.Kind, step rotation.Step) (rotation.Progress, error) {
	if kind != rotation.MasterKey {
		return rotation.Progress{Done: true}, nil
	}
	n := len(s.froms)
	s.froms = append(s.froms, step.From)
	p := rotation.Progress{Done: n == len(s.skipped)-1, Next: rotation.Cursor{DataKey: strconv.Itoa(n)}}
	for range s.skipped[n] {
		p.Skipped = append(p.Skipped, errText)
	}
	return p, nil
}

func (s *store) Start(_ context.Context, r rotation.Rotation, with *vault.DataKey) (rotation.Rotation, error) {
	if (with != nil) != (r.Kind == rotation.MasterKey) {
		return r, fmt.Errorf("the rotation of a %s has the data key %v", r.Kind, with)
	}
	if s.running != "" {
		r.Target = s.running
	}
	return r, nil
}

func (s *store) DataKeys(context.Context) ([]vault.DataKey, error) { return nil, nil }

func service(t *testing.T, s *store) *rotation.Service {
	t.Helper()
	keys, err := vault.New("m1", map[string][]byte{"m1": seal.NewSecret()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	hasher, err := apikey.NewHasher([]byte("a pepper for the tests"))
	if err != nil {
		t.Fatal(err)
	}
	return rotation.NewService(rotation.Config{Store: s, Vault: keys, Hasher: hasher})
}

// A row that cannot be decrypted ends no pass; the error counts all and names some.
func TestRowsThatCannotBeDecryptedAreSkippedAndCounted(t *testing.T) {
	t.Parallel()
	s := &store{skipped: []int{15, 0, 15}}
	err := service(t, s).Work(t.Context())
	skipped, ok := errors.AsType[*rotation.SkippedError](err)
	if !ok || skipped.Count != 30 || len(skipped.Some) != 20 || !errors.Is(err, errText) {
		t.Errorf("got %v; want 30 rows of which 20 are named", err)
	}
	if len(s.froms) != 3 || s.froms[0] != (rotation.Cursor{}) || s.froms[2].DataKey != "1" {
		t.Errorf("the steps began at %v; want each where the one before ended", s.froms)
	}
}

func TestRotationsDoNotOverlap(t *testing.T) {
	t.Parallel()
	s := &store{running: "m0"}
	if _, err := service(t, s).Start(t.Context(), rotation.MasterKey); !errors.Is(err, rotation.ErrRunning) {
		t.Errorf("got %v; want ErrRunning while one to another key runs", err)
	}
	s.running = "m1"
	if r, err := service(t, s).Start(t.Context(), rotation.MasterKey); err != nil || r.Target != "m1" {
		t.Errorf("got %+v, %v; want the one that runs", r, err)
	}
	s.running = ""
	if _, err := service(t, s).Start(t.Context(), rotation.Pepper); err != nil {
		t.Errorf("a rotation of the pepper: %v", err)
	}
}
