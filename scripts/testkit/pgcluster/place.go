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

// sharedRoot is where data goes that would otherwise lie in a place closed to
// the user that the server runs as, such as a checkout below /root.
var sharedRoot = "/var/lib/modelgateway"

// A place is where the data of a cluster really lies.
type place struct {
	// dir is what the caller named.
	dir string
	// data is the data directory: dir, or elsewhere with dir as a link to it.
	data string
	// isNew is true until there is a cluster.
	isNew bool
}

// locate decides where the data of dir lies, and changes nothing.
//
// The link is made last. So a moved directory without a link is the rest of a
// cluster whose link was deleted, or was never finished: it counts as not there.
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

// moved reports whether the data lies elsewhere than the caller named.
func (p place) moved() bool { return p.data != p.dir }

// finish puts the cluster made in prepared into its place.
func (p place) finish(prepared string) error {
	if err := os.Rename(prepared, p.data); err != nil {
		return fmt.Errorf("pgcluster: %w", err)
	}
	if !p.moved() {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(p.dir), 0o755); err != nil { //nolint:gosec // G301: a directory of the checkout
		return fmt.Errorf("pgcluster: %w", err)
	}
	if err := os.Remove(p.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("pgcluster: %w", err)
	}
	if err := os.Symlink(p.data, p.dir); err != nil {
		return fmt.Errorf("pgcluster: %w", err)
	}
	return nil
}

// Remove deletes the cluster in dir, wherever its data lies, after ending a
// server that still runs in it. That there is none is no error.
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
	for _, name := range []string{p.data, p.data + preparedSuffix, p.dir} {
		if err := os.RemoveAll(name); err != nil {
			return fmt.Errorf("pgcluster: %w", err)
		}
	}
	return nil
}
