package providerbill

import (
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"modelgateway/controlplane/internal/usage"
	"modelgateway/controlplane/internal/validation"
)

// table is a CSV file with a header.
type table struct {
	reader  *csv.Reader
	header  []string
	columns map[string]int
	// nameless are the columns without a name, of commas at the end of each row.
	nameless []int
	row      []string
}

// readHeader reads the names of the columns.
func (t *table) readHeader() error {
	header, err := t.reader.Read()
	if err != nil {
		return asInvalid("line 1", err)
	}
	t.header, t.columns = slices.Clone(header), map[string]int{}
	for i, name := range header {
		name = strings.TrimSpace(name)
		if _, twice := t.columns[name]; twice && slices.Contains(readColumns, name) {
			return validation.New("line 1", "has the column %s twice", name)
		}
		if t.columns[name] = i; name == "" {
			t.nameless = append(t.nameless, i)
		}
	}
	if len(header) == 1 && strings.ContainsAny(header[0], ";\t|") {
		return validation.New("line 1", "has its columns separated by another character than a comma")
	}
	return nil
}

// check returns what is wrong with a row; skip reports that there is nothing in it, or that it is the header of a further part.
func (t *table) check() (skip bool, problem string) {
	filled := slices.ContainsFunc(t.row, func(text string) bool { return strings.TrimSpace(text) != "" })
	isHeader := strings.TrimPrefix(t.row[0], byteOrderMark) == t.header[0] && slices.Equal(t.row[1:], t.header[1:])
	if !filled || isHeader {
		return true, ""
	}
	for _, i := range t.nameless {
		if strings.TrimSpace(t.row[i]) != "" {
			return false, "has a value in a column without a name"
		}
	}
	return false, ""
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
	t := &table{reader: csv.NewReader(bounded)}
	t.reader.ReuseRecord = true
	if err := t.readHeader(); err != nil {
		return err
	}
	read, err := b.formatOf(t)
	if err != nil {
		return err
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
		skip, problem := t.check()
		if problem != "" {
			return validation.New(b.place(""), "%s", problem)
		}
		if skip {
			continue
		}
		if err := read(t); err != nil {
			return err
		}
	}
}

// formatOf knows the format of a table by its columns, and returns what reads a row of it.
func (b *reading) formatOf(t *table) (read func(*table) error, err error) {
	switch {
	case t.has("lineItem/UnblendedCost", "lineItem/UsageStartDate", "lineItem/LineItemType"),
		t.has("line_item_unblended_cost", "line_item_usage_start_date", "line_item_line_item_type"):
		b.Format = AWSCUR
		return b.readCUR, nil
	case t.has("BilledCost", "ChargePeriodStart", "BillingCurrency", "ChargeCategory"):
		b.Format = FOCUS
		return b.readFOCUS, nil
	case !t.has("day"):
		return nil, validation.New("line 1", "has the columns of no known bill: the columns of the format csv are %s",
			strings.Join(plainColumns, ", "))
	}

	b.Format = PlainCSV
	for _, name := range t.header { // one such as Amount or cost would count as nothing
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(plainColumns, name) {
			return nil, validation.New("line 1", "has the column %.40q; the columns of the format csv are %s",
				name, strings.Join(plainColumns, ", "))
		}
	}
	return b.readPlain, nil
}

// period reads the time at which a row begins and, if the table has it, the one at which it ends.
func (b *reading) period(t *table, beginning, end string) (begins, until time.Time, err error) {
	begins, isDay, err := b.time(t.get(beginning))
	if err != nil {
		return begins, until, validation.New(b.place(beginning), "%v", err)
	}
	until = begins
	if isDay {
		until = endOf(dayOf(begins, b.zone), b.zone)
	}
	if text := t.get(end); end != "" && text != "" {
		if until, _, err = b.time(text); err != nil {
			return begins, until, validation.New(b.place(end), "%v", err)
		}
	}
	return begins, until, nil
}

