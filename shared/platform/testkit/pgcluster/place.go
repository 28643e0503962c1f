package pgcluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// sharedRoot holds the data of clusters whose directory the server's user cannot enter,
// such as one in a clone below /root.
var sharedRoot = "/var/lib/modelgateway"

// A place is the location of a cluster's data.
type place struct {
	// dir is the directory in the caller's configuration.
	dir string
	// data is the data directory: dir, or another directory that dir is a link to.
	data string
	// isNew is true if there is no cluster yet.
	isNew bool
}

// locate returns the location of the data of dir, and changes nothing.
//
// The link is created last. A data directory below sharedRoot without a link therefore
// belongs to a cluster whose link was deleted or that is incomplete. It is ignored here,
// and removed when another cluster is created (removeOrphans).
func locate(dir string, o owner) (place, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return place{}, fmt.Errorf("pgcluster: %w", err)
	}

	p := place{dir: dir, data: dir}
	info, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p.isNew = true
		if !o.reaches(filepath.Dir(dir)) {
			sum := sha256.Sum256([]byte(dir))
			p.data = filepath.Join(sharedRoot, filepath.Base(dir)+"-"+hex.EncodeToString(sum[:4]))
		}
	case err != nil:
		return place{}, fmt.Errorf("pgcluster: %w", err)
	case info.Mode()&fs.ModeSymlink != 0:
		if p.data, err = os.Readlink(dir); err != nil {
			return place{}, fmt.Errorf("pgcluster: %w", err)
		}
		if _, err := os.Stat(p.data); errors.Is(err, fs.ErrNotExist) {
			p.isNew = true
		}
	}

	return p, nil
}

// moved reports whether the data is not in the caller's directory.
func (p place) moved() bool { return p.data != p.dir }

// finish moves the complete cluster in prepared to its place.
func (p place) finish(prepared string) error {
	if p.moved() {
		unlock, err := lockShared()
		if err != nil {
			return err
		}
		defer unlock()
	}

	if err := os.Rename(prepared, p.data); err != nil {
		return fmt.Errorf("pgcluster: %w", err)
	}
	if !p.moved() {
		return nil
	}

	if err := os.MkdirAll(filepath.Dir(p.dir), 0o755); err != nil { //nolint:gosec // G301: a directory of the clone
		return fmt.Errorf("pgcluster: %w", err)
	}
	if err := os.Remove(p.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("pgcluster: %w", err)
	}
	if err := os.Symlink(p.data, p.dir); err != nil {
		return fmt.Errorf("pgcluster: %w", err)
	}
	if err := os.WriteFile(p.data+linkSuffix, []byte(p.dir), 0o600); err != nil {
		return fmt.Errorf("pgcluster: %w", err)
	}

	return nil
}

// Remove ends a server that still runs in dir and deletes the cluster and its data. A
// missing cluster is not an error.
func Remove(ctx context.Context, dir string) error {
	o, err := serverOwner()
	if err != nil {
		return err
	}

	p, err := locate(dir, o)
	if err != nil {
		return err
	}
	if err := endLeftovers(ctx, p.data); err != nil {
		return err
	}

	for _, name := range []string{p.data, p.data + preparedSuffix, p.data + linkSuffix, p.dir} {
		if err := os.RemoveAll(name); err != nil {
			return fmt.Errorf("pgcluster: %w", err)
		}
	}

	return nil
}
