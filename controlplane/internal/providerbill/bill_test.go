package providerbill

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"io"
	"iter"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/money"
)

// The files are made up in the shapes that the providers document.
const (
	openAICosts = `{"object":"page","data":[{"object":"bucket","start_time":1764288000,"end_time":1764374400,"results":[
		{"object":"organization.costs.result","amount":{"value":0.060000000000000005,"currency":"usd"},"line_item":"demo-1, input","project_id":"proj_a"},
		{"object":"organization.costs.result","amount":{"value":"1.5e-7","currency":"usd"},"line_item":"web search tool calls","project_id":null,"organization_id":"org-a"},
		{"object":"organization.costs.result","amount":{"value":"0E-6176","currency":"usd"},"line_item":"demo-1, cached input","project_id":"proj_a"}]}],"has_more":true,"next_page":"x"}
		{"object":"page","data":[],"has_more":false,"next_page":null}`
	openAIUsage = `{"object":"page","data":[{"object":"bucket","start_time":1764288000,"end_time":1764374400,"results":[
		{"object":"organization.usage.completions.result","input_tokens":1000,"output_tokens":500,"num_model_requests":5,"project_id":"proj_a","api_key_id":"key_a","model":"demo-1"}]}],
		"has_more":false,"next_page":null}`
	anthropicCost = `{"data":[{"starting_at":"2025-11-28T00:00:00Z","ending_at":"2025-11-29T00:00:00Z","results":[
		{"amount":"123.78912","currency":"USD","cost_type":"tokens","description":"Demo usage","model":"demo-2","service_tier":"standard","token_type":"output_tokens","workspace_id":"wrkspc_a"},
		{"amount":"-1","currency":"USD","cost_type":"web_search","model":null,"workspace_id":null}]}],"has_more":false,"next_page":null}`
	awsCUR = `identity/LineItemId,lineItem/UsageStartDate,lineItem/UsageEndDate,lineItem/LineItemType,lineItem/ProductCode,lineItem/UsageType,lineItem/UsageAccountId,lineItem/UnblendedCost,lineItem/CurrencyCode,lineItem/LineItemDescription
a,2025-11-28T10:00:00Z,2025-11-28T11:00:00Z,Usage,AmazonBedrock,USE1-Demo3-input-tokens,111122223333,0.0000012345,USD,"input, tokens"
b,2025-11-28T10:00:00Z,2025-11-28T11:00:00Z,Usage,AmazonS3,Requests,111122223333,7.5,USD,
c,2025-11-28T10:00:00Z,2025-11-28T11:00:00Z,Tax,AmazonBedrock,,111122223333,0.25,USD,
d,2025-11-28T11:00:00Z,2025-11-28T12:00:00Z,Usage,5abc,USE1-MP:Demo4,111122223333,2,USD,Demo 4 (Amazon Bedrock Edition)
`
	awsCUR2 = "line_item_usage_start_date,line_item_line_item_type,line_item_product_code,line_item_usage_type,line_item_usage_account_id,line_item_unblended_cost,line_item_currency_code\n" +
		"2025-11-28 10:00:00.000,Usage,AmazonBedrock,USE1-Demo3-output-tokens,111122223333,3.25,USD\n"
	focus = "\ufeffBilledCost,BillingCurrency,ChargePeriodStart,ChargePeriodEnd,ChargeCategory,ServiceName,SkuId,SubAccountId\n" +
		"0.5,USD,2025-11-28T00:00:00Z,2025-11-29T00:00:00Z,Usage,Models,sku-1,sub-1\n-0.1,USD,2025-11-28T00:00:00Z,2025-11-29T00:00:00Z,Credit,Models,,sub-1\n"
	plain = "day,model,credential,request_id,requests,input_tokens,output_tokens,amount,currency\n" +
		"2025-11-28,demo-5,main,id-1,1,10,20,0.000001,EUR\n2025-11-28T23:59:59+02:00,demo-5,main,,3,,,0,\n"
)

