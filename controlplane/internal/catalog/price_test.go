package catalog

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestZeroIsAPriceOfProviderRunTools(t *testing.T) {
	t.Parallel()
	for price, want := range map[string]string{``: "", `, server_tool: "0"`: "0.00", `, server_tool: "0.01"`: "0.01"} {
		doc := "currency: USD\nmodels:\n- {id: m, type: text, price: {input: 1, output: 1" + price + "}}"
		target, err := parse(t, doc).target()
		if err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		sheet := target.models["m"].sheet
		if sheet.HasServerToolPrice() != (want != "") {
			t.Errorf("%q: has a price: %v", price, sheet.HasServerToolPrice())
		}
		entry, got := PriceEntryOf(&sheet), ""
		if entry.ServerTool != nil {
			text, err := json.Marshal(entry.ServerTool)
			if err != nil {
				t.Fatal(err)
			}
			got = strings.Trim(string(text), `"`)
		}
		if got != want {
			t.Errorf("%q: is exported as %q; want %q", price, got, want)
		}
	}
}
