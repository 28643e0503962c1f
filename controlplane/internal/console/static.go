package console

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
)

// static serves the files of the folder static under a path with their hash, so that browsers keep
// them for ever.
type static struct {
	prefix string
	files  http.Handler
}

func newStatic(from fs.FS) (*static, error) {
	folder, err := fs.Sub(from, "static")
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	h := sha256.New()
	err = fs.WalkDir(folder, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(folder, path)
		_, _ = fmt.Fprintf(h, "%s %d %s", path, len(text), text)
		return err //nolint:wrapcheck // wrapped below
	})
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	prefix := "/console/static/" + hex.EncodeToString(h.Sum(nil)[:6]) + "/"
	return &static{prefix, http.StripPrefix(prefix, http.FileServerFS(folder))}, nil
}

// ServeHTTP implements http.Handler.
func (s *static) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	s.files.ServeHTTP(w, r)
}
