package pgcluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// owner is the user that the server runs as and that owns its files.
type owner struct {
	name     string
	uid, gid uint32
	// switched is true if this process runs as another user.
	switched bool
}

// serverOwner returns the user of this process, or for root the first of postgres and
// nobody that exists.
func serverOwner() (owner, error) {
	if os.Geteuid() != 0 {
		return owner{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}, nil
	}

	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return owner{}, fmt.Errorf("pgcluster: ids of user %s: %w", name, err)
		}
		return owner{
			name:     name,
			uid:      uint32(uid),
			gid:      uint32(gid),
			switched: true,
		}, nil
	}

	return owner{}, errors.New("pgcluster: Postgres refuses to run as root, and there is neither a user postgres nor nobody")
}

// credential returns the credential of a child process that runs as the owner, nil if that
// is the user of this process.
func (o owner) credential() *syscall.Credential {
	if !o.switched {
		return nil
	}
	return &syscall.Credential{Uid: o.uid, Gid: o.gid}
}

// give changes the owner of a file.
func (o owner) give(name string) error {
	if !o.switched {
		return nil
	}
	if err := os.Lchown(name, int(o.uid), int(o.gid)); err != nil {
		return fmt.Errorf("pgcluster: %w", err)
	}
	return nil
}

// makeDir creates a directory that only the owner can read, and its parents.
func (o owner) makeDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // G301: the owner must be able to enter it
		return fmt.Errorf("pgcluster: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("pgcluster: %w", err)
	}
	return o.give(dir)
}

// reaches reports whether the owner may enter dir and all its parents. Missing directories
// count as accessible, because makeDir creates them.
func (o owner) reaches(dir string) bool {
	if !o.switched {
		return true
	}
	for {
		info, err := os.Stat(dir)
		if err == nil && !o.passes(info) || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}

// passes reports whether the execute bit that applies to the owner is set.
func (o owner) passes(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return false
	case stat.Uid == o.uid:
		return info.Mode()&0o100 != 0
	case stat.Gid == o.gid:
		return info.Mode()&0o010 != 0
	default:
		return info.Mode()&0o001 != 0
	}
}
