package images

import (
	"fmt"
	"maps"
	"os"
	"path"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"modelgateway/scripts/sbom"
)

// user is the numeric user and group of the images. Kubernetes can check that a number is not root, but not a name.
const user = "65532:65532"

// labels are the labels of an image and the annotations of its manifests (OCI image specification).
func (r Release) labels(program string) map[string]string {
	const prefix = "org.opencontainers.image."
	labels := map[string]string{
		prefix + "title":    program,
		prefix + "version":  r.Version,
		prefix + "revision": r.Commit,
		prefix + "created":  r.Created.UTC().Format(time.RFC3339),
	}
	if r.Source != "" {
		labels[prefix+"source"] = r.Source
	}
	if r.Licenses != "" {
		labels[prefix+"licenses"] = r.Licenses
	}
	return labels
}

// image returns the image of a program for a platform. file is the built program, document its bill of materials.
func (r Release) image(p Platform, file string, document sbom.Document) (v1.Image, error) {
	program, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}

	authorities, err := certificates()
	if err != nil {
		return nil, err
	}

	name := path.Base(file)
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, content := range []struct {
		name string
		mode int64
		text []byte
	}{
		{certificatesFile, 0o644, authorities},
		{"usr/share/sbom/" + name + ".cdx.json", 0o644, document.JSON},
		{name, 0o755, program},
	} {
		layer, err := fileLayer(content.name, content.mode, content.text)
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{
			Created: v1.Time{Time: r.Created.UTC()}, CreatedBy: "scripts/cmd/images", Comment: "/" + content.name,
		}})
		if err != nil {
			return nil, fmt.Errorf("add a layer: %w", err)
		}
	}

	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("configuration of the image: %w", err)
	}

	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = p.OS, p.Arch, p.variant()
	config.Created = v1.Time{Time: r.Created.UTC()}
	config.Config = v1.Config{
		Entrypoint: []string{"/" + name},
		User:       user,
		WorkingDir: "/",
		Labels:     r.labels(name),
		Env:        []string{"PATH=/"},
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, fmt.Errorf("configuration of the image: %w", err)
	}

	annotated, ok := mutate.Annotations(image, r.labels(name)).(v1.Image)
	if !ok {
		return nil, fmt.Errorf("annotations of the image of %s were not set", name)
	}

	return annotated, nil
}

// variant is the variant of the architecture, as container engines write it.
func (p Platform) variant() string {
	if p.Arch == "arm64" {
		return "v8"
	}
	return ""
}

// index returns the index of the images of a program.
func (r Release) index(program string, images map[Platform]v1.Image, order []Platform) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range order {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        images[p],
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.OS, Architecture: p.Arch, Variant: p.variant()}},
		})
	}
	annotated, ok := mutate.Annotations(index, maps.Clone(r.labels(program))).(v1.ImageIndex)
	if !ok {
		return nil, fmt.Errorf("annotations of the index of %s were not set", program)
	}
	return annotated, nil
}