// read reads a bill and its lines.
func read(t *testing.T, text string) (*Content, []Line) {
	t.Helper()
	content, lines, err := readAll(text, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	return content, lines
}

func readAll(text string, zone *time.Location) (*Content, []Line, error) {
	var lines []Line
	content, err := Read(strings.NewReader(text), zone, func(l *Line) error {
		lines = append(lines, *l)
		return nil
	})
	return content, lines, err
}

// next is the end of the day of the files.
var next = time.Date(2025, 11, 29, 0, 0, 0, 0, time.UTC)

func TestFormats(t *testing.T) {
	t.Parallel()
	on := next.AddDate(0, 0, -1)
	content := func(format Format, currency string, step money.Nano, billed Amount, lines int64) Content {
		return Content{
			Format:   format,
			Unit:     Money,
			Currency: currency,
			FirstDay: on,
			LastDay:  on,
			EndsAt:   next,
			Lines:    lines,
			Billed:   billed,
			Step:     step,
		}
	}
	with := func(c Content, change func(*Content)) Content { change(&c); return c }
	for name, test := range map[string]struct {
		text  string
		want  Content
		lines []Line
	}{
		"costs of OpenAI": {openAICosts, content(OpenAICosts, "USD", 1, Amount{60_000_150, 5}, 3), []Line{
			{Number: 1, Day: on, Model: "demo-1", Credential: "proj_a", Amount: Amount{60_000_000, 5}},
			{Number: 2, Day: on, Amount: Amount{150, 0}},
			{Number: 3, Day: on, Model: "demo-1", Credential: "proj_a"},
		}},
		"usage of OpenAI": {openAIUsage, with(content(OpenAIUsage, "", 0, Amount{}, 1), func(c *Content) { c.Unit = Tokens }), []Line{
			{Number: 1, Day: on, Model: "demo-1", Credential: "key_a", Requests: 5, Input: 1000, Output: 500},
		}},
		"cost report of Anthropic, in cents": {
			anthropicCost, with(content(AnthropicCost, "USD", 100, Amount{1_237_891_200, 0}, 1), func(c *Content) { c.Other = Amount{-10_000_000, 0} }), []Line{
				{Number: 1, Day: on, Model: "demo-2", Credential: "wrkspc_a", Amount: Amount{1_237_891_200, 0}},
			},
		},
		"first cost and usage report of AWS": {awsCUR, with(content(AWSCUR, "USD", 1, Amount{2*money.Unit + 1234, 500_000_000}, 2), func(c *Content) {
			c.Other, c.EndsAt = Amount{money.Unit / 4, 0}, on.Add(12*time.Hour)
		}), []Line{
			{Number: 2, Day: on, Model: "USE1-Demo3-input-tokens", Credential: "111122223333", Amount: Amount{1234, 500_000_000}},
			{Number: 5, Day: on, Model: "USE1-MP:Demo4", Credential: "111122223333", Amount: Amount{2 * money.Unit, 0}},
		}},
		"second cost and usage report of AWS": {awsCUR2, with(content(AWSCUR, "USD", 10_000_000, Amount{3_250_000_000, 0}, 1), func(c *Content) {
			c.EndsAt = on.Add(10 * time.Hour)
		}), []Line{
			{Number: 2, Day: on, Model: "USE1-Demo3-output-tokens", Credential: "111122223333", Amount: Amount{3_250_000_000, 0}},
		}},
		"FOCUS": {focus, with(content(FOCUS, "USD", 10_000_000, Amount{500_000_000, 0}, 1), func(c *Content) { c.Other = Amount{-100_000_000, 0} }), []Line{
			{Number: 2, Day: on, Model: "sku-1", Credential: "sub-1", Amount: Amount{500_000_000, 0}},
		}},
		"any other": {plain, with(content(PlainCSV, "EUR", 1000, Amount{1000, 0}, 2), func(c *Content) { c.WithRequest = 1 }), []Line{
			{Number: 2, Day: on, Model: "demo-5", Credential: "main", RequestID: "id-1", Requests: 1, Input: 10, Output: 20, Amount: Amount{1000, 0}},
			{Number: 3, Day: on, Model: "demo-5", Credential: "main", Requests: 3},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, lines := read(t, test.text)
			test.want.Hash = got.Hash // a test of its own compares hashes
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Errorf("bill (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.lines, lines); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}

func pack(t *testing.T, text string) string {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write([]byte(text))
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return packed.String()
}

func TestPackedBillIsTheSameBill(t *testing.T) {
	t.Parallel()
	packed := pack(t, plain)
	if _, lines := read(t, packed); len(lines) != 2 {
		t.Errorf("got %d lines; want 2", len(lines))
	}
	first, _ := read(t, plain)
	second, _ := read(t, packed)
	other, _ := read(t, plain+"\n")
	if first.Hash != sha256.Sum256([]byte(plain)) || first.Hash != second.Hash || first.Hash == other.Hash {
		t.Errorf("hashes %x, %x and %x; want two that are equal", first.Hash, second.Hash, other.Hash)
	}
	report, _ := read(t, anthropicCost+"\n")
	if report.Hash != sha256.Sum256([]byte(anthropicCost+"\n")) {
		t.Errorf("the hash of a report is %x; want that of all of it", report.Hash)
	}
}

// A small file may unpack to any number of bytes.
func TestFileThatUnpacksToTooMuchIsRefused(t *testing.T) {
	t.Parallel()
	text, err := unpack(strings.NewReader(pack(t, strings.Repeat("\n", 1001))), 1000)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, text); !errors.Is(err, errTooLong) {
		t.Errorf("read %d bytes, %v; want %v", n, err, errTooLong)
	}
}

// A file that breaks off, or that is something else, is not a bill of nothing. The error says where.
// A file of empty objects, which is small when it is packed, must not take many times its size of memory: the control plane would be
// killed.
func TestEmptyObjectsTakeNoMemory(t *testing.T) {
	const objects = 1_000_000
	for name, text := range map[string]string{
		"days":  `{"has_more":false,"data":[` + strings.Repeat("{},", objects) + `{}]}`,
		"lines": `{"has_more":false,"data":[{"start_time":1,"end_time":2,"results":[` + strings.Repeat("{},", objects) + `{}]}]}`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Read(strings.NewReader(text), time.UTC, func(*Line) error { return nil })
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "too little for a day or a line") {
			t.Errorf("%s: got %v", name, err)
		}
		if took := int(after.TotalAlloc - before.TotalAlloc); took > 8*len(text) {
			t.Errorf("%s: %d bytes were allocated for a text of %d", name, took, len(text))
		}
	}
}

func TestOtherFilesAreNoBills(t *testing.T) {
	t.Parallel()
	const header = "day,model,amount\n"
	for name, test := range map[string]struct{ text, place, detail string }{
		"nothing":                  {"", "file", "is empty"},
		"an object":                {"{}", "page 1", "has_more"},
		"an error of the provider": {`{"error":{"message":"no"}}`, "page 1", "has_more"},
		"another table":            {"a,b\n1,2\n", "line 1", "columns of no known bill"},
		"only a header":            {plain[:strings.Index(plain, "\n")+1], "file", "no line"},
		"no last page":             {strings.ReplaceAll(openAICosts, `"has_more":false`, `"has_more":true`), "file", "before the last page"},
		"cut":                      {openAICosts[:300], "page 1", "unexpected EOF"},
		"cut within a packed file": {pack(t, plain)[:60], "line 1", "unexpected EOF"},
		"two currencies":           {strings.Replace(openAICosts, `"usd"`, `"eur"`, 1), "page 1, data[0].results[1].currency", "EUR"},
		"no currency":              {strings.Replace(openAICosts, `"usd"`, `"$"`, 1), "page 1, data[0].results[0].currency", "code"},
		"no amount":                {strings.ReplaceAll(plain, "0.000001", `"1,0"`), "line 2, amount", "decimal"},
		"no day":                   {strings.ReplaceAll(plain, "2025-11-28", "yesterday"), "line 2, day", "day"},
		"no bucket of a day":       {strings.Replace(openAICosts, "1764374400", "1767052800", 1), "page 1, data[0].results[0]", "several days"},
		"hex":                      {strings.ReplaceAll(plain, "0.000001", "0x10"), "line 2, amount", "decimal"},
		"not a number":             {header + "2026-11-01,m,NaN\n", "line 2, amount", "decimal"},
		"too large":                {strings.ReplaceAll(plain, "0.000001", "1e30"), "line 2, amount", "too large"},
		"a huge exponent":          {header + "2026-11-01,m,1e999999999\n", "line 2, amount", "decimal"},
		"a long number":            {header + "2026-11-01,m," + strings.Repeat("9", 100_000) + "\n", "line 2, amount", "decimal"},
		"a sum that is too large":  {header + strings.Repeat("2026-11-01,m,9e9\n2026-11-01,m,-9e9\n", 2), "line 3, amount", "sum too large"},
		"a huge count":             {"day,input_tokens\n2026-11-01,9223372036854775807\n", "line 2, counts", "must be"},
		"two reports":              {openAICosts + openAIUsage, "page 3, data[0].results[0]", "openai_usage"},
		"a row without end":        {plain + strings.Repeat("x", 2*maxRecord), "file", "too long"},
		"a field without end":      {plain + `"` + strings.Repeat("x\n", maxRecord), "file", "too long"},
		"a file in a file":         {pack(t, pack(t, plain)), "line 1", ""},
		"a workbook":               {"PK\x03\x04rest", "file", "workbook"},
		"Parquet":                  {"PAR1rest", "file", "Parquet"},
		"UTF-16":                   {"\xff\xfed\x00", "file", "UTF-16"},
		"a page of the web":        {"<!DOCTYPE html>", "file", "HTML"},
		"a name that acts":         {header + "2026-11-01,\x1b[2Jm,1\n", "line 2, model", "control character"},
		"a name of zero bytes":     {header + "2026-11-01,a\x00b,1\n", "line 2, model", "control character"},
		"a name that is no text":   {header + "2026-11-01,a\xffb,1\n", "line 2, model", "UTF-8"},
		"a long name":              {header + "2026-11-01," + strings.Repeat("m", maxName+1) + ",1\n", "line 2, model", "longer"},
		"another number of fields": {header + "2026-11-01,m\n", "file", "line 2"},
		"an open quote":            {header + "2026-11-01,m,\"1\n", "file", "line 2"},
		"too many days":            {header + "2026-01-01,m,1\n2027-03-01,m,1\n", "file", "may have 400 days"},
		"an impossible year":       {header + "0001-01-01,m,1\n", "line 2, day", "years"},
	} {
		_, _, err := readAll(test.text, time.UTC)
		found, is := validation.As(err)
		if !is || len(found) != 1 || found[0].Path != test.place || !strings.Contains(found[0].Detail, test.detail) {
			t.Errorf("%s: got %v; want %q at %q", name, err, test.detail, test.place)
		}
	}
}

func TestDaysAndTimesAreOfTheZoneOfTheBill(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		t.Fatal(err)
	}
	content, lines, err := readAll("day,amount\n2026-11-01,1\n2026-11-02T01:00:00Z,1\n2026-11-01 23:00:00,1\n2026-11-01T23:30:00+14:00,1\n", zone)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"2026-11-01", "2026-11-01", "2026-11-01", "2026-11-01"} {
		if got := lines[i].Day.Format(time.DateOnly); got != want {
			t.Errorf("line %d is of %s; want %s", i+2, got, want)
		}
	}
	// The day of the end of summer time has 25 hours.
	if want := time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC); !content.EndsAt.Equal(want) {
		t.Errorf("the bill ends at %s; want %s", content.EndsAt.UTC(), want)
	}
}

func TestWhatIsNoUsageIsCountedApart(t *testing.T) {
	t.Parallel()
	content, lines := read(t, "day,model,request_id,amount\n2026-11-01,m,,5\n2026-11-01,,,-2.5\n2026-11-01,m,,-1\n2026-11-01,,id,-1\n")
	if len(lines) != 3 || content.Other != (Amount{-2_500_000_000, 0}) || content.Billed != (Amount{3 * money.Unit, 0}) {
		t.Errorf("%d lines, %+v; want a credit of 2.5 apart from the negative lines of a model and a request", len(lines), content)
	}
}

func TestAmountsAreExact(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Amount{
		"0": {}, "1": {money.Unit, 0}, "-0.000000001": {-1, 0}, "-0.0000000005": {-1, 500_000_000}, "1e-18": {0, 1}, "4e-19": {}, "5e-19": {0, 1},
		"12.": {12 * money.Unit, 0}, ".5": {money.Unit / 2, 0}, "+2E0": {2 * money.Unit, 0}, "9223372036.854775807": {1<<63 - 1, 0}, "0E-6176": {}, "0.0e99": {},
	} {
		if got, err := parseAmount(text, 0); err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", text, got, err, want)
		}
	}
	tenth, _ := parseAmount("0.0000000001", 0)
	sum := Amount{}
	for range 10 {
		sum, _ = sum.Add(tenth)
	}
	if sum != (Amount{1, 0}) {
		t.Errorf("ten tenths of a nano-unit are %+v", sum)
	}
}

