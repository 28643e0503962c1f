package archive

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// write writes a gzip file of lines and returns its SHA-256. The file gets its name only when it
// is complete and synced; an existing file with the name is replaced.
func write(dir, name string, fill func(line func([]byte) error) error) (sum []byte, err error) {
	file, err := os.CreateTemp(dir, "."+name+"-*")
	if err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	defer func() {
		if err != nil {
			_ = file.Close() // may be closed already
			_ = os.Remove(file.Name())
		}
	}()

	hash := sha256.New()
	buffered := bufio.NewWriterSize(io.MultiWriter(file, hash), 1<<16)
	packed := gzip.NewWriter(buffered)
	if err := fill(func(line []byte) error {
		_, err := packed.Write(append(line, '\n'))
		return err
	}); err != nil {
		return nil, err
	}

	if err := errors.Join(packed.Close(), buffered.Flush(), file.Chmod(0o600), file.Sync(), file.Close()); err != nil {
		return nil, fmt.Errorf("archive: write %s: %w", name, err)
	}
	if err := os.Rename(file.Name(), filepath.Join(dir, name)); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	if err := syncDir(dir); err != nil {
		return nil, err
	}

	return hash.Sum(nil), nil
}

// syncDir syncs a directory, so that new names in it survive a crash.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	return nil
}
