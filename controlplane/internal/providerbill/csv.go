package providerbill

import (
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"modelgateway/controlplane/internal/validation"
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

func (b *reading) readCSV(in io.Reader) error {
	bounded := &boundedReader{r: in, left: maxText, leftOfRecord: maxRecord}
	t := &table{reader: csv.NewReader(bounded), columns: map[string]int{}}
	t.reader.ReuseRecord = true
	header, err := t.reader.Read()
	if err != nil {
		return asInvalid("line 1", err)
	}
	for i, name := range header {
		t.columns[strings.TrimSpace(name)] = i
	}

	read := b.readPlain
	switch {
	case t.has("lineItem/UnblendedCost", "lineItem/UsageStartDate", "lineItem/LineItemType"),
		t.has("line_item_unblended_cost", "line_item_usage_start_date", "line_item_line_item_type"):
		b.Format, read = AWSCUR, b.readCUR
	case t.has("BilledCost", "ChargePeriodStart", "BillingCurrency", "ChargeCategory"):
		b.Format, read = FOCUS, b.readFOCUS
	case t.has("day"):
		b.Format = PlainCSV
	default:
		return validation.New("line 1", "has the columns of no known bill: the columns of the format csv are %s",
			strings.Join(plainColumns, ", "))
	}

	for {
		bounded.leftOfRecord = maxRecord
		t.row, err = t.reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return asInvalid(file, err) // it names the line
		}
		line, _ := t.reader.FieldPos(0)
		b.number = int64(line)
		if err := read(t); err != nil {
			return err
		}
	}
}

// period reads the time at which a row begins and, if the table has it, the one at which it ends. Both are of the same column's kind:
// a day, or a time.
func (b *reading) period(t *table, beginning, end string) (day, until time.Time, err error) {
	begins, isDay, err := b.time(t.get(beginning))
	if err != nil {
		return day, until, validation.New(b.place(beginning), "%v", err)
	}
	day = dayOf(begins, b.zone)
	until = begins
	if isDay {
		until = endOf(day, b.zone)
	}
	if text := t.get(end); end != "" && text != "" {
		if until, _, err = b.time(text); err != nil {
			return day, until, validation.New(b.place(end), "%v", err)
		}
	}
	return day, until, nil
}

// readCUR reads a row of an AWS Cost and Usage Report, of the first or the second version. Rows of other services than Bedrock are
// left out; the models of others are sold under product codes of their own, with Bedrock in the name or the description.
func (b *reading) readCUR(t *table) error {
	bedrock := slices.ContainsFunc([]string{
		t.get("lineItem/ProductCode", "line_item_product_code"), t.get("product/ProductName", "product_product_name"),
		t.get("lineItem/LineItemDescription", "line_item_line_item_description"),
	}, func(text string) bool { return strings.Contains(strings.ToLower(text), "bedrock") })
	if !bedrock {
		return nil
	}

	beginning, end, amount := "lineItem/UsageStartDate", "lineItem/UsageEndDate", "lineItem/UnblendedCost"
	if t.has("line_item_unblended_cost") {
		beginning, end, amount = "line_item_usage_start_date", "line_item_usage_end_date", "line_item_unblended_cost"
	}
	day, until, err := b.period(t, beginning, end)
	if err != nil {
		return err
	}
	isUsage := slices.Contains(
		[]string{"Usage", "DiscountedUsage", "SavingsPlanCoveredUsage"},
		t.get("lineItem/LineItemType", "line_item_line_item_type"),
	)
	return b.addRow(t, isUsage, &Line{
		Day:        day,
		Model:      t.get("lineItem/UsageType", "line_item_usage_type"),
		Credential: t.get("lineItem/UsageAccountId", "line_item_usage_account_id"),
	}, until, amount, t.get("lineItem/CurrencyCode", "line_item_currency_code"))
}

// readFOCUS reads a row of a FOCUS data set.
func (b *reading) readFOCUS(t *table) error {
	day, until, err := b.period(t, "ChargePeriodStart", "ChargePeriodEnd")
	if err != nil {
		return err
	}
	return b.addRow(t, t.get("ChargeCategory") == "Usage", &Line{
		Day:        day,
		Model:      t.get("SkuId"),
		Credential: t.get("SubAccountId"),
	}, until, "BilledCost", t.get("BillingCurrency"))
}

// plainColumns are the columns of the format for all others.
var plainColumns = []string{"day", "model", "credential", "request_id", "requests", "input_tokens", "output_tokens", "amount", "currency"}

// readPlain reads a row of the format for all others. Its columns are day (2026-11-28, or a time in RFC 3339), and as far as they are
// known model, credential, request_id, requests, input_tokens, output_tokens, amount (a decimal) and currency.
func (b *reading) readPlain(t *table) error {
	day, until, err := b.period(t, "day", "")
	if err != nil {
		return err
	}
	line := &Line{
		Day:        day,
		Model:      t.get("model"),
		Credential: t.get("credential"),
		RequestID:  t.get("request_id"),
	}
	for name, into := range map[string]*int64{"requests": &line.Requests, "input_tokens": &line.Input, "output_tokens": &line.Output} {
		if text := t.get(name); text != "" {
			if *into, err = strconv.ParseInt(text, 10, 64); err != nil {
				return validation.New(b.place(name), "must be a whole number")
			}
		}
	}
	return b.addRow(t, true, line, until, "amount", t.get("currency"))
}

// addRow adds a line with its amount, or adds that to what is no usage.
func (b *reading) addRow(t *table, isUsage bool, line *Line, until time.Time, column, currency string) error {
	if err := b.setCurrency(currency); err != nil {
		return err
	}
	if text := t.get(column); text != "" { // else only counts
		var err error
		if line.Amount, err = b.amount(column, text, 0); err != nil {
			return err
		}
	}
	if !isUsage {
		return b.addOther(line.Amount)
	}
	return b.addLine(line, until)
}

// timeLayouts are those that exports use.
var timeLayouts = []string{
	time.RFC3339,
	time.DateTime,
	"2006-01-02T15:04:05",
	"2006-01-02T15:04Z07:00",
	"2006-01-02 15:04:05.000",
}

var errNoTime = errors.New("must be a day such as 2026-11-28 or a time in RFC 3339")

// time reads a time in RFC 3339, with or without seconds and zone, or a day.
func (b *reading) time(text string) (at time.Time, isDay bool, err error) {
	if at, err := time.ParseInLocation(time.DateOnly, text, b.zone); err == nil {
		return at, true, nil
	}
	for _, layout := range timeLayouts {
		if at, err := time.ParseInLocation(layout, text, b.zone); err == nil {
			return at, false, nil
		}
	}
	return at, false, errNoTime
}
