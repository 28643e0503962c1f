package providerbill

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// table is a CSV file with a header.
type table struct {
	reader  *csv.Reader
	columns map[string]int
	row     []string
}

// get returns the value of the first of the columns that exists; empty if none does.
func (t *table) get(names ...string) string {
	for _, name := range names {
		if i, ok := t.columns[name]; ok && i < len(t.row) {
			return strings.TrimSpace(t.row[i])
		}
	}
	return ""
}

func (t *table) has(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { _, ok := t.columns[name]; return !ok })
}

func parseCSV(in io.Reader) (*Bill, error) {
	t := &table{reader: csv.NewReader(in), columns: map[string]int{}}
	t.reader.ReuseRecord = true
	header, err := t.reader.Read()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	for i, name := range header {
		t.columns[strings.TrimSpace(name)] = i
	}

	bill := &Bill{}
	read := bill.readPlain
	switch {
	case t.has("lineItem/UnblendedCost", "lineItem/UsageStartDate"), t.has("line_item_unblended_cost", "line_item_usage_start_date"):
		bill.Format, read = AWSCUR, bill.readCUR
	case t.has("BilledCost", "ChargePeriodStart", "BillingCurrency"):
		bill.Format, read = FOCUS, bill.readFOCUS
	case t.has("day"):
		bill.Format = PlainCSV
	default:
		return nil, fmt.Errorf("%w: its columns are those of no bill", ErrFormat)
	}

	for n := 2; ; n++ {
		t.row, err = t.reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = read(t)
		}
		if err != nil && !errors.Is(err, ErrFormat) {
			err = fmt.Errorf("%w: %w", ErrFormat, err)
		}
		if err != nil {
			return nil, fmt.Errorf("row %d: %w", n, err)
		}
	}
	return bill, nil
}

// readCUR reads a row of an AWS Cost and Usage Report, of the first or the second version. Rows of other services than Bedrock are
// left out; the models of others are sold under product codes of their own, with Bedrock in the name or the description.
func (b *Bill) readCUR(t *table) error {
	bedrock := slices.ContainsFunc([]string{
		t.get("lineItem/ProductCode", "line_item_product_code"), t.get("product/ProductName", "product_product_name"),
		t.get("lineItem/LineItemDescription", "line_item_line_item_description"),
	}, func(text string) bool { return strings.Contains(strings.ToLower(text), "bedrock") })
	if !bedrock {
		return nil
	}

	at, err := readTime(t.get("lineItem/UsageStartDate", "line_item_usage_start_date"))
	if err != nil {
		return err
	}
	isUsage := slices.Contains(
		[]string{"Usage", "DiscountedUsage", "SavingsPlanCoveredUsage"},
		t.get("lineItem/LineItemType", "line_item_line_item_type"),
	)
	if err := b.setCurrency(t.get("lineItem/CurrencyCode", "line_item_currency_code")); err != nil {
		return err
	}
	return b.addRow(isUsage, &Line{
		Day:        day(at),
		Model:      t.get("lineItem/UsageType", "line_item_usage_type"),
		Credential: t.get("lineItem/UsageAccountId", "line_item_usage_account_id"),
	}, t.get("lineItem/UnblendedCost", "line_item_unblended_cost"))
}

// readFOCUS reads a row of a FOCUS data set.
func (b *Bill) readFOCUS(t *table) error {
	at, err := readTime(t.get("ChargePeriodStart"))
	if err != nil {
		return err
	}
	if err := b.setCurrency(t.get("BillingCurrency")); err != nil {
		return err
	}
	return b.addRow(t.get("ChargeCategory") == "Usage", &Line{
		Day:        day(at),
		Model:      t.get("SkuId"),
		Credential: t.get("SubAccountId"),
	}, t.get("BilledCost"))
}

// readPlain reads a row of the format for all others. Its columns are day (2026-11-28, or a time in RFC 3339), and as far as they are
// known model, credential, request_id, requests, input_tokens, output_tokens, amount (a decimal) and currency.
func (b *Bill) readPlain(t *table) error {
	at, err := readTime(t.get("day"))
	if err != nil {
		return err
	}
	line := &Line{
		Day:        day(at),
		Model:      t.get("model"),
		Credential: t.get("credential"),
		RequestID:  t.get("request_id"),
	}
	for name, into := range map[string]*int64{"requests": &line.Requests, "input_tokens": &line.Input, "output_tokens": &line.Output} {
		if text := t.get(name); text != "" {
			if *into, err = strconv.ParseInt(text, 10, 64); err != nil || *into < 0 {
				return fmt.Errorf("%w: %s %q is no count", ErrFormat, name, text)
			}
		}
	}
	if err := b.setCurrency(t.get("currency")); err != nil {
		return err
	}
	return b.addRow(true, line, t.get("amount"))
}

// addRow adds a line with its amount, or adds that to what is no usage.
func (b *Bill) addRow(isUsage bool, line *Line, text string) error {
	if text == "" { // only counts
		return b.add(line)
	}
	var err error
	if line.Amount, err = parseAmount(text, 0); err != nil {
		return err
	}
	b.setStep(step(text, 0))
	if isUsage {
		return b.add(line)
	}
	b.Other, err = b.Other.Add(line.Amount)
	return err
}

// timeLayouts are those that exports use.
var timeLayouts = []string{
	time.RFC3339,
	time.DateTime,
	time.DateOnly,
	"2006-01-02T15:04:05",
	"2006-01-02T15:04Z07:00",
	"2006-01-02 15:04:05.000",
}

// readTime reads a time in RFC 3339, with or without seconds and zone, or a day.
func readTime(text string) (time.Time, error) {
	for _, layout := range timeLayouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%w: %q is no time", ErrFormat, text)
}
