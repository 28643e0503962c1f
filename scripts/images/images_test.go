package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"modelgateway/scripts/sbom"
)

const (
	root    = "../.."
	program = "./dataplane/cmd/dataplane"
)

var (
	platforms = []Platform{{"linux", "amd64"}, {"linux", "arm64"}}
	release   = Release{
		Version: "1.2.3", Commit: "0123456789abcdef0123456789abcdef01234567",
		Created:  time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Registry: "registry.example.com/gateway", Source: "https://git.example.com/gateway", Licenses: "MIT",
	}
)

// TestImages builds once and checks the images with all tests below.
func TestImages(t *testing.T) {
	dir := t.TempDir()
	if err := release.Write(root, dir, platforms, program); err != nil {
		t.Fatal(err)
	}
	t.Run("another folder makes the same bytes", func(t *testing.T) { checkReproducible(t, dir) })
	for _, p := range platforms {
		t.Run(p.String(), func(t *testing.T) {
			image := imageOf(t, dir, p)
			t.Run("is valid", func(t *testing.T) {
				if err := validate.Image(image); err != nil {
					t.Error(err)
				}
			})
			t.Run("has labels and an unprivileged user", func(t *testing.T) { checkConfig(t, image, p) })
			t.Run("has only static programs and data of root", func(t *testing.T) { checkFiles(t, image, p) })
			t.Run("archive is the same image", func(t *testing.T) { checkArchive(t, dir, image, p) })
		})
	}
}

