package devstack

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxLog is the size in bytes from which a log is put aside at a start.
const maxLog = 16 << 20

// rotateLogs puts large logs of earlier runs aside, replacing those before them.
func (l Layout) rotateLogs() error {
	names, err := filepath.Glob(filepath.Join(filepath.Dir(l.log("x")), "*.log"))
	if err != nil {
		return fmt.Errorf("devstack: %w", err)
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err == nil && info.Size() > maxLog {
			err = os.Rename(name, name+".1")
		}
		if err != nil {
			return fmt.Errorf("devstack: log: %w", err)
		}
	}
	return nil
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
			return fmt.Errorf("the database in %s is from another version of the repository: the migration %s differs. Remove it with: make clean", l.Dir, name)
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
