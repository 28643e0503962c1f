// Command images builds programs of this repository and writes OCI images of them, without a
// registry and without a container engine (see the package scripts/images).
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

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
	release := images.Flags(flags)
	root := flags.String("root", ".", "folder of the repository")
	out := flags.String("out", "bin/images", "directory of the images")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64", "platforms, separated by commas")
	if err := flags.Parse(args); err != nil {
		return err //nolint:wrapcheck // the flag package has printed it
	}
	if flags.NArg() == 0 {
		return errors.New("the packages of programs are required")
	}

	r, err := release()
	if err != nil {
		return err
	}

	chosen, err := images.Platforms(*platforms)
	if err != nil {
		return err
	}
	if err := r.Write(*root, *out, chosen, flags.Args()...); err != nil {
		return err
	}

	for _, program := range flags.Args() {
		fmt.Fprintln(os.Stdout, r.Reference(program[strings.LastIndexByte(program, '/')+1:]))
	}

	return nil
}