// imageOf returns the image of a platform from the layout.
func imageOf(t *testing.T, dir string, p Platform) v1.Image {
	t.Helper()
	outer, err := layout.ImageIndexFromPath(filepath.Join(dir, "dataplane"))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := outer.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(manifest.Manifests); n != 1 {
		t.Fatalf("the layout has %d entries; want one index", n)
	}
	if tag := manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; tag != release.Version {
		t.Errorf("the tag in the layout is %q", tag)
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	inner, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(inner.Manifests) != len(platforms) {
		t.Errorf("the index has %d images; want %d", len(inner.Manifests), len(platforms))
	}
	for _, m := range inner.Manifests {
		if m.Platform.OS == p.OS && m.Platform.Architecture == p.Arch {
			image, err := index.Image(m.Digest)
			if err != nil {
				t.Fatal(err)
			}
			return image
		}
	}
	t.Fatalf("there is no image for %s", p)
	return nil
}

func checkConfig(t *testing.T, image v1.Image, p Platform) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != p.OS || config.Architecture != p.Arch || !config.Created.Equal(release.Created) {
		t.Errorf("platform %s/%s, created %s", config.OS, config.Architecture, config.Created)
	}
	want := v1.Config{
		User: "65532:65532", Entrypoint: []string{"/dataplane"}, WorkingDir: "/", Env: []string{"PATH=/"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "dataplane",
			"org.opencontainers.image.version":  "1.2.3",
			"org.opencontainers.image.revision": release.Commit,
			"org.opencontainers.image.created":  "2026-01-02T03:04:05Z",
			"org.opencontainers.image.source":   release.Source,
			"org.opencontainers.image.licenses": "MIT",
		},
	}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Labels, manifest.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

func checkFiles(t *testing.T, image v1.Image, p Platform) {
	t.Helper()
	content := mutate.Extract(image)
	defer func() { _ = content.Close() }()
	files, r := map[string][]byte{}, tar.NewReader(content)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Mode&0o022 != 0 {
			t.Errorf("%s belongs to %d:%d with mode %o; want files that only root can write", h.Name, h.Uid, h.Gid, h.Mode)
		}
		if h.Typeflag == tar.TypeReg {
			if files[h.Name], err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(files) != 3 {
		t.Errorf("the image has %d files; want the program, its bill of materials and the authorities", len(files))
	}
	if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(files["etc/ssl/certs/ca-certificates.crt"]) || bytes.Count(files["etc/ssl/certs/ca-certificates.crt"], []byte("BEGIN")) < 100 {
		t.Error("the image has no certificate authorities")
	}
	var document struct {
		Metadata struct {
			Component struct {
				Name, Version string
				Properties    []struct{ Name, Value string }
			}
		}
	}
	if err := json.Unmarshal(files["usr/share/sbom/dataplane.cdx.json"], &document); err != nil {
		t.Fatal(err)
	}
	if c := document.Metadata.Component; c.Name != "dataplane" || c.Version != "1.2.3" || c.Properties[0].Value != p.Arch {
		t.Errorf("the bill of materials is of %+v", c)
	}
	checkProgram(t, files["dataplane"], p)
}

func checkProgram(t *testing.T, text []byte, p Platform) {
	t.Helper()
	binary, err := elf.NewFile(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[p.Arch]; binary.Machine != want {
		t.Errorf("the program is for %s", binary.Machine)
	}
	for _, segment := range binary.Progs {
		if segment.Type == elf.PT_INTERP || segment.Type == elf.PT_DYNAMIC {
			t.Errorf("the program has a segment %s, so it is not static", segment.Type)
		}
	}
	if !bytes.Contains(text, []byte(release.Commit)) {
		t.Error("the program does not contain its commit")
	}
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte(here)) {
		t.Errorf("the program contains the folder %s", here)
	}
	if p.OS != runtime.GOOS || p.Arch != runtime.GOARCH {
		return
	}
	file := filepath.Join(t.TempDir(), "dataplane")
	if err := os.WriteFile(file, text, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(file, "--version").CombinedOutput()
	if err != nil || string(out) != "dataplane 1.2.3\n" {
		t.Errorf("--version prints %q, %v", out, err)
	}
}

func checkArchive(t *testing.T, dir string, image v1.Image, p Platform) {
	t.Helper()
	archive, err := tarball.ImageFromPath(filepath.Join(dir, "dataplane-"+p.OS+"-"+p.Arch+".tar"), nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := archive.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	if want, err := image.ConfigName(); err != nil || got != want {
		t.Errorf("the archive has image %s, %v; want %s", got, err, want)
	}
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) {
		return os.Open(filepath.Join(dir, "dataplane-"+p.OS+"-"+p.Arch+".tar"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"registry.example.com/gateway/modelgateway/dataplane:1.2.3"}, manifest[0].RepoTags); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
}

// checkReproducible builds a copy of the repository in another folder and compares all files.
func checkReproducible(t *testing.T, dir string) {
	t.Helper()
	folder, other := filepath.Join(t.TempDir(), "another folder"), t.TempDir()
	copyRepository(t, folder)
	if err := release.Write(folder, other, platforms, program); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sums(t, dir), sums(t, other)); diff != "" {
		t.Errorf("(-here +there):\n%s", diff)
	}
}

// copyRepository copies the files that git tracks or would add.
func copyRepository(t *testing.T, to string) {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	list, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, but not committed
		} else if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(to, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// sums returns the hashes of the files below dir by their names.
func sums(t *testing.T, dir string) map[string][sha256.Size]byte {
	t.Helper()
	all := map[string][sha256.Size]byte{}
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		all[name] = sha256.Sum256(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAReleaseWithoutACommitIsRefused(t *testing.T) {
	err := Release{Version: "1.2.3", Registry: "localhost"}.Write(root, t.TempDir(), platforms, program)
	if err == nil || !strings.Contains(err.Error(), "commit") {
		t.Errorf("error is %v", err)
	}
}

func TestAPlatformWithoutAnArchitectureIsRefused(t *testing.T) {
	if _, err := Platforms("linux/amd64,linux"); err == nil || !strings.Contains(err.Error(), `"linux"`) {
		t.Errorf("error is %v", err)
	}
}

// The versions are those of the program's go.mod. In the workspace, a tool could raise them.
func TestProgramsAreBuiltAsTheirModuleSays(t *testing.T) {
	dir, pkg, err := sbom.Module(root, program)
	if err != nil || filepath.Clean(dir) != filepath.Clean(root+"/dataplane") || pkg != "./cmd/dataplane" {
		t.Errorf("the module of %s is %s with the package %s, %v", program, dir, pkg, err)
	}
	if _, _, err := sbom.Module(root, "./docs"); err == nil {
		t.Error("a folder outside of all modules has a module")
	}
}
