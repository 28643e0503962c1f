package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// otherInPods are the settings that the chart gives another value than the program's default, because a pod is another
// place than a developer's machine.
var otherInPods = map[string]string{
	"nats.url":        "the program has no default",
	"nats.user":       "a user for each plane",
	"spool.dir":       "the volume of the pod",
	"spool.max_bytes": "four fifths of the volume of the pod",
}

// An operator who has read docs/settings.md need not look for other defaults in the chart.
func TestDefaultsAreThoseOfThePrograms(t *testing.T) {
	t.Parallel()
	all, differing := renderObjects(t, "defaults"), map[string]bool{}
	for _, plane := range planes {
		defaults, types := documentedDefaults(t, plane), settingTypes(t, plane)
		for key, value := range settings(t, all, plane) {
			want := defaults[key]
			got := inWordsOf(types[key], value)
			if strings.HasSuffix(key, "_file") || strings.EqualFold(got, want) { // secrets have no defaults
				continue
			}
			differing[key] = true
			if otherInPods[key] == "" {
				t.Errorf("%s: the chart sets %s to %q; the default of the program is %q", plane, key, got, want)
			}
		}
	}
	for key := range otherInPods {
		if !differing[key] {
			t.Errorf("%s does not differ", key)
		}
	}
}

// documentedDefaults returns the defaults of a plane from docs/settings.md, which a test of the program generates.
func documentedDefaults(t *testing.T, plane string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/settings.md"))
	if err != nil {
		t.Fatal(err)
	}
	section := regexp.MustCompile(`(?s)<!-- begin ` + plane + ` -->.*?<!-- end `).Find(text)
	found := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9_.]+)`[^|]*\\|[^|]*\\| `?([^|`]*)`? \\|").FindAllSubmatch(section, -1) {
		found[string(row[1])] = string(row[2])
	}
	if len(found) < 20 {
		t.Fatalf("%s: %d defaults were found", plane, len(found))
	}
	return found
}

// inWordsOf writes a value of a type as docs/settings.md does.
func inWordsOf(typ string, value any) string {
	text := fmt.Sprint(value)
	if d, err := time.ParseDuration(text); err == nil && typ == "time.Duration" {
		return d.String()
	}
	return text
}