// only returns the lines of a bill without records.
func only(content *Content, lines []Line) iter.Seq2[*Pair, error] {
	return func(yield func(*Pair, error) bool) {
		for i := range lines {
			if !yield(lineOf(content, &lines[i]), nil) {
				return
			}
		}
	}
}

func lineOf(content *Content, l *Line) *Pair {
	q := l.quantity(content.Unit)
	return &Pair{
		Lines:      1,
		Day:        l.Day,
		Model:      l.Model,
		Credential: l.Credential,
		ByRequest:  l.RequestID != "",
		Billed:     q,
		First:      q.Nano,
		Negative:   min(q.Nano, 0),
	}
}

func FuzzRead(f *testing.F) {
	for _, text := range []string{openAICosts, openAIUsage, anthropicCost, awsCUR, awsCUR2, focus, plain, "\x1f\x8b", "day\n2025-11-28\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		content, lines, err := readAll(string(text), time.UTC)
		if err != nil {
			if _, is := validation.As(err); !is {
				t.Fatal(err)
			}
			return
		}
		for _, line := range lines {
			if min(line.Requests, line.Input, line.Output) < 0 || line.Amount.Rest < 0 || line.Amount.Rest >= restPerNano {
				t.Errorf("line %+v", line)
			}
		}
		compared, err := Compare(&Bill{Options: Options{TimeZone: "UTC"}, Content: *content}, only(content, lines))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range compared.Differences {
			if sum := sumOf(d.Parts); sum != d.Billed-d.Recorded {
				t.Errorf("the parts of %+v sum to %d", d, sum)
			}
		}
	})
}

func sumOf(parts []Part) (sum money.Nano) {
	for _, part := range parts {
		sum += part.Over - part.Under
	}
	return sum
}
