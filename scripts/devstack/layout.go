package devstack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// A Layout says where the stack keeps what.
type Layout struct {
	// Root is the root of the repository.
	Root string
	// Dir holds everything that the stack writes.
	Dir string
	// Bin holds the binaries. Empty: they are in Dir too.
	Bin string
}

// FindLayout returns the layout for the repository that holds the directory
// from; a dir that is not absolute is meant from the repository's root.
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
			return Layout{}, fmt.Errorf("find the repository: no go.work in %s or above it", from)
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
func (l Layout) processes() string         { return filepath.Join(l.Dir, "pids.json") }

// make makes the directories. Secrets and data are the user's alone.
func (l Layout) make() error {
	// Postgres may run as another user and has to pass through.
	if err := os.MkdirAll(l.Dir, 0o755); err != nil { //nolint:gosec // G301: see above; what is private lies in directories of its own
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

// lock keeps a second stack out of the directory until release, or the end of
// this process.
func (l Layout) lock() (release func(), err error) {
	release, err = flock(filepath.Join(l.Dir, "lock"), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("a stack runs already in %s; stop it first, or run this one with -dir and %s", l.Dir, OffsetVariable)
	}
	return release, err
}

// flock takes a lock of the kernel's, so that a kill leaves none behind.
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

// writeFile replaces a file, readable for the user alone, so that a reader
// sees the old text or the new.
func writeFile(name string, text []byte) error {
	file, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer func() { _ = os.Remove(file.Name()) }() // gone already when all went well
	_, err = file.Write(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.Rename(file.Name(), name); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// removeFile removes a file that need not be there.
func removeFile(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("devstack: %w", err)
	}
	return nil
}
