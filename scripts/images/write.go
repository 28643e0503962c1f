package images

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"modelgateway/scripts/sbom"
)

// Write builds the packages of programs for the platforms and writes their images into dir, which it creates:
//
//   - PROGRAM/ is an OCI layout with an index of the images of all platforms, tagged with the version;
//   - PROGRAM-OS-ARCH.tar is the image of one platform for docker load and ctr images import.
func (r Release) Write(root, dir string, platforms []Platform, packages ...string) error {
	if r.Version == "" || r.Commit == "" || r.Created.IsZero() || r.Registry == "" {
		return errors.New("a release needs a version, a commit with its time, and a registry")
	}

	images := map[string]map[Platform]v1.Image{}
	for _, p := range platforms {
		built, err := r.build(root, p, packages)
		if err != nil {
			return err
		}
		for program, image := range built {
			if images[program] == nil {
				images[program] = map[Platform]v1.Image{}
			}
			images[program][p] = image
		}
	}

	for program, all := range images {
		if err := r.writeProgram(dir, path.Base(program), all, platforms); err != nil {
			return err
		}
	}

	return nil
}

// build returns the images of the programs for one platform by their packages.
func (r Release) build(root string, p Platform, packages []string) (map[string]v1.Image, error) {
	dir, err := os.MkdirTemp("", "images")
	if err != nil {
		return nil, fmt.Errorf("folder of the programs: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	files, err := r.Programs(root, dir, p, packages...)
	if err != nil {
		return nil, err
	}

	images := map[string]v1.Image{}
	for program, file := range files {
		document, err := sbom.Describe(root, program, r.Version, r.Created.UTC().Format(time.RFC3339), p.Environ()...)
		if err != nil {
			return nil, err
		}
		if images[program], err = r.image(p, file, document); err != nil {
			return nil, err
		}
	}

	return images, nil
}

// writeProgram writes the layout and the archives of a program.
func (r Release) writeProgram(dir, program string, images map[Platform]v1.Image, platforms []Platform) error {
	index, err := r.index(program, images, platforms)
	if err != nil {
		return err
	}

	folder := filepath.Join(dir, program)
	if err := os.RemoveAll(folder); err != nil { // blobs of earlier builds
		return fmt.Errorf("remove the layout of %s: %w", program, err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // images for everybody
		return fmt.Errorf("create the layout of %s: %w", program, err)
	}

	written, err := layout.Write(folder, empty.Index)
	if err != nil {
		return fmt.Errorf("write the layout of %s: %w", program, err)
	}

	tag := map[string]string{"org.opencontainers.image.ref.name": r.Version}
	if err := written.AppendIndex(index, layout.WithAnnotations(tag)); err != nil {
		return fmt.Errorf("write the layout of %s: %w", program, err)
	}

	reference, err := name.NewTag(r.Reference(program), name.StrictValidation)
	if err != nil {
		return fmt.Errorf("name of the image: %w", err)
	}

	for _, p := range platforms {
		file := filepath.Join(dir, program+"-"+p.OS+"-"+p.Arch+".tar")
		if err := tarball.WriteToFile(file, reference, images[p]); err != nil {
			return fmt.Errorf("write %s: %w", file, err)
		}
	}

	return nil
}

// Reference returns the name of a program's image, as the chart names it with image.registry and the default repositories.
func (r Release) Reference(program string) string {
	return r.Registry + "/modelgateway/" + program + ":" + r.Version
}
