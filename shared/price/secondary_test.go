package price

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSecondaryModelsHaveTheirOwnLines(t *testing.T) {
	t.Parallel()
	sheet := &Sheet{
		Rates: Rates{Input: 1_000_000, Output: 2_000_000},
		Secondary: []SecondaryPrice{
			{Kind: ImageTool, Rates: Rates{Input: 5_000_000, ImageIn: 10_000_000, Output: 40_000_000}, Images: []UnitPrice{{Price: 7}}},
			{Kind: Advisor, Rates: Rates{Input: 3_000_000, Output: 15_000_000}},
			{Kind: Advisor, Model: "wise", Rates: Rates{Input: 30_000_000, CachedInput: 1_000_000, Output: 150_000_000}},
		},
	}
	own := []Item{{Input, 10, 1_000_000, perMillion}, {Output, 1, 2_000_000, perMillion}}
	tests := []struct {
		name   string
		second Secondary
		want   []Item
		cost   int64
	}{
		{"none", Secondary{}, nil, 0},
		{
			"images and tokens",
			Secondary{Kind: ImageTool, Model: "painter", Input: 60, ImageIn: 20, Output: 272, ImageOut: 272, Images: 1},
			[]Item{{"image_tool.input", 40, 5_000_000, perMillion}, {"image_tool.image_in", 20, 10_000_000, perMillion}, {"image_tool.output", 272, 40_000_000, perMillion}, {"image_tool.images", 1, 7, 1}},
			200 + 200 + 10880 + 7,
		},
		{"any model", Secondary{Kind: Advisor, Model: "other", Input: 2}, []Item{{"advisor.input", 2, 3_000_000, perMillion}}, 6},
		{
			"price for one model",
			Secondary{Kind: Advisor, Model: "wise", CachedInput: 4, Output: 2, Reasoning: 1},
			[]Item{{"advisor.cached_input", 4, 1_000_000, perMillion}, {"advisor.output", 2, 150_000_000, perMillion}},
			304,
		},
	}
	for _, tt := range tests {
		items, cost, err := Receipt(&Usage{Input: 10, Output: 1, Secondary: tt.second}, sheet)
		if diff := cmp.Diff(append(own[:2:2], tt.want...), items); diff != "" || err != nil || int64(cost) != 12+tt.cost {
			t.Errorf("%s: cost %d, %v; want %d; -want +got:\n%s", tt.name, cost, err, 12+tt.cost, diff)
		}
	}
	if _, err := Cost(&Usage{Secondary: Secondary{Kind: SVG, Output: 1}}, sheet); !errors.Is(err, ErrUnpriced) {
		t.Errorf("a kind without a price: got %v", err)
	}
	if sheet.HasSecondaryPrice(SVG) || !sheet.HasSecondaryPrice(Advisor) || (&Sheet{Secondary: sheet.Secondary[2:]}).HasSecondaryPrice(Advisor) {
		t.Error("HasSecondaryPrice differs from the prices for any model")
	}
}

func TestValidateRejectsInvalidSecondaryPrices(t *testing.T) {
	t.Parallel()
	rates := Rates{Input: 1, Output: 1}
	for name, second := range map[string][]SecondaryPrice{
		"kind": {{Kind: "sound", Rates: rates}}, "twice": {{Kind: SVG, Rates: rates}, {Kind: SVG, Rates: rates}}, "nothing": {{Kind: SVG}}, "negative": {{Kind: SVG, Rates: Rates{Input: -1}}},
	} {
		if err := (&Sheet{Rates: rates, Secondary: second}).Validate(); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	if err := (&Sheet{Rates: rates, Secondary: []SecondaryPrice{{Kind: SVG, Rates: rates}, {Kind: SVG, Model: "m", Rates: rates}}}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestAppendMembersEqualsEncodingJSON(t *testing.T) {
	t.Parallel()
	u := Usage{Input: 1, Quality: "high", Secondary: Secondary{"svg", `m"`, 1, 2, 3, 4, 5, 6, 7, 8, 9}}
	want, err := json.Marshal(u)
	if err != nil {
		t.Fatal(err)
	}
	if got := append(u.AppendMembers([]byte("{")), '}'); string(got) != string(want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
