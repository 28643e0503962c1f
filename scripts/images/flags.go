package images

import (
	"flag"
	"fmt"
	"time"
)

// Flags adds the flags that describe a release. The result returns it after they are parsed.
func Flags(flags *flag.FlagSet) func() (Release, error) {
	var r Release
	flags.StringVar(&r.Version, "version", "", "version of the programs and tag of the images")
	flags.StringVar(&r.Commit, "commit", "", "hash of the commit")
	created := flags.String("time", "", "time of the commit, as in RFC 3339; the output contains no other time")
	flags.StringVar(&r.Registry, "registry", "localhost", "registry in the names of the images")
	flags.StringVar(&r.Source, "source", "", "URL of the repository, for a label of the images")
	flags.StringVar(&r.Licenses, "licenses", "", "SPDX expression of the licences, for a label of the images")
	return func() (Release, error) {
		var err error
		if r.Created, err = time.Parse(time.RFC3339, *created); err != nil {
			return r, fmt.Errorf("-time: %w", err)
		}
		return r, nil
	}
}
