// Package settingstest checks a program's settings in tests.
package settingstest

import (
	"os"
	"testing"

	"github.com/spf13/pflag"

	"modelgateway/shared/platform/settings"
)

// CheckReference fails the test if the section of the settings reference at
// path differs from the settings of defaults, which is a struct. With update it
// rewrites the section instead.
func CheckReference(t *testing.T, path, section string, defaults any, update bool) {
	t.Helper()
	stored, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	want, err := settings.ReplaceSection(string(stored), section, settings.Reference(defaults))
	if err != nil {
		t.Fatal(err)
	}
	if want == string(stored) {
		return
	}
	if !update {
		t.Fatalf("section %q of %s is out of date: run this test with -update", section, path)
	}
	if err := os.WriteFile(path, []byte(want), 0o600); err != nil { // the file exists and keeps its mode
		t.Fatal(err)
	}
}

// CheckFlags fails the test if a setting of defaults, which is a struct, cannot
// be loaded or has no usage text that is a sentence, or no
// reason to touch it.
func CheckFlags(t *testing.T, defaults any, load func(flags *pflag.FlagSet) error) {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	settings.AddFlags(flags, defaults)
	flags.VisitAll(func(f *pflag.Flag) {
		if n := len(f.Usage); f.Name != "config" && (n == 0 || f.Usage[n-1] != '.') {
			t.Errorf("the usage of --%s is not a sentence: %q", f.Name, f.Usage)
		}
	})
	for _, key := range settings.WithoutReason(defaults) {
		t.Errorf("%s is neither required nor says when to touch it, or both", key)
	}
	if err := load(flags); err != nil {
		t.Errorf("load the defaults: %v", err)
	}
}
