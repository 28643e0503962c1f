package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"modelgateway/scripts/images"
)

const root = "../../.."

// helm returns the path of the pinned helm. The first build takes minutes.
func helm(t *testing.T) string {
	t.Helper()
	cmd := exec.Command(root+"/scripts/tool.sh", "helm")
	cmd.Stderr = os.Stderr
	program, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(program))
}

// packaged writes the chart into a new folder and returns its content.
func packaged(t *testing.T, helm string, created time.Time) []byte {
	t.Helper()
	s := set{release: images.Release{Version: "1.2.3", Created: created, Source: "https://git.example.com/gateway"}, root: root, helm: helm, out: t.TempDir()}
	if err := s.chart(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(s.out, "modelgateway-1.2.3.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestPackagedChartHasTheVersionOfTheImages(t *testing.T) {
	program, at := helm(t), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	content := packaged(t, program, at)
	if !bytes.Equal(content, packaged(t, program, at)) {
		t.Error("the same commit made different bytes")
	}
	compressed, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	names, r := map[string]string{}, tar.NewReader(compressed)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		names[h.Name] = string(text)
		if !h.ModTime.Equal(at) {
			t.Errorf("%s is of %s; want the time of the commit", h.Name, h.ModTime)
		}
	}
	if chart := names["modelgateway/Chart.yaml"]; !strings.Contains(chart, "\nversion: 1.2.3") || !strings.Contains(chart, "appVersion: 1.2.3") ||
		!strings.Contains(chart, "home: https://git.example.com/gateway\n") || !strings.Contains(chart, "sources:\n- https://git.example.com/gateway\n") {
		t.Errorf("Chart.yaml is\n%s", chart)
	}
	file := filepath.Join(t.TempDir(), "chart.tgz")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program, "template", "release", file, "--kube-version", "1.33.0", "--set", "image.registry=registry.example.com").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "image: registry.example.com/modelgateway/dataplane:1.2.3") {
		t.Errorf("the packaged chart renders no image of the version: %v\n%s", err, out)
	}
}

func TestChecksumsNameEveryFile(t *testing.T) {
	s := set{out: t.TempDir()}
	for _, name := range []string{"b", "a"} {
		if err := write(filepath.Join(s.out, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.checksums(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(s.out, "SHA256SUMS"))
	const want = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb  a\n" +
		"3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d  b\n"
	if err != nil || string(got) != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestUnknownPartIsRefused(t *testing.T) {
	err := run([]string{"-out", t.TempDir(), "-version", "1.2.3", "-time", "2026-01-02T03:04:05Z", "everything"})
	if err == nil || !strings.Contains(err.Error(), "chart or all") {
		t.Errorf("error is %v", err)
	}
}
