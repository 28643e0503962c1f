package subject

import (
	"regexp"
	"testing"
)

func FuzzCatalogKey(f *testing.F) {
	for _, name := range []string{"gpt-4o", "vendor/model:free", "a b.c*d>e", "", "=", "模型"} {
		f.Add(name)
	}
	valid := regexp.MustCompile(`^model\.[-/_=a-zA-Z0-9]*$`)
	f.Fuzz(func(t *testing.T, name string) {
		key := CatalogKey(KindModel, name)
		if !valid.MatchString(key) {
			t.Errorf("%q is not a valid bucket key", key)
		}
		kind, back, ok := ParseCatalogKey(key)
		if !ok || kind != KindModel || back != name {
			t.Errorf("%q read back as %q, %q, %v", name, kind, back, ok)
		}
	})
}

func TestParseCatalogKeyRejectsMalformedKeys(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"head", "model.=", "model.=4", "model.=ZZ"} {
		if _, _, ok := ParseCatalogKey(key); ok {
			t.Errorf("%q was accepted", key)
		}
	}
}
