package devstack

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// settingRow matches a row of docs/settings.md with a setting's variable. A secret has a second name, that of its file.
var settingRow = regexp.MustCompile("^\\| `[^`]+`(, `[^`]+_file`)? \\| `(MGW_[A-Z0-9_]+)` \\|")

// settingSection matches the line before the settings of a program.
var settingSection = regexp.MustCompile("(?i)^#+ .*(control|data) ?plane")

// knownSettings returns the variables of each program's settings, by its binary, from the reference of
// the settings, which is generated from the programs.
func (l Layout) knownSettings() (map[string][]string, error) {
	text, err := os.ReadFile(filepath.Join(l.Root, "docs", "settings.md"))
	if err != nil {
		return nil, fmt.Errorf("devstack: %w", err)
	}
	known := map[string][]string{}
	binary := ""
	for line := range strings.Lines(string(text)) {
		if match := settingSection.FindStringSubmatch(line); match != nil {
			binary = strings.ToLower(match[1]) + "plane"
		}
		if match := settingRow.FindStringSubmatch(line); match != nil {
			known[binary] = append(known[binary], match[2])
			if match[1] != "" {
				known[binary] = append(known[binary], match[2]+"_FILE")
			}
		}
	}
	return known, nil
}

// withUserSettings returns the settings of the stack for a program after those of the user.
func (s *Stack) withUserSettings(binary string, stack []string) []string {
	own, _ := userSettings(os.Environ(), s.known, binary, stack)
	return slices.Concat(own, stack)
}

// ownVariables are the prefixes of variables that are no settings of the planes.
var ownVariables = []string{"MGW_DEV_", "MGW_BENCH_", "MGW_TEST_", CatalogVariable, "MGW_POSTGRES_BIN"}

// userSettings returns the variables of an environment that are settings of a program, and
// those that no program knows. The settings of the stack take precedence: addresses, secrets and
// directories cannot be replaced, neither directly nor by a file.
func userSettings(environ []string, known map[string][]string, binary string, stack []string) (own, unknown []string) {
	taken := map[string]bool{}
	for _, entry := range stack {
		name, _, _ := strings.Cut(entry, "=")
		plain := strings.TrimSuffix(name, "_FILE")
		taken[plain], taken[plain+"_FILE"] = true, true
	}

	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		switch {
		case !strings.HasPrefix(name, "MGW_"),
			slices.ContainsFunc(ownVariables, func(prefix string) bool { return strings.HasPrefix(name, prefix) }):
		case slices.Contains(known[binary], name):
			if !taken[name] {
				own = append(own, entry)
			}
		case !slices.ContainsFunc(slices.Collect(maps.Values(known)), func(names []string) bool { return slices.Contains(names, name) }):
			unknown = append(unknown, name)
		}
	}

	return own, unknown
}
