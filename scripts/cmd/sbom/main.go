// Command sbom writes the software bill of materials of programs: a CycloneDX document
// for each, with the modules and the standard library that the program is built from.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"modelgateway/scripts/sbom"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
	out := flags.String("out", "bin/sbom", "directory of the documents, NAME.cdx.json for a program NAME")
	root := flags.String("root", ".", "folder of the repository")
	version := flags.String("version", "", "version of the programs and of this repository's modules")
	created := flags.String("time", "", "time of the version, as in RFC 3339; the documents contain no other time")
	if err := flags.Parse(args); err != nil {
		return err //nolint:wrapcheck // the flag package has printed it
	}
	if *version == "" || *created == "" || flags.NArg() == 0 {
		return errors.New("-version, -time and the folders of programs are required")
	}
	if err := os.MkdirAll(*out, 0o755); err != nil { //nolint:gosec // documents for everybody
		return fmt.Errorf("create the directory of the documents: %w", err)
	}

	for _, program := range flags.Args() {
		document, err := sbom.Describe(*root, program, *version, *created)
		if err != nil {
			return err
		}
		file := filepath.Join(*out, document.Program+".cdx.json")
		if err := os.WriteFile(file, document.JSON, 0o644); err != nil { //nolint:gosec // a document for everybody
			return fmt.Errorf("write the document: %w", err)
		}
	}

	return nil
}
