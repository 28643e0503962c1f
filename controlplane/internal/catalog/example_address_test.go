package catalog

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The addresses are those that the providers document. Streams of Claude in clouds have others.
func TestExampleAddressesAreThoseOfTheProviders(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"addresses", "clouds"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			testExampleAddresses(t, file)
		})
	}
}

func testExampleAddresses(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile("../../../scripts/catalog/" + file + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	document := parse(t, string(variable.ReplaceAll(text, []byte("secret"))))
	target, err := document.target()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, m := range target.models {
		for _, r := range m.routes {
			p := target.providers[r.Provider].spec
			for _, f := range r.Formats {
				whole, stream := p.Target(&r, f, false), p.Target(&r, f, true)
				got[p.ID+" "+string(f)+" "+p.URL(whole)] = true
				if stream != whole {
					got[p.ID+" "+string(f)+"-stream "+p.URL(stream)] = true
				}
				if p.Kind == "" && stream != whole {
					t.Errorf("%s: streams have another address", p.ID)
				}
			}
		}
	}
	documented, err := os.ReadFile("../../../scripts/catalog/testdata/" + file + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for line := range strings.Lines(string(documented)) {
		want[strings.TrimSpace(line)] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}
