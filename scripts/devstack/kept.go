package devstack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// maxLog is the size in bytes from which a log is put aside.
const maxLog = 16 << 20

// rotateEvery is how often the sizes of the logs are looked at.
const rotateEvery = 10 * time.Second

// keepLogsSmall puts large logs aside until ctx ends.
func (l Layout) keepLogsSmall(ctx context.Context, say func(string, ...any)) {
	ticks := time.NewTicker(rotateEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		if err := l.rotateLogs(); err != nil {
			say("%v", err)
		}
	}
}

// rotateLogs puts large logs aside, replacing those before them.
func (l Layout) rotateLogs() error {
	names, err := filepath.Glob(filepath.Join(filepath.Dir(l.log("x")), "*.log"))
	if err != nil {
		return fmt.Errorf("devstack: %w", err)
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err == nil && info.Size() > maxLog {
			err = putAside(name)
		}
		if err != nil {
			return fmt.Errorf("devstack: log: %w", err)
		}
	}
	return nil
}

// putAside copies a log and empties it. The process that writes it keeps its file, which it appends to. Lines that it writes
// between the end of the copy and the emptying are lost.
func putAside(name string) (err error) {
	log, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err //nolint:wrapcheck // the caller does
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	aside, err := os.OpenFile(name+".1", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err //nolint:wrapcheck // the caller does
	}
	defer func() { err = errors.Join(err, aside.Close()) }()
	if _, err := io.Copy(aside, log); err != nil {
		return err //nolint:wrapcheck // the caller does
	}
	return log.Truncate(0) //nolint:wrapcheck // the caller does
}

// digest returns the SHA-256 of a text in hexadecimal.
func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// recorded returns the content of a file that an earlier run wrote, "" if there is none.
func recorded(name string) (string, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("devstack: %w", err)
	}
	return string(text), nil
}

// migrations returns a line for each migration of the repository: its name and digest.
func (l Layout) migrations() (string, error) {
	names, err := filepath.Glob(filepath.Join(l.Root, "migrations", "*.sql"))
	if err != nil || len(names) == 0 {
		return "", fmt.Errorf("devstack: the migrations of the repository are missing: %w", errors.Join(err, fs.ErrNotExist))
	}
	var lines strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("devstack: %w", err)
		}
		fmt.Fprintf(&lines, "%s %s\n", filepath.Base(name), digest(text))
	}
	return lines.String(), nil
}

// checkSchema returns an error if a migration that the database has was changed since: it is not
// applied again, so the programs would fail with errors of the database.
func (l Layout) checkSchema() error {
	applied, err := recorded(l.schema())
	if err != nil {
		return err
	}
	now, err := l.migrations()
	if err != nil {
		return err
	}
	for line := range strings.Lines(applied) {
		if name, _, _ := strings.Cut(line, " "); !strings.Contains(now, line) {
			return fmt.Errorf(
				"the database in %s is from another version of the repository: the migration %s differs. Remove it with: make clean",
				l.Dir,
				name,
			)
		}
	}
	return nil
}

// recordSchema records the migrations that the database has.
func (l Layout) recordSchema() error {
	now, err := l.migrations()
	if err != nil {
		return err
	}
	return writeFile(l.schema(), []byte(now))
}
