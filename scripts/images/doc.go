// Package images builds the programs of the product and OCI images of them, without a
// registry and without a container engine.
//
// An image has three layers: the certificate authorities of Mozilla's list, the software
// bill of materials of the program (CycloneDX, in /usr/share/sbom), and the program, which
// is static and the entrypoint. It runs as user 65532, needs no writable file system and
// has no shell. The same commit makes the same bytes on every machine with the same
// version of Go.
package images
