package sbom

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// A Document is the bill of materials of a program.
type Document struct {
	Program string // name of the program
	JSON    []byte // CycloneDX 1.6
}

// Describe returns the document of a program, given by its folder below root, the folder of the repository. The program is
// built as the go.mod of its module says, without the workspace. version is that of the program and of this
// repository's modules, created the time of the version as in RFC 3339; the document contains no other time. environ
// has variables of the go command in addition to the environment, such as GOOS=linux.
func Describe(root, program, version, created string, environ ...string) (Document, error) {
	b, err := readBuild(root, program, environ)
	if err != nil {
		return Document{}, err
	}
	text, err := encode(describe(b, version, created))
	return Document{path.Base(b.program), text}, err
}

// describe makes the document of a program. The same arguments make the same document.
func describe(b build, version, created string) *cdx.BOM {
	root := "program:" + b.program
	ref := func(modulePath string) string { return purl(b, modulePath, version) }
	document := cdx.NewBOM()
	document.Metadata = &cdx.Metadata{
		Timestamp: created,
		Component: &cdx.Component{
			BOMRef:  root,
			Type:    cdx.ComponentTypeApplication,
			Name:    path.Base(b.program),
			Version: version,
			Properties: &[]cdx.Property{
				{Name: "cdx:gomod:build:env:GOARCH", Value: b.platform["GOARCH"]},
				{Name: "cdx:gomod:build:env:GOOS", Value: b.platform["GOOS"]},
			},
		},
	}

	components := []cdx.Component{}
	dependencies := []cdx.Dependency{{Ref: root, Dependencies: &[]string{ref(b.module)}}}
	for _, modulePath := range slices.Sorted(maps.Keys(b.modules)) {
		m := b.modules[modulePath].source()
		component := cdx.Component{
			BOMRef:     ref(modulePath),
			PackageURL: ref(modulePath),
			Type:       cdx.ComponentTypeLibrary,
			Name:       m.Path,
			Version:    versionOf(m, version),
			Scope:      cdx.ScopeRequired,
		}
		if hash, known := strings.CutPrefix(m.Sum, "h1:"); known {
			component.Hashes = hashes(hash)
		}

		components = append(components, component)
		uses := []string{}
		for _, used := range slices.Sorted(maps.Keys(b.uses[modulePath])) {
			uses = append(uses, ref(used))
		}

		dependencies = append(dependencies, cdx.Dependency{Ref: ref(modulePath), Dependencies: &uses})
	}

	document.Components, document.Dependencies = &components, &dependencies
	return document
}

// versionOf is the version of a module; this repository's modules have that of the repository.
func versionOf(m module, repository string) string {
	if m.Version == "" || m.Replace != nil && m.Replace.Version == "" {
		return repository
	}
	return m.Version
}

// purl is the package URL of a module.
func purl(b build, modulePath, repository string) string {
	m := b.modules[modulePath].source()
	return "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(versionOf(m, repository), "+", "%2B")
}

// hashes is the hash of go.sum as CycloneDX tools for Go write it: SHA-256 over the list of
// the module's files and their hashes.
func hashes(sum string) *[]cdx.Hash {
	raw, err := base64.StdEncoding.DecodeString(sum)
	if err != nil {
		return nil
	}
	return &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(raw)}}
}

// encode writes a document as JSON. Its serial number is made from its content.
func encode(document *cdx.BOM) ([]byte, error) {
	document.SerialNumber = ""
	content, err := encodeJSON(document)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	id := sum[:16]
	id[6] = id[6]&0x0f | 0x80 // version 8 of RFC 9562: the maker chooses the other bits
	id[8] = id[8]&0x3f | 0x80
	document.SerialNumber = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	return encodeJSON(document)
}

func encodeJSON(document *cdx.BOM) ([]byte, error) {
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(document, cdx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("encode the document: %w", err)
	}
	return out.Bytes(), nil
}
