package console

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// vendored are the checksums of the files of others: uPlot 1.6.32. static/vendor/update.sh fetches another version.
var vendored = map[string]string{
	"uPlot.esm.js":  "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
	"uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
	"LICENSE":       "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}

func TestVendoredFilesAreThosePinned(t *testing.T) {
	t.Parallel()
	for name, want := range vendored {
		text, err := fs.ReadFile(files, "static/vendor/"+name)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s has the checksum %x; want %s", name, sum, want)
		}
	}
}

func TestStaticFilesAreKeptByBrowsersAndCompressed(t *testing.T) {
	t.Parallel()
	s, err := newStatic(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, encoding := range []string{"", "gzip"} {
		r := httptest.NewRequest(http.MethodGet, s.prefix+"console.css", nil)
		r.Header.Set("Accept-Encoding", encoding)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		var body io.Reader = w.Body
		if got := w.Header().Get("Content-Encoding"); got != encoding {
			t.Errorf("asked for %q, got %q", encoding, got)
		} else if got != "" {
			if body, err = gzip.NewReader(w.Body); err != nil {
				t.Fatal(err)
			}
		}
		text, err := io.ReadAll(body)
		if err != nil || !strings.Contains(string(text), ":root") || !strings.Contains(string(text), "form.edit") {
			t.Errorf("%q: the style sheet is not whole: %v", encoding, err)
		}
		if !strings.Contains(w.Header().Get("Cache-Control"), "immutable") || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/css") {
			t.Errorf("got %v", w.Header())
		}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, s.prefix+"nothing.js", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("a file that does not exist: got %d", w.Code)
	}
}

// What every page loads stays light.
func TestStaticFilesAreLight(t *testing.T) {
	t.Parallel()
	s, err := newStatic(files)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, file := range s.files {
		sum += len(file.compressed)
	}
	if sum > 100<<10 {
		t.Errorf("all files together have %d compressed bytes; want at most 100 KiB", sum)
	}
}
