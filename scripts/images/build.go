package images

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"modelgateway/scripts/sbom"
)

// A Platform is an operating system and an architecture in the words of the go command.
type Platform struct{ OS, Arch string }

// String returns the platform as OS/Arch.
func (p Platform) String() string { return p.OS + "/" + p.Arch }

// Platforms reads a list such as linux/amd64,linux/arm64.
func Platforms(list string) ([]Platform, error) {
	var all []Platform
	for text := range strings.SplitSeq(list, ",") {
		system, arch, ok := strings.Cut(text, "/")
		if !ok {
			return nil, fmt.Errorf("%q is not a platform such as linux/amd64", text)
		}
		all = append(all, Platform{system, arch})
	}
	return all, nil
}

// Environ returns the variables of the go command for the platform. It sets every variable that changes the output, so that
// the environment of a developer does not.
func (p Platform) Environ() []string {
	return []string{
		"GOOS=" + p.OS, "GOARCH=" + p.Arch, "GOAMD64=v1", "GOARM64=v8.0", "CGO_ENABLED=0", "GOFIPS140=off",
		"GOFLAGS=-trimpath", // an empty one would leave that of go env -w
	}
}

// A Release describes what is built.
type Release struct {
	Version  string    // also the tag of the images
	Commit   string    // hash of the commit
	Created  time.Time // time of the commit
	Registry string    // registry and folder of the repositories, such as registry.example.com/gateway
	Source   string    // URL of the repository; empty leaves the label out
	Licenses string    // SPDX expression; empty leaves the label out
}

// Programs builds programs, given by their folders below root, for a platform, each as the go.mod of its module says. It writes
// them into dir and returns the files by the folders given.
func (r Release) Programs(root, dir string, p Platform, packages ...string) (map[string]string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("folder of the programs: %w", err)
	}

	// A revision from version control would differ between a clone and an archive of the same commit.
	args := []string{
		"build", "-trimpath", "-buildvcs=false", "-o", dir + "/",
		"-ldflags", "-s -w -buildid= -X main.release=" + r.Version + " -X modelgateway/shared/platform/buildinfo.commit=" + r.Commit,
	}

	files := map[string]string{}
	for _, name := range packages {
		module, pkg, err := sbom.Module(root, name)
		if err != nil {
			return nil, err
		}
		cmd := exec.Command("go", append(args, pkg)...)
		cmd.Dir = module
		cmd.Env = append(append(os.Environ(), p.Environ()...), "GOWORK=off") // a tool of the workspace must not change versions
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("build %s for %s: %w\n%s", name, p, err, stderr.Bytes())
		}
		files[name] = filepath.Join(dir, path.Base(name))
	}

	return files, nil
}
