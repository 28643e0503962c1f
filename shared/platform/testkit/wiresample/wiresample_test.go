package wiresample_test

import (
	"io/fs"
	"testing"

	"modelgateway/shared/platform/testkit/wiresample"
)

func TestEverySampleHasAnExpectedUsage(t *testing.T) {
	t.Parallel()
	expected := wiresample.ExpectedUsage(t)
	err := fs.WalkDir(wiresample.Files(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			if _, ok := expected[name]; !ok {
				t.Errorf("expected-usage.json does not mention %s", name)
			}
			delete(expected, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range expected {
		t.Errorf("expected-usage.json mentions %s, which is missing", name)
	}
}