// readCUR reads a row of an AWS Cost and Usage Report, of the first or the second version. Rows of other services than Bedrock are
// left out; the models of others are sold under product codes of their own, with Bedrock in the name or the description.
func (b *reading) readCUR(t *table) error {
	bedrock := slices.ContainsFunc([]string{
		t.get("lineItem/ProductCode", "line_item_product_code"), t.get("product/ProductName", "product_product_name"),
		t.get("lineItem/LineItemDescription", "line_item_line_item_description"), t.get("product"),
	}, func(text string) bool { return strings.Contains(strings.ToLower(text), "bedrock") })
	if !bedrock {
		return nil
	}

	beginning, end, amount := "lineItem/UsageStartDate", "lineItem/UsageEndDate", "lineItem/UnblendedCost"
	if t.has("line_item_unblended_cost") {
		beginning, end, amount = "line_item_usage_start_date", "line_item_usage_end_date", "line_item_unblended_cost"
	}
	begins, until, err := b.period(t, beginning, end)
	if err != nil {
		return err
	}
	isUsage := slices.Contains(
		[]string{"Usage", "DiscountedUsage", "SavingsPlanCoveredUsage"},
		t.get("lineItem/LineItemType", "line_item_line_item_type"),
	)
	return b.addRow(t, isUsage, &Line{
		Model:      t.get("lineItem/UsageType", "line_item_usage_type"),
		Credential: t.get("lineItem/UsageAccountId", "line_item_usage_account_id"),
	}, begins, until, amount, t.get("lineItem/CurrencyCode", "line_item_currency_code"))
}

// readFOCUS reads a row of a FOCUS data set. A correction is of an earlier bill: its days are none of this one.
func (b *reading) readFOCUS(t *table) error {
	begins, until, err := b.period(t, "ChargePeriodStart", "ChargePeriodEnd")
	if err != nil {
		return err
	}
	return b.addRow(t, t.get("ChargeCategory") == "Usage" && t.get("ChargeClass") != "Correction", &Line{
		Model:      t.get("SkuId"),
		Credential: t.get("SubAccountId"),
	}, begins, until, "BilledCost", t.get("BillingCurrency"))
}

// readColumns are all columns that are read, of any format.
var readColumns = append([]string{
	"lineItem/UnblendedCost", "lineItem/UsageStartDate", "lineItem/UsageEndDate", "lineItem/LineItemType", "lineItem/ProductCode",
	"lineItem/LineItemDescription", "lineItem/UsageType", "lineItem/UsageAccountId", "lineItem/CurrencyCode", "product/ProductName",
	"line_item_unblended_cost", "line_item_usage_start_date", "line_item_usage_end_date", "line_item_line_item_type",
	"line_item_product_code", "line_item_line_item_description", "line_item_usage_type", "line_item_usage_account_id",
	"line_item_currency_code", "product_product_name", "product",
	"BilledCost", "BillingCurrency", "ChargePeriodStart", "ChargePeriodEnd", "ChargeCategory", "ChargeClass", "SkuId", "SubAccountId",
}, plainColumns...)

// plainColumns are the columns of the format for all others.
var plainColumns = []string{"day", "model", "credential", "request_id", "requests", "input_tokens", "output_tokens", "amount", "currency"}

// readPlain reads a row of the format for all others. Its columns are day (2026-11-28, or a time in RFC 3339), and as far as they are
// known model, credential, request_id, requests, input_tokens, output_tokens, amount (a decimal) and currency.
func (b *reading) readPlain(t *table) error {
	begins, until, err := b.period(t, "day", "")
	if err != nil {
		return err
	}
	line := &Line{
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
	return b.addRow(t, true, line, begins, until, "amount", t.get("currency"))
}

// addRow adds a line with its amount, or adds that to what is no usage.
func (b *reading) addRow(t *table, isUsage bool, line *Line, begins, until time.Time, column, currency string) error {
	if err := b.setCurrency(currency); err != nil {
		return err
	}
	switch text := t.get(column); {
	case text != "":
		var err error
		if line.Amount, err = b.amount(column, text, 0); err != nil {
			return err
		}
	case b.withoutAmount == "": // all lines of a bill are like this one, or none is
		b.withoutAmount = b.place(column)
	}
	if !isUsage {
		return b.addOther(line.Amount)
	}
	return b.addPeriod(line, begins, until)
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
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return usage.StartOfDay(day, b.zone), true, nil
	}
	for _, layout := range timeLayouts {
		if at, err := time.ParseInLocation(layout, text, b.zone); err == nil {
			return at, false, nil
		}
	}
	return at, false, errNoTime
}
