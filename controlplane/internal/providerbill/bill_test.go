package providerbill

import (
	"bytes"
	"compress/gzip"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"modelgateway/shared/money"
)

// The files are made up in the shapes that the providers document.
const (
	openAICosts = `{"object":"page","data":[{"object":"bucket","start_time":1764288000,"end_time":1764374400,"results":[
		{"object":"organization.costs.result","amount":{"value":0.060000000000000005,"currency":"usd"},"line_item":"demo-1, input","project_id":"proj_a"},
		{"object":"organization.costs.result","amount":{"value":1.5e-7,"currency":"usd"},"line_item":null,"project_id":null}]}],"has_more":true,"next_page":"x"}
		{"object":"page","data":[],"has_more":false,"next_page":null}`
	openAIUsage = `{"object":"page","data":[{"object":"bucket","start_time":1764288000,"end_time":1764374400,"results":[
		{"object":"organization.usage.completions.result","input_tokens":1000,"output_tokens":500,"num_model_requests":5,"project_id":"proj_a","api_key_id":"key_a","model":"demo-1"}]}],
		"has_more":false,"next_page":null}`
	anthropicCost = `{"data":[{"starting_at":"2025-11-28T00:00:00Z","ending_at":"2025-11-29T00:00:00Z","results":[
		{"amount":"123.78912","currency":"USD","cost_type":"tokens","description":"Demo usage","model":"demo-2","service_tier":"standard","token_type":"output_tokens","workspace_id":"wrkspc_a"},
		{"amount":"-1","currency":"USD","cost_type":"web_search","model":null,"workspace_id":null}]}],"has_more":false,"next_page":null}`
	awsCUR = `identity/LineItemId,lineItem/UsageStartDate,lineItem/LineItemType,lineItem/ProductCode,lineItem/UsageType,lineItem/UsageAccountId,lineItem/UnblendedCost,lineItem/CurrencyCode,lineItem/LineItemDescription
a,2025-11-28T10:00:00Z,Usage,AmazonBedrock,USE1-Demo3-input-tokens,111122223333,0.0000012345,USD,"input, tokens"
b,2025-11-28T10:00:00Z,Usage,AmazonS3,Requests,111122223333,7.5,USD,
c,2025-11-28T10:00:00Z,Tax,AmazonBedrock,,111122223333,0.25,USD,
d,2025-11-28T11:00:00Z,Usage,5abc,USE1-MP:Demo4,111122223333,2,USD,Demo 4 (Amazon Bedrock Edition)
`
	awsCUR2 = "line_item_usage_start_date,line_item_line_item_type,line_item_product_code,line_item_usage_type,line_item_usage_account_id,line_item_unblended_cost,line_item_currency_code\n" +
		"2025-11-28 10:00:00.000,Usage,AmazonBedrock,USE1-Demo3-output-tokens,111122223333,3.25,USD\n"
	focus = "\ufeffBilledCost,BillingCurrency,ChargePeriodStart,ChargePeriodEnd,ChargeCategory,ServiceName,SkuId,SubAccountId\n" +
		"0.5,USD,2025-11-28T00:00:00Z,2025-11-29T00:00:00Z,Usage,Models,sku-1,sub-1\n-0.1,USD,2025-11-28T00:00:00Z,2025-11-29T00:00:00Z,Credit,Models,,sub-1\n"
	plain = "day,model,credential,request_id,requests,input_tokens,output_tokens,amount,currency\n" +
		"2025-11-28,demo-5,main,id-1,1,10,20,0.000001,EUR\n2025-11-28T23:59:59+02:00,demo-5,main,,3,,,,\n"
)

func parse(t *testing.T, text string) *Bill {
	t.Helper()
	bill, err := Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return bill
}

