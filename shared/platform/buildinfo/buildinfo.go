// Package buildinfo returns the version and the commit of the running program.
package buildinfo

import "runtime/debug"

// commit is set by the linker for a release build, which has no information of version control.
var commit = ""

// Version returns release, which the linker sets for a release build. If that
// is empty it returns "devel-" and the commit that was built, or "devel" if the
// commit is unknown.
func Version(release string) string {
	if release != "" {
		return release
	}
	if revision := Commit(); revision != "" {
		return "devel-" + revision[:min(12, len(revision))]
	}
	return "devel"
}

// Commit returns the hash of the commit that was built, or "" if it is unknown.
func Commit() string {
	if commit != "" {
		return commit
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return ""
}
