package providerbill

import (
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/money"
)

// The shapes of files that spreadsheets and cost explorers write.
func TestShapesOfTables(t *testing.T) {
	t.Parallel()
	const header = "day,model,amount\n"
	for name, test := range map[string]struct {
		text  string
		lines int
		sum   money.Nano
	}{
		"CRLF and a byte order mark":      {"\ufeffday,model,amount\r\n2026-11-01,m,1.5\r\n", 1, 1_500_000_000},
		"quoted":                          {"\"day\",\"model\",\"amount\"\n\"2026-11-01\",\"m\",\" 1.5 \"\n", 1, 1_500_000_000},
		"no end of the last line":         {header + "2026-11-01,m,1.5", 1, 1_500_000_000},
		"rows without a value":            {header + "\n2026-11-01,m,1.5\n,,\n , ,\n", 1, 1_500_000_000},
		"a comma at the end of each row":  {"day,model,amount,\n2026-11-01,m,1.5,\n", 1, 1_500_000_000},
		"parts, each with its header":     {header + "2026-11-01,m,1.5\n" + header + "2026-11-01,m,1\n", 2, 2_500_000_000},
		"parts, each with a mark as well": {"\ufeff" + header + "2026-11-01,m,1.5\n\ufeff" + header + "2026-11-01,m,1\n", 2, 2_500_000_000},
		"parts that are packed":           {pack(t, header+"2026-11-01,m,1.5\n") + pack(t, header+"2026-11-01,m,1\n"), 2, 2_500_000_000},
		"nothing on a line":               {header + "2026-11-01,m,0\n2026-11-02,m,-0.00\n", 2, 0},
	} {
		content, lines := read(t, test.text)
		if len(lines) != test.lines || content.Billed.Round() != test.sum {
			t.Errorf("%s: %d lines of %s; want %d of %s", name, len(lines), content.Billed.Round(), test.lines, test.sum)
		}
	}
}

// What could be read as something else is refused: an amount that is not read counts as nothing.
func TestTablesThatCouldBeMisread(t *testing.T) {
	t.Parallel()
	const header = "day,model,amount\n"
	usage := func(from, to string) string {
		return "line_item_usage_start_date,line_item_usage_end_date,line_item_line_item_type,line_item_product_code,line_item_unblended_cost\n" +
			from + "," + to + ",Usage,AmazonBedrock,1\n"
	}
	for name, test := range map[string]struct{ text, place, detail string }{
		"semicolons":                         {"day;model;amount\n2026-11-01;m;1\n", "line 1", "another character than a comma"},
		"tabs":                               {"day\tmodel\tamount\n2026-11-01\tm\t1\n", "line 1", "another character than a comma"},
		"a column twice":                     {"day,amount,amount\n2026-11-01,1,2\n", "line 1", "amount twice"},
		"a column with another name":         {"day,model,Amount\n2026-11-01,m,1\n", "line 1", `"Amount"`},
		"neither amounts nor tokens":         {"day,model,requests\n2026-11-01,m,1\n", "file", "neither amounts nor tokens"},
		"an amount that lacks":               {header + "2026-11-01,m,1\n2026-11-01,n,\n", "line 3, amount", "is empty"},
		"an amount that lacks at first":      {header + "2026-11-01,m,\n2026-11-01,n,1\n", "line 2, amount", "is empty"},
		"thousands":                          {header + "2026-11-01,m,\"1,234.5\"\n", "line 2, amount", "decimal"},
		"thousands, unquoted":                {"day,model,amount,\n2026-11-01,m,1,234\n", "line 2", "without a name"},
		"a decimal comma":                    {header + "2026-11-01,m,\"1,5\"\n", "line 2, amount", "decimal"},
		"a sign of a currency":               {header + "2026-11-01,m,$1\n", "line 2, amount", "decimal"},
		"brackets for a minus":               {header + "2026-11-01,m,(1)\n", "line 2, amount", "decimal"},
		"a day in another order":             {header + "11/01/2026,m,1\n", "line 2, day", "day such as"},
		"a month":                            {usage("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"), "line 2", "several days"},
		"days of another zone":               {usage("2026-11-01T08:00:00Z", "2026-11-02T08:00:00Z"), "line 2", "several days"},
		"an end before the beginning":        {usage("2026-11-02T00:00:00Z", "2026-11-01T00:00:00Z"), "line 2", "before it begins"},
		"an amount that lacks in a report":   {usage("2026-11-02T00:00:00Z", "2026-11-02T01:00:00Z") + "2026-11-02T00:00:00Z,,Usage,AmazonBedrock,\n", "line 3, line_item_unblended_cost", "is empty"},
		"a list of pages":                    {"[" + openAIUsage + "]", "file", "one after another"},
		"an export of images, not of tokens": {strings.Replace(openAIUsage, "usage.completions", "usage.images", 1), "page 1, data[0].results[0].object", "no kind of line"},
	} {
		_, _, err := readAll(test.text, time.UTC)
		found, is := validation.As(err)
		if !is || len(found) != 1 || found[0].Path != test.place || !strings.Contains(found[0].Detail, test.detail) {
			t.Errorf("%s: got %v; want %q at %q", name, err, test.detail, test.place)
		}
	}
}

