package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"time"

	"modelgateway/scripts/images"
	"modelgateway/scripts/sbom"
)

const (
	chartName = "modelgateway"
	chartDir  = "deploy/helm/modelgateway"
	gwctl     = "./controlplane/cmd/gwctl"
)

// The images are of these programs and platforms. Operators run gwctl on their own machines, too.
var (
	inImages       = []string{"./controlplane/cmd/controlplane", gwctl, "./dataplane/cmd/dataplane"}
	imagePlatforms = []images.Platform{{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"}}
	gwctlPlatforms = append([]images.Platform{{OS: "darwin", Arch: "amd64"}, {OS: "darwin", Arch: "arm64"}}, imagePlatforms...)
)

// set is the set of files of a release.
type set struct {
	release         images.Release
	root, out, helm string
}

// empty creates the directory of the files, or removes files of an earlier release from it.
func (s set) empty() error {
	if err := os.RemoveAll(s.out); err != nil {
		return fmt.Errorf("remove the earlier files: %w", err)
	}
	if err := os.MkdirAll(s.out, 0o755); err != nil { //nolint:gosec // files for everybody
		return fmt.Errorf("create the directory: %w", err)
	}
	return nil
}

func (s set) all() error {
	for _, part := range []func() error{s.chart, s.images, s.gwctl, s.checksums} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// name returns the path of a file of the release.
func (s set) name(program, rest string) string {
	return filepath.Join(s.out, program+"-"+s.release.Version+rest)
}

// write writes a file of the release.
func write(name string, content []byte, mode fs.FileMode) error {
	if err := os.WriteFile(name, content, mode); err != nil {
		return fmt.Errorf("write a file of the release: %w", err)
	}
	return nil
}

// chart packages the chart, whose default tag of the images is the version.
func (s set) chart() error {
	dir, err := os.MkdirTemp("", "chart")
	if err != nil {
		return fmt.Errorf("folder of the chart: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	source := filepath.Join(dir, chartName)
	if err := s.copyChart(source); err != nil {
		return err
	}

	v := s.release.Version
	cmd := exec.Command(s.helm, "package", source, "--version", v, "--app-version", v, "--destination", dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("package the chart: %w\n%s", err, out)
	}

	packaged, err := os.ReadFile(filepath.Join(dir, chartName+"-"+v+".tgz"))
	if err != nil {
		return fmt.Errorf("read the packaged chart: %w", err)
	}

	content, err := withTime(packaged, s.release.Created)
	if err != nil {
		return fmt.Errorf("set the times of the packaged chart: %w", err)
	}

	return write(s.name(chartName, ".tgz"), content, 0o644)
}

// copyChart copies the chart, and adds the address of the repository.
func (s set) copyChart(to string) error {
	if err := os.CopyFS(to, os.DirFS(filepath.Join(s.root, chartDir))); err != nil {
		return fmt.Errorf("copy the chart: %w", err)
	}
	if s.release.Source == "" {
		return nil
	}
	name := filepath.Join(to, "Chart.yaml")
	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read the chart: %w", err)
	}
	return write(name, fmt.Appendf(text, "home: %[1]q\nsources: [%[1]q]\n", s.release.Source), 0o644)
}

// withTime returns a compressed archive with the same files of another time; helm sets that of its run.
func withTime(archive []byte, at time.Time) ([]byte, error) {
	compressed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller does
	}

	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	r, w := tar.NewReader(compressed), tar.NewWriter(zip)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err //nolint:wrapcheck // the caller does
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		if err := add(w, tar.Header{Name: h.Name, Mode: h.Mode, ModTime: at}, content); err != nil {
			return nil, err
		}
	}

	if err := errors.Join(w.Close(), zip.Close()); err != nil {
		return nil, err
	}

	return out.Bytes(), nil
}

// add adds a file to an archive.
func add(w *tar.Writer, h tar.Header, content []byte) error {
	h.Typeflag, h.Size, h.Format = tar.TypeReg, int64(len(content)), tar.FormatPAX
	h.ModTime = h.ModTime.UTC().Truncate(time.Second)
	if err := w.WriteHeader(&h); err != nil {
		return err //nolint:wrapcheck // the caller does
	}
	_, err := w.Write(content)
	return err
}

// images writes the images, for each program an archive of its OCI layout and archives for docker load, with the bills of
// materials.
func (s set) images() error {
	dir, err := os.MkdirTemp("", "images")
	if err != nil {
		return fmt.Errorf("folder of the images: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := s.release.Write(s.root, dir, imagePlatforms, inImages...); err != nil {
		return err
	}

	for _, program := range inImages {
		name := path.Base(program)
		layout, err := archive(filepath.Join(dir, name), s.release.Created)
		if err != nil {
			return fmt.Errorf("archive of the image of %s: %w", name, err)
		}
		if err := write(s.name(name, ".oci.tar"), layout, 0o644); err != nil {
			return err
		}

		for _, p := range imagePlatforms {
			content, err := os.ReadFile(filepath.Join(dir, name+"-"+p.OS+"-"+p.Arch+".tar"))
			if err != nil {
				return fmt.Errorf("read an image: %w", err)
			}
			if err := write(s.name(name, "-"+p.OS+"-"+p.Arch+".docker.tar"), content, 0o644); err != nil {
				return err
			}
			if err := s.bill(program, p); err != nil {
				return err
			}
		}
	}

	return nil
}

// archive returns an archive of the files of a folder, in the order of their names.
func archive(dir string, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	files := os.DirFS(dir)
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err //nolint:wrapcheck // the caller does
		}
		return add(w, tar.Header{Name: name, Mode: 0o644, ModTime: at}, content)
	})
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, err
	}

	return out.Bytes(), nil
}

// bill writes the bill of materials of a program.
func (s set) bill(program string, p images.Platform) error {
	document, err := sbom.Describe(s.root, program, s.release.Version, s.release.Created.UTC().Format(time.RFC3339), p.Environ()...)
	if err != nil {
		return err
	}
	return write(s.name(document.Program, "-"+p.OS+"-"+p.Arch+".cdx.json"), document.JSON, 0o644)
}

// gwctl writes the programs for the machines of operators.
func (s set) gwctl() error {
	for _, p := range gwctlPlatforms {
		dir, err := os.MkdirTemp("", "gwctl")
		if err != nil {
			return fmt.Errorf("folder of the program: %w", err)
		}

		files, err := s.release.Programs(s.root, dir, p, gwctl)
		if err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}

		content, err := os.ReadFile(files[gwctl])
		if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
			return fmt.Errorf("read the program: %w", err)
		}
		if err := write(s.name("gwctl", "-"+p.OS+"-"+p.Arch), content, 0o755); err != nil {
			return err
		}
		if err := s.bill(gwctl, p); err != nil {
			return err
		}
	}
	return nil
}

// checksums writes SHA256SUMS, which sha256sum --check reads.
func (s set) checksums() error {
	entries, err := os.ReadDir(s.out)
	if err != nil {
		return fmt.Errorf("list the files: %w", err)
	}
	var out bytes.Buffer
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(s.out, e.Name()))
		if err != nil {
			return fmt.Errorf("read a file of the release: %w", err)
		}
		fmt.Fprintf(&out, "%x  %s\n", sha256.Sum256(content), e.Name())
	}
	return write(filepath.Join(s.out, "SHA256SUMS"), out.Bytes(), 0o644)
}
