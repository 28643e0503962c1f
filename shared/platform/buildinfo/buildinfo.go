// Package buildinfo returns the version of the running program.
package buildinfo

import "runtime/debug"

// Version returns release, which the linker sets for a release build. If that
// is empty it returns "devel-" and the commit that was built, or "devel" if the
// commit is unknown.
func Version(release string) string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return "devel-" + s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return "devel"
}