// A day without a line at the beginning of a report is a day of the bill: what was called on it is not billed.
func TestReportBeginsWithItsFirstDay(t *testing.T) {
	t.Parallel()
	content, _ := read(t, strings.Replace(anthropicCost, `{"data":[`, `{"data":[{"starting_at":"2025-11-27T00:00:00Z","ending_at":"2025-11-28T00:00:00Z","results":[]},`, 1))
	if want := next.AddDate(0, 0, -2); !content.FirstDay.Equal(want) || !content.LastDay.Equal(want.AddDate(0, 0, 1)) {
		t.Errorf("the bill is from %s to %s; want its first bucket to count", content.FirstDay, content.LastDay)
	}
}

// A correction of an earlier bill is about days that this bill does not have.
func TestCorrectionOfAnEarlierBillIsNoUsage(t *testing.T) {
	t.Parallel()
	content, lines := read(t, "BilledCost,BillingCurrency,ChargePeriodStart,ChargePeriodEnd,ChargeCategory,ChargeClass,SkuId\n"+
		"2.5,USD,2026-11-01T00:00:00Z,2026-11-02T00:00:00Z,Usage,,sku-1\n-0.5,USD,2026-09-01T00:00:00Z,2026-10-01T00:00:00Z,Usage,Correction,sku-1\n")
	if len(lines) != 1 || content.Other != (Amount{-money.Unit / 2, 0}) || content.FirstDay.Month() != time.November {
		t.Errorf("%d lines, %+v; want the correction apart", len(lines), content)
	}
}

// A model of another maker is sold under a product code of its own; the second report has the name of the product in a map.
func TestProductIsKnownByItsMap(t *testing.T) {
	t.Parallel()
	_, lines := read(t, "line_item_usage_start_date,line_item_line_item_type,line_item_product_code,line_item_unblended_cost,product\n"+
		`2026-11-01 10:00:00.000,Usage,5abc,2,"{""product_name"":""Demo 4 (Amazon Bedrock Edition)""}"`+"\n"+
		`2026-11-01 10:00:00.000,Usage,AmazonS3,2,"{""product_name"":""Amazon Simple Storage Service""}"`+"\n")
	if len(lines) != 1 || lines[0].Amount.Nano != 2*money.Unit {
		t.Errorf("got %+v; want the model alone", lines)
	}
}

// Where summer time begins at midnight, the day begins at one o'clock, and has 23 hours.
func TestDayWithoutAMidnight(t *testing.T) {
	t.Parallel()
	for name, day := range map[string]string{"America/Santiago": "2026-09-06", "Africa/Cairo": "2026-04-24", "America/Havana": "2026-03-08", "Australia/Lord_Howe": "2026-10-04"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		date, err := time.Parse(time.DateOnly, day)
		if err != nil {
			t.Fatal(err)
		}
		before := date.AddDate(0, 0, -1).Format(time.DateOnly)
		content, lines, err := readAll("day,amount\n"+before+",1\n"+day+",1\n", zone)
		if err != nil {
			t.Fatal(err)
		}
		if got := lines[1].Day.Format(time.DateOnly); got != day || lines[0].Day.Format(time.DateOnly) != before {
			t.Errorf("%s: %s is %s on the bill", name, day, got)
		}
		if end := endOf(lines[0].Day, zone); dayOf(end, zone) != lines[1].Day || dayOf(end.Add(-1), zone) != lines[0].Day {
			t.Errorf("%s: %s ends at %s", name, before, end)
		}
		if !content.EndsAt.Equal(endOf(lines[1].Day, zone)) {
			t.Errorf("%s: the bill ends at %s", name, content.EndsAt)
		}
	}
}

// An amount of 5 does not show cents, but has them: a difference of 40 cents is none of rounding.
func TestAmountWithoutCentsIsNotRoundedToUnits(t *testing.T) {
	t.Parallel()
	for currency, want := range map[string]money.Nano{"USD": money.Unit / 100, "": money.Unit / 100, "JPY": money.Unit} {
		content, _ := read(t, "day,model,amount,currency\n2026-11-01,demo,5,"+currency+"\n")
		if content.Step != want {
			t.Errorf("%q: rounded to %s; want %s", currency, content.Step, want)
		}
	}
	compared := compare(t, "2026-11-01,demo,k,5\n", call(firstDay, "demo", 46*money.Unit/10, nil))
	if open := compared.OpenAmount(); open < 39*money.Unit/100 {
		t.Errorf("%s is open of %+v; want nearly all of 0.4", open, compared.Parts)
	}
}
