package catalogpages_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/price"
)

const pricePath = "/console/models/example-small/price"

var formValue = regexp.MustCompile(`name="(price\.[^"]+)"(?: type="[^"]*")? value="([^"]*)"`)

// priceFields returns the fields of the form of a price that are not empty.
func priceFields(page string) map[string]string {
	fields := map[string]string{}
	for _, m := range formValue.FindAllStringSubmatch(page, -1) {
		if m[2] != "" {
			fields[m[1]] = m[2]
		}
	}
	return fields
}

func TestFormOfAPriceHasARowForEveryKindOfUsage(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	for _, path := range []string{pricePath, "/console/catalog/new-model"} {
		_, page := w.SignedIn(servertest.BootstrapToken).Get(path)
		for _, kind := range price.Kinds {
			name := "price." + string(kind.Line)
			switch kind.Unit {
			case price.ImageUnit, price.SecondUnit:
				name += "[0].price"
			case price.CallUnit:
				name = "price.server_tool"
			}
			if !strings.Contains(page, `name="`+name+`"`) {
				t.Errorf("%s has no field %s", path, name)
			}
		}
	}
}

// What the form shows, sent as it is, is the price in force with all its parts.
func TestFormKeepsEveryPartOfAPrice(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	want := adminclient.CatalogPrice{
		Input: new("1.00"), CachedInput: new("0.123456789"), Output: new("2.50"), ServerTool: new("0.01"), AudioOut: new("0.00"),
		Tiers: []adminclient.CatalogTier{
			{AboveInput: 200_000, Input: new("2.00"), Output: new("5.00")},
			{AboveInput: 1_000_000, Output: new("6.00")},
		},
		ServiceTiers: []adminclient.CatalogServiceTier{{
			Name: "priority", Input: "3.00", CachedInput: new("0.30"), Output: "7.50", AudioOut: new("1.00"),
			Tiers: []adminclient.CatalogTier{{AboveInput: 200_000, Input: new("6.00"), Output: new("9.00")}, {AboveInput: 1_000_000, Input: new("6.50"), Output: new("9.50")}},
		}},
		Images: []adminclient.CatalogUnitPrice{{Size: new("1024x1024"), Quality: new("high"), Price: "0.10"}, {Price: "0.05"}},
		Secondary: []adminclient.CatalogSecondary{
			{Kind: adminclient.CatalogSecondaryKindImageTool, Input: new("3.00"), Output: new("30.00"), Images: []adminclient.CatalogUnitPrice{{Price: "0.04"}}},
			{Kind: adminclient.CatalogSecondaryKindImageTool, Model: new("painter"), Input: new("4.00"), Output: new("40.00")},
		},
	}
	_, err := w.API.CreatePrice(t.Context(), "example-small", nil, adminclient.PriceCreate{Price: want})
	servertest.Check(t, err)

	_, page := b.Get(pricePath)
	values := consoletest.HiddenFields(page)
	for name, value := range priceFields(page) {
		values = append(values, name, value)
	}
	values = append(values, "price.secondary[0].kind", "image_tool", "price.secondary[1].kind", "image_tool", "days", "0") // chosen ones have no attribute value
	if _, review := b.Post(pricePath, append(values, "step", "review")...); !strings.Contains(review, "No amount differs from the price in force.") {
		t.Errorf("a price that was not touched: got %s", review)
	}

	// The first tier is emptied, so the second one becomes the first.
	for i := 0; i < len(values); i += 2 {
		if strings.HasPrefix(values[i], "price.tiers[0].") {
			values[i+1] = ""
		}
	}
	if answer, page := b.Post(pricePath, append(values, "step", "do")...); answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("set: got %d %s", answer.StatusCode, page)
	}
	want.Tiers = want.Tiers[1:]
	now, err := w.API.GetModel(t.Context(), "example-small")
	servertest.Check(t, err)
	if diff := cmp.Diff(want, now.Value.Price); diff != "" {
		t.Errorf("the price (-want +got):\n%s", diff)
	}
}

// A problem stands at the field in which the value was entered, also behind an entry that was left empty.
func TestProblemOfAPriceStandsAtItsField(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	for name, value := range map[string]string{
		"price.input":                "-1",
		"price.cached_input":         "much",
		"price.output":               "1e3",
		"price.tiers[1].input":       "-2",
		"price.images[1].price":      "x",
		"price.tiers[0].above_input": "many",
	} {
		_, page := b.Get(pricePath)
		values := append(consoletest.HiddenFields(page), "step", "do")
		entered := map[string]string{"price.input": "1.00", "price.output": "2.00"}
		entered[name] = value
		for name, value := range entered {
			values = append(values, name, value)
		}
		answer, page := b.Post(pricePath, values...)
		at := regexp.MustCompile(`name="` + regexp.QuoteMeta(name) + `"[^>]* aria-invalid="true"[^<]*></span><span class="field-error"`)
		if answer.StatusCode != http.StatusBadRequest && answer.StatusCode != http.StatusUnprocessableEntity || !at.MatchString(page) {
			t.Errorf("%s %q: got %d %s", name, value, answer.StatusCode, page)
		}
	}
}

// An address fills the form in, with as many entries as it has and without what the price in force has beside.
func TestAddressFillsTheFormOfAPriceIn(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	query := url.Values{"price.input": {"3.00"}, "price.output": {""}, "price.tiers[3].input": {"9.00"}, "price.tiers[4000].input": {"1"}, "price.images[999999999999].price": {"1"}}
	answer, page := w.SignedIn(servertest.BootstrapToken).Get(pricePath + "?" + query.Encode())
	want := map[string]string{"price.input": "3.00", "price.tiers[3].input": "9.00"}
	if diff := cmp.Diff(want, priceFields(page)); answer.StatusCode != http.StatusOK || diff != "" {
		t.Errorf("got %d (-want +got):\n%s", answer.StatusCode, diff)
	}
}
