package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
)

// static serves the files of the folder static under a path with their hash, so that browsers keep
// them for ever. The files in css are one style sheet, console.css, in the order of their names.
type static struct {
	prefix string
	files  map[string]asset
}

// asset is a file, and its compressed form unless that is not smaller.
type asset struct{ text, compressed []byte }

// embedded returns the static files of this program. They are compressed once, with the best level.
var embedded = sync.OnceValues(func() (*static, error) { return newStatic(files) })

func newStatic(from fs.FS) (*static, error) {
	texts := map[string][]byte{}
	err := fs.WalkDir(from, "static", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(from, file)
		name := strings.TrimPrefix(file, "static/")
		if path.Dir(name) == "css" {
			name = "console.css"
		}
		texts[name] = append(texts[name], text...)
		return err //nolint:wrapcheck // wrapped below
	})
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}

	s, hash := &static{files: map[string]asset{}}, sha256.New()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		text := texts[name]
		_, _ = fmt.Fprintf(hash, "%s %d %s", name, len(text), text)
		s.files[name] = asset{text, compress(text)}
	}

	s.prefix = "/console/static/" + hex.EncodeToString(hash.Sum(nil)[:6]) + "/"
	return s, nil
}

func compress(text []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
	_, _ = w.Write(text)
	_ = w.Close()
	if b.Len() >= len(text) {
		return nil
	}
	return b.Bytes()
}

func (s *static) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, s.prefix)
	file, ok := s.files[name]
	if !ok {
		http.NotFound(w, r)
		return
	}

	h := w.Header()
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	h.Set("Vary", "Accept-Encoding")
	text := file.text
	if file.compressed != nil && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		text = file.compressed
	}

	_, _ = w.Write(text)
}
