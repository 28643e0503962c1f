package pgcluster

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// BinaryVariable names the environment variable that holds the directory of
// the Postgres server binaries. If it is set, no other directory is searched.
const BinaryVariable = "MGW_POSTGRES_BIN"

// OldestVersion is the oldest accepted major version of Postgres.
const OldestVersion = 14

// systemDirs are patterns of the directories that distributions install the server
// binaries to without adding them to PATH.
var systemDirs = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin",
}

// ErrUnusable is wrapped by the errors about a directory that holds no
// complete Postgres server of an accepted version.
var ErrUnusable = errors.New("not a usable Postgres installation")

// NotFoundError reports that the machine has no usable Postgres server. Its text contains
// the commands that install one.
type NotFoundError struct {
	// Searched lists the searched places and the problems found there.
	Searched []string
}

// Error returns a message with the commands that install Postgres.
func (e *NotFoundError) Error() string {
	return "pgcluster: no Postgres server binaries found (" + strings.Join(e.Searched, "; ") + ").\n" +
		"On Debian or Ubuntu run:\n" +
		"    " + strings.Join(installCommands, "\n    ") + "\n" +
		"On other systems install Postgres " + strconv.Itoa(OldestVersion) + " or newer. If its server binaries are not in PATH, set\n" +
		"    " + BinaryVariable + "=/directory/that/holds/initdb/and/postgres"
}

// Binaries is an installation of the Postgres server.
type Binaries struct {
	// Dir holds at least initdb and postgres.
	Dir string
	// Version is the major version, such as 15.
	Version int
}

func (b Binaries) path(name string) string { return filepath.Join(b.Dir, name) }

// Find returns the installation to use: the one in the directory of BinaryVariable, else
// the one in PATH, else the newest one in the directories of distributions. If there is
// none, the error is a *NotFoundError.
func Find() (Binaries, error) {
	if dir := os.Getenv(BinaryVariable); dir != "" {
		b, err := inspect(dir)
		if err != nil {
			return Binaries{}, fmt.Errorf("pgcluster: %s: %w", BinaryVariable, err)
		}
		return b, nil
	}
	return find(pathDirs(), systemDirs)
}

// find returns the first usable installation in dirs, else the newest that the patterns
// match.
func find(dirs, patterns []string) (Binaries, error) {
	missing := &NotFoundError{Searched: []string{"PATH"}}
	for _, dir := range dirs {
		b, err := inspect(dir)
		if err == nil {
			return b, nil
		}
		missing.Searched = append(missing.Searched, err.Error())
	}

	var found []Binaries
	for _, pattern := range patterns {
		missing.Searched = append(missing.Searched, pattern)
		matches, err := filepath.Glob(pattern)
		if err != nil {
			return Binaries{}, fmt.Errorf("pgcluster: pattern %s: %w", pattern, err)
		}
		for _, dir := range matches {
			b, err := inspect(dir)
			if err != nil {
				missing.Searched = append(missing.Searched, err.Error())
				continue
			}
			found = append(found, b)
		}
	}

	if len(found) == 0 {
		return Binaries{}, missing
	}

	return slices.MaxFunc(found, func(a, b Binaries) int { return cmp.Compare(a.Version, b.Version) }), nil
}

// pathDirs returns the directories of the server binaries in PATH. A link in
// /usr/local/bin may point into a directory with the rest of the server, so the directory
// of the target comes first and that of the link second.
func pathDirs() []string {
	var dirs []string
	for _, name := range []string{"postgres", "pg_ctl"} {
		file, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if target, err := filepath.EvalSymlinks(file); err == nil {
			dirs = append(dirs, filepath.Dir(target))
		}
		dirs = append(dirs, filepath.Dir(file))
	}
	return slices.Compact(dirs)
}

// inspect returns the installation in dir, or an error that wraps ErrUnusable.
func inspect(dir string) (Binaries, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Binaries{}, fmt.Errorf("pgcluster: %w", err)
	}

	b := Binaries{Dir: dir}
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := exec.LookPath(b.path(name)); err != nil {
			return Binaries{}, fmt.Errorf("%s has no %s: %w", dir, name, ErrUnusable)
		}
	}

	out, err := exec.Command(b.path("postgres"), "--version").Output()
	if err != nil {
		return Binaries{}, fmt.Errorf("%s --version: %w: %w", b.path("postgres"), err, ErrUnusable)
	}
	if b.Version, err = parseVersion(string(out)); err != nil {
		return Binaries{}, fmt.Errorf("%s: %w: %w", dir, err, ErrUnusable)
	}
	if b.Version < OldestVersion {
		return Binaries{}, fmt.Errorf("%s is version %d, older than %d: %w", dir, b.Version, OldestVersion, ErrUnusable)
	}

	return b, nil
}

// parseVersion returns the major version in "postgres (PostgreSQL) 15.18 (Debian …)".
func parseVersion(text string) (int, error) {
	_, rest, ok := strings.Cut(text, "(PostgreSQL) ")
	digits := strings.IndexFunc(rest+" ", func(r rune) bool { return r < '0' || r > '9' })
	if !ok || digits == 0 {
		return 0, fmt.Errorf("no version in %q", text)
	}
	version, err := strconv.Atoi(rest[:digits])
	if err != nil {
		return 0, fmt.Errorf("version in %q: %w", text, err)
	}
	return version, nil
}
