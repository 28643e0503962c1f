package devstack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// A Layout holds the directories of a stack.
type Layout struct {
	// Root is the root of the repository.
	Root string
	// Dir is the directory of all files that the stack writes.
	Dir string
	// Bin is the directory of the binaries. Empty: a directory in Dir.
	Bin string
}

// FindLayout returns the layout for the repository that contains the directory from. A
// relative dir is relative to the root of the repository.
func FindLayout(from, dir string) (Layout, error) {
	root, err := filepath.Abs(from)
	if err != nil {
		return Layout{}, fmt.Errorf("find the repository: %w", err)
	}

	for {
		if _, err := os.Stat(filepath.Join(root, "go.work")); err == nil {
			break
		}
		parent := filepath.Dir(root)
		if parent == root {
			return Layout{}, fmt.Errorf("find the repository: no go.work in %s or its parents", from)
		}
		root = parent
	}

	if !filepath.IsAbs(dir) {
		dir = filepath.Join(root, dir)
	}

	return Layout{Root: root, Dir: dir}, nil
}

func (l Layout) binary(name string) string {
	if l.Bin != "" {
		return filepath.Join(l.Bin, name)
	}
	return filepath.Join(l.Dir, "bin", name)
}

func (l Layout) log(name string) string    { return filepath.Join(l.Dir, "log", name+".log") }
func (l Layout) secret(name string) string { return filepath.Join(l.Dir, "secrets", name) }
func (l Layout) spool(name string) string  { return filepath.Join(l.Dir, "spool", name) }
func (l Layout) nats() string              { return filepath.Join(l.Dir, "nats") }
func (l Layout) postgres() string          { return filepath.Join(l.Dir, "postgres") }
func (l Layout) state() string             { return filepath.Join(l.Dir, "stack.json") }
func (l Layout) schema() string            { return filepath.Join(l.Dir, "schema.sha256") }
func (l Layout) catalog() string           { return filepath.Join(l.Dir, "catalog.sha256") }
func (l Layout) processes() string         { return filepath.Join(l.Dir, "pids.json") }

// make creates the directories. Only the user can read the secrets and the data.
func (l Layout) make() error {
	// Postgres may run as another user and must be able to enter the directory.
	if err := os.MkdirAll(l.Dir, 0o755); err != nil { //nolint:gosec // G301: see above; private files are in subdirectories
		return fmt.Errorf("devstack: %w", err)
	}
	dirs := []string{l.binary("")}
	for _, name := range []string{"log", "secrets", "spool", "nats"} {
		dirs = append(dirs, filepath.Join(l.Dir, name))
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("devstack: %w", err)
		}
	}
	return nil
}

// lock prevents a second stack in the directory until release or the end of this process.
func (l Layout) lock() (release func(), err error) {
	release, err = flock(filepath.Join(l.Dir, "lock"), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf(
			"a stack is already running in %s; stop it first, or start another one with: %s=1000 .cache/bin/devstack -dir DIRECTORY",
			l.Dir,
			OffsetVariable,
		)
	}
	return release, err
}

// flock locks a file. The kernel releases the lock if the process is killed.
func flock(name string, how int) (release func(), err error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("devstack: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), how); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("devstack: lock %s: %w", name, err)
	}
	return func() { _ = file.Close() }, nil
}

// writeFile atomically replaces a file that only the user can read.
func writeFile(name string, text []byte) error {
	file, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer func() { _ = os.Remove(file.Name()) }() // only needed after an error
	_, err = file.Write(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.Rename(file.Name(), name); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// removeFile removes a file. A missing file is not an error.
func removeFile(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("devstack: %w", err)
	}
	return nil
}
