package archive

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestAFileOfTheArchiveAppearsOnlyWhenItIsComplete(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	names := func() (all []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return all
	}

	broken := errors.New("the database has gone")
	_, err := write(dir, "usage.gz", func(line func([]byte) error) error {
		if err := line([]byte("first")); err != nil {
			return err
		}
		return broken
	})
	if !errors.Is(err, broken) || len(names()) != 0 {
		t.Fatalf("error %v, files %v; want none of a broken export", err, names())
	}

	for _, text := range []string{"first", "second"} { // the second export replaces the first
		sum, err := write(dir, "usage.gz", func(line func([]byte) error) error { return line([]byte(text)) })
		if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(filepath.Join(dir, "usage.gz"))
		if err != nil {
			t.Fatal(err)
		}
		if want := sha256.Sum256(content); !bytes.Equal(sum, want[:]) {
			t.Errorf("the sum of %s is not that of the file", text)
		}
		packed, err := gzip.NewReader(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		lines, err := io.ReadAll(packed)
		if err != nil || string(lines) != text+"\n" {
			t.Errorf("got %q, %v; want a line %s", lines, err, text)
		}
	}
	if got := names(); len(got) != 1 {
		t.Errorf("files %v; want one", got)
	}
}

func TestWholeMonthsAreKept(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		now    string
		months int
		want   string
	}{
		{"2026-03-31T23:59:59Z", 1, "2026-02-01"},
		{"2026-01-01T00:00:00Z", 1, "2025-12-01"},
		{"2026-01-15T00:00:00Z", 13, "2024-12-01"},
		{"2026-03-01T00:30:00+01:00", 1, "2026-01-01"}, // still February in UTC
	} {
		now, err := time.Parse(time.RFC3339, tt.now)
		if err != nil {
			t.Fatal(err)
		}
		if got := keptFrom(now, tt.months).Format(time.DateOnly); got != tt.want {
			t.Errorf("%d months at %s: kept from %s; want %s", tt.months, tt.now, got, tt.want)
		}
	}
}
