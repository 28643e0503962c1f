package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// certificatesFile is where programs written in Go look for certificate authorities first.
const certificatesFile = "etc/ssl/certs/ca-certificates.crt"

// certificates returns the certificate authorities of Mozilla's list in PEM. It leaves out those that are trusted with
// constraints only, because a file cannot express them.
func certificates() ([]byte, error) {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, fmt.Errorf("encode a certificate: %w", err)
		}
	}
	return out.Bytes(), nil
}

// fileLayer returns a layer with one file and the folders above it, all owned by root.
func fileLayer(name string, mode int64, content []byte) (v1.Layer, error) {
	var out bytes.Buffer
	if err := writeTar(&out, name, mode, content); err != nil {
		return nil, fmt.Errorf("layer with %s: %w", name, err)
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching, tarball.WithCompressionLevel(gzip.DefaultCompression),
	)
	if err != nil {
		return nil, fmt.Errorf("layer with %s: %w", name, err)
	}
	return layer, nil
}

func writeTar(out io.Writer, name string, mode int64, content []byte) error {
	w := tar.NewWriter(out)
	// Layers without times are the same in all versions while their content is.
	header := tar.Header{Format: tar.FormatUSTAR, ModTime: time.Unix(0, 0)}
	parts := strings.Split(path.Dir(name), "/")
	for i := range parts {
		if parts[i] == "." {
			continue
		}
		header.Typeflag, header.Name, header.Mode = tar.TypeDir, strings.Join(parts[:i+1], "/")+"/", 0o755
		if err := w.WriteHeader(&header); err != nil {
			return err //nolint:wrapcheck // the caller does
		}
	}

	header.Typeflag, header.Name, header.Mode, header.Size = tar.TypeReg, name, mode, int64(len(content))
	if err := w.WriteHeader(&header); err != nil {
		return err //nolint:wrapcheck // the caller does
	}
	if _, err := w.Write(content); err != nil {
		return err
	}

	return w.Close() //nolint:wrapcheck // the caller does
}
