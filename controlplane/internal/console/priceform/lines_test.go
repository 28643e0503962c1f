package priceform

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/shared/price"
)

// The console knows the admin API only, so it has names of its own for the kinds of tokens that price.Kinds lists.
func TestEveryKindOfTokensHasALine(t *testing.T) {
	t.Parallel()
	var want, got []string
	for _, k := range price.Kinds {
		if k.Unit == price.Tokens {
			want = append(want, string(k.Line))
		}
	}
	for _, line := range tokenLines {
		got = append(got, line.member)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestChangesNameWhatIsNewChangedAndRemoved(t *testing.T) {
	t.Parallel()
	before := adminclient.CatalogPrice{
		Input:  new("0.10"),
		Output: new("0.40"),
		Images: []adminclient.CatalogUnitPrice{{Size: new("1024x1024"), Price: "0.04"}},
	}
	after := adminclient.CatalogPrice{
		Input:       new("0.12"),
		CachedInput: new("0.05"),
		Output:      new("0.40"),
		ServerTool:  new("0.01"),
	}
	want := []string{
		"input: 0.10 → 0.12 per 1M tokens",
		"cached input: new, 0.05 per 1M tokens",
		"server tool: new, 0.01 per call",
		"image, 1024x1024: 0.04 per image is removed",
	}
	if diff := cmp.Diff(want, Changes(&before, &after)); diff != "" {
		t.Error(diff)
	}
	if got, want := Text(&before), "input 0.10 · output 0.40 · image, 1024x1024 0.04"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
}
