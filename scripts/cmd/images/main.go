// Command images builds programs of this repository and writes OCI images of them, without a
// registry and without a container engine (see the package scripts/images).
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"modelgateway/scripts/images"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	var r images.Release
	out := flags.String("out", "bin/images", "directory of the images")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64", "platforms, separated by commas")
	flags.StringVar(&r.Version, "version", "", "version of the programs and tag of the images")
	flags.StringVar(&r.Commit, "commit", "", "hash of the commit")
	created := flags.String("time", "", "time of the commit, as in RFC 3339; the images contain no other time")
	flags.StringVar(&r.Registry, "registry", "localhost", "registry in the names of the images")
	flags.StringVar(&r.Source, "source", "", "URL of the repository, for a label of the images")
	flags.StringVar(&r.Licenses, "licenses", "", "SPDX expression of the licences, for a label of the images")
	if err := flags.Parse(args); err != nil {
		return err //nolint:wrapcheck // the flag package has printed it
	}
	if flags.NArg() == 0 {
		return errors.New("the packages of programs are required")
	}
	var err error
	if r.Created, err = time.Parse(time.RFC3339, *created); err != nil {
		return fmt.Errorf("-time: %w", err)
	}
	chosen, err := images.Platforms(*platforms)
	if err != nil {
		return err
	}
	if err := r.Write(".", *out, chosen, flags.Args()...); err != nil {
		return err
	}
	for _, program := range flags.Args() {
		fmt.Fprintln(os.Stdout, r.Reference(program[strings.LastIndexByte(program, '/')+1:]))
	}
	return nil
}
