package catalog

import (
	"encoding/json"
	"strings"
	"testing"

	"modelgateway/shared/price"
)

func TestZeroIsAPriceOfProviderRunTools(t *testing.T) {
	t.Parallel()
	for member, want := range map[string]string{``: "", `, server_tool: "0"`: "0.00", `, server_tool: "0.01"`: "0.01"} {
		doc := "currency: USD\nmodels:\n- {id: m, type: text, price: {input: 1, output: 1" + member + "}}"
		target, err := parse(t, doc).target()
		if err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		sheet := target.models["m"].sheet
		if sheet.HasServerToolPrice() != (want != "") {
			t.Errorf("%q: has a price: %v", member, sheet.HasServerToolPrice())
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
			t.Errorf("%q: is exported as %q; want %q", member, got, want)
		}
	}
}

// A document can have a rate for each kind of tokens, under its name.
func TestEachKindOfTokensCanHaveARate(t *testing.T) {
	t.Parallel()
	for _, kind := range price.Kinds {
		if kind.Unit != price.Tokens {
			continue
		}
		var entry RateEntry
		if err := json.Unmarshal([]byte(`{"`+string(kind.Line)+`": "1.5"}`), &entry); err != nil {
			t.Fatal(err)
		}
		found := price.Line("")
		for _, member := range entry.lines() {
			if *member.rate != nil {
				found += member.line
			}
		}
		if found != kind.Line {
			t.Errorf("%s: got the rate %q", kind.Line, found)
		}
	}
}
