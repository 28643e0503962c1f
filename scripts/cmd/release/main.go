// Command release writes the files of a release: the packaged chart, archives of the images,
// gwctl for several platforms, the software bills of materials, and their checksums. The same
// commit makes the same bytes on every machine with the same versions of Go and helm.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"modelgateway/scripts/images"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	read := images.Flags(flags)
	var s set
	flags.StringVar(&s.out, "out", "bin/release", "directory of the files; it is emptied first")
	flags.StringVar(&s.helm, "helm", "helm", "program that packages the chart")
	flags.StringVar(&s.root, "root", ".", "folder of the repository")
	if err := flags.Parse(args); err != nil {
		return err //nolint:wrapcheck // the flag package has printed it
	}

	var err error
	if s.release, err = read(); err != nil {
		return err
	}
	if err := s.empty(); err != nil {
		return err
	}

	switch flags.Arg(0) {
	case "chart":
		return s.chart()
	case "all":
		return s.all()
	default:
		return errors.New("the argument is chart or all")
	}
}