func TestFormats(t *testing.T) {
	t.Parallel()
	on := time.Date(2025, 11, 28, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		text string
		want Bill
	}{
		"costs of OpenAI": {openAICosts, Bill{Format: OpenAICosts, Currency: "USD", Step: 1, Lines: []Line{
			{Day: on, Model: "demo-1", Credential: "proj_a", Amount: Amount{60_000_000, 5}}, {Day: on, Amount: Amount{150, 0}},
		}}},
		"usage of OpenAI": {openAIUsage, Bill{Format: OpenAIUsage, Lines: []Line{
			{Day: on, Model: "demo-1", Credential: "key_a", Requests: 5, Input: 1000, Output: 500},
		}}},
		"cost report of Anthropic, in cents": {anthropicCost, Bill{Format: AnthropicCost, Currency: "USD", Step: 100, Lines: []Line{
			{Day: on, Model: "demo-2", Credential: "wrkspc_a", Amount: Amount{1_237_891_200, 0}}, {Day: on, Amount: Amount{-10_000_000, 0}},
		}}},
		"first cost and usage report of AWS": {awsCUR, Bill{Format: AWSCUR, Currency: "USD", Step: 1, Other: Amount{money.Unit / 4, 0}, Lines: []Line{
			{Day: on, Model: "USE1-Demo3-input-tokens", Credential: "111122223333", Amount: Amount{1234, 500_000_000}},
			{Day: on, Model: "USE1-MP:Demo4", Credential: "111122223333", Amount: Amount{2 * money.Unit, 0}},
		}}},
		"second cost and usage report of AWS": {awsCUR2, Bill{Format: AWSCUR, Currency: "USD", Step: 10_000_000, Lines: []Line{
			{Day: on, Model: "USE1-Demo3-output-tokens", Credential: "111122223333", Amount: Amount{3_250_000_000, 0}},
		}}},
		"FOCUS": {focus, Bill{Format: FOCUS, Currency: "USD", Step: 100_000_000, Other: Amount{-100_000_000, 0}, Lines: []Line{
			{Day: on, Model: "sku-1", Credential: "sub-1", Amount: Amount{500_000_000, 0}},
		}}},
		"any other": {plain, Bill{Format: PlainCSV, Currency: "EUR", Step: 1000, Lines: []Line{
			{Day: on, Model: "demo-5", Credential: "main", RequestID: "id-1", Requests: 1, Input: 10, Output: 20, Amount: Amount{1000, 0}},
			{Day: on, Model: "demo-5", Credential: "main", Requests: 3},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := parse(t, test.text)
			if diff := cmp.Diff(&test.want, got, cmpopts.IgnoreFields(Bill{}, "Hash")); diff != "" {
				t.Errorf("bill (-want +got):\n%s", diff)
			}
			if again := parse(t, test.text); again.Hash != got.Hash || got.Hash == ([32]byte{}) {
				t.Error("the same file has another hash")
			}
		})
	}
}

func TestCompressedBillIsRead(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write([]byte(plain))
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	if got := parse(t, packed.String()); len(got.Lines) != 2 || got.Hash == parse(t, plain).Hash {
		t.Errorf("got %d lines; want 2, and the hash of the file as it is", len(got.Lines))
	}
}

// A file that breaks off, or that is something else, is not a bill of nothing.
func TestOtherFilesAreNoBills(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing": "", "an object": "{}", "an error of the provider": `{"error":{"message":"no"}}`, "another table": "a,b\n1,2\n",
		"no last page": strings.ReplaceAll(openAICosts, `"has_more":false`, `"has_more":true`), "cut": openAICosts[:300],
		"two currencies": strings.Replace(openAICosts, `"usd"`, `"eur"`, 1), "no amount": strings.ReplaceAll(plain, "0.000001", "1,0"),
		"no day": strings.ReplaceAll(plain, "2025-11-28", "yesterday"), "hex": strings.ReplaceAll(plain, "0.000001", "0x10"),
		"too large": strings.ReplaceAll(plain, "0.000001", "1e30"), "two reports": openAICosts + openAIUsage,
		"a row without end": plain + strings.Repeat("x", 2*maxLine),
	} {
		if bill, err := Parse(strings.NewReader(text)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: got %+v, %v; want %v", name, bill, err, ErrFormat)
		}
	}
}

func TestAmountsAreExact(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Amount{
		"0": {}, "1": {money.Unit, 0}, "-0.000000001": {-1, 0}, "-0.0000000005": {-1, 500_000_000}, "1e-18": {0, 1}, "4e-19": {}, "5e-19": {0, 1},
		"12.": {12 * money.Unit, 0}, ".5": {money.Unit / 2, 0}, "+2E0": {2 * money.Unit, 0}, "9223372036.854775807": {1<<63 - 1, 0},
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

func FuzzParse(f *testing.F) {
	for _, text := range []string{openAICosts, openAIUsage, anthropicCost, awsCUR, awsCUR2, focus, plain, "\x1f\x8b", "day\n2025-11-28\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		bill, err := Parse(bytes.NewReader(text))
		if err != nil {
			return
		}
		for _, line := range bill.Lines {
			if min(line.Requests, line.Input, line.Output) < 0 || line.Amount.Rest < 0 || line.Amount.Rest >= restPerNano {
				t.Errorf("line %+v", line)
			}
		}
		compared, err := Compare(bill, func(func(Record) bool) {})
		if err != nil {
			return
		}
		for _, d := range compared.Differences {
			sum := money.Nano(0)
			for _, part := range d.Parts {
				sum += part.Amount
			}
			if sum != d.Billed-d.Recorded {
				t.Errorf("the parts of %+v sum to %d", d, sum)
			}
		}
	})
}
