package catalogpages

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/priceform"
	"modelgateway/controlplane/internal/console/view"
)

// previewField chooses the days for which a new price is compared with what was charged.
func previewField() kit.Field {
	return kit.Field{
		Name:     "days",
		Label:    "Compute what it would have charged",
		Kind:     "select",
		Value:    "7",
		Required: true,
		Options: []kit.Option{
			{Value: "1", Text: "in the last day"},
			{Value: "7", Text: "in the last 7 days"},
			{Value: "31", Text: "in the last 31 days"},
			{Value: "0", Text: "not at all"},
		},
		Hint: "The review shows it. It reads every request of the model in that time.",
	}
}

// previewed is the number of accounts that a review names.
const previewed = 5

// preview tells what a price would have charged in the past days that the form names, one sentence each.
func preview(r *kit.Request, model string, price *adminclient.CatalogPrice, in *kit.Input) ([]string, error) {
	text := in.Text("days")
	if text == "" || text == "0" {
		return nil, nil
	}

	days, err := strconv.Atoi(text)
	if err != nil {
		return nil, kit.Invalid("days", "must be an integer")
	}

	answer, err := r.API.PreviewPrices(r.Context(), model, adminclient.PricePreviewCreate{Price: *price, Days: &days})
	if refused, ok := errors.AsType[*adminclient.Error](err); ok &&
		(refused.StatusCode == http.StatusTooManyRequests || refused.StatusCode == http.StatusUnprocessableEntity) {
		return []string{"What it would have charged was not computed: " + refused.Problem.Title + "."}, nil
	}

	if err != nil {
		return nil, err
	}

	texts, err := previewText(r, answer.Value, days)
	if err != nil {
		return nil, err
	}

	missing, err := dropped(r, answer.Value.From)
	return append(texts, missing...), err
}

// dropped tells which months since a time have no requests any more, so that a preview does not count them.
func dropped(r *kit.Request, from time.Time) (texts []string, err error) {
	const form = "2006-01"
	params := &adminclient.ListUsageMonthsParams{Limit: new(kit.PageSize)}
	for {
		answer, err := r.API.ListUsageMonths(r.Context(), params)
		if err != nil {
			return nil, err
		}
		for _, m := range answer.Value.Data {
			if m.DroppedAt != nil && m.Month >= from.UTC().Format(form) {
				texts = append(
					texts,
					"The requests of "+m.Month+" are not counted: the month was archived, and its requests are no longer stored here.",
				)
			}
		}
		if answer.Value.NextCursor == nil {
			return texts, nil
		}
		params.Cursor = answer.Value.NextCursor
	}
}

func previewText(r *kit.Request, p *adminclient.PricePreview, days int) ([]string, error) {
	span := fmt.Sprintf("In the last %d days", days)
	if days == 1 {
		span = "In the last day"
	}
	if p.Requests == 0 && p.UnpricedRequests == 0 {
		return []string{span + " there were no requests for the model."}, nil
	}

	they := "they"
	if p.Requests == 1 {
		they = "it"
	}

	texts := []string{
		fmt.Sprintf(
			"%s, %s of %s %s charged %s %s. By this price %s would have been charged %s %s (%s).",
			span,
			number(p.Requests, "request"),
			number(int64(p.AccountCount), "account"),
			were(p.Requests),
			p.Charged,
			p.Currency,
			they,
			p.Previewed,
			p.Currency,
			signed(p.Change),
		),
		fmt.Sprintf(
			"Providers charge %s %s for the calls whose cost is known: the margin was %s, by this price it would have been %s. "+
				"Left out: %s of unknown cost, with %s of the charges.",
			p.ProviderCost,
			p.Currency,
			p.Margin,
			p.PreviewedMargin,
			number(p.UnknownCalls, "call"),
			p.UnknownCharged,
		),
	}
	if p.UnpricedRequests > 0 {
		texts = append(texts, fmt.Sprintf("Not counted: %s, charged %s %s. The price has no line for something that was used.",
			number(p.UnpricedRequests, "request"), p.UnpricedCharged, p.Currency))
	}

	var ids []string
	for i := range p.Accounts[:min(len(p.Accounts), previewed)] {
		ids = append(ids, p.Accounts[i].AccountID)
	}

	names, err := kit.Names(r, ids)
	if err != nil {
		return nil, err
	}

	for i, id := range ids {
		a := &p.Accounts[i]
		who := names[id]
		if who == "" {
			who = id
		}
		texts = append(texts, fmt.Sprintf("%s: %s → %s %s (%s).", who, a.Charged, a.Previewed, p.Currency, signed(a.Change)))
	}

	return texts, nil
}

// number returns a number of things in words.
func number(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return view.Count(n) + " " + thing + "s"
}

// are is the verb after a number of things, were the same in the past.
func are(n int64) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func were(n int64) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

// signed returns an amount with its sign.
func signed(amount adminclient.Money) string {
	if amount != "" && amount[0] != '-' {
		return "+" + amount
	}
	return amount
}

// priceForm returns the address of the form that changes a price, filled with the price of a change; empty for a change
// that is not of the price of a model that exists.
func priceForm(c *adminclient.CatalogChange) string {
	if c.Kind != adminclient.CatalogChangeKindPrice || c.Before == nil || c.After == nil {
		return ""
	}
	return kit.Path("models", c.ID) + "/price?" + priceform.Query(c.Before, c.After).Encode()
}
