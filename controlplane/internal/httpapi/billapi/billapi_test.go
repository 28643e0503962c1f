package billapi_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/providerbill"
	"modelgateway/shared/ident"
)

// server has further steps of these tests.
type server struct{ *servertest.Server }

var yesterday = time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)

// start returns a server with a provider, and usage records of it yesterday that cost 5 and 3.
func start(t *testing.T) *server {
	t.Helper()
	b := &server{servertest.Start(t)}
	_, err := servertest.Answered(b.API.ApplyCatalog(t.Context(), nil, adminclient.CatalogDocument{
		Currency:  "USD",
		Providers: []adminclient.CatalogProvider{{ID: "maker", BaseURL: "https://maker.example"}},
	}))
	servertest.Check(t, err)
	for i, cost := range []int64{5_000_000_000, 3_000_000_000} {
		at := yesterday.Add(time.Duration(i+1) * time.Hour)
		b.exec(`insert into usage_records (request_id, session_id, seq, account_id, key_id, model, format, provider, provider_request_id, status,
			started_at, finished_at, usage, rule, estimated, price_version, cost, reservation, provider_cost)
			values ($1, 1, $2, $3, $3, 'demo', 'chat', 'maker', $4, 'completed', $5, $5, '{"input":1}', 'reported', $6, 1, 1, 1, $7)`,
			ident.NewAt(at), i, ident.New(), fmt.Sprint("call-", i), at, i == 1, cost)
	}
	return b
}

func (b *server) exec(query string, args ...any) {
	b.T.Helper()
	_, err := b.DB.Pool().Exec(b.T.Context(), query, args...)
	servertest.Check(b.T, err)
}

func (b *server) send(text string, change func(*adminclient.ImportBillParams)) (*servertest.Answer[adminclient.Bill], error) {
	b.T.Helper()
	params := &adminclient.ImportBillParams{Provider: "maker", Name: new("yesterday.csv")}
	if change != nil {
		change(params)
	}
	return servertest.Answered(b.API.ImportBill(b.T.Context(), params, adminclient.WithBody("application/octet-stream", []byte(text))))
}

// problem returns the problem of an answer.
func problem[T any](t *testing.T, answer *servertest.Answer[T], err error) string {
	t.Helper()
	servertest.Check(t, err)
	if answer.Problem == nil {
		return "none"
	}
	return string(answer.Body)
}

func daily(amount string) string {
	return "day,model,amount,currency\n" + yesterday.Format(time.DateOnly) + ",demo," + amount + ",USD\n"
}

// A bill is imported once, shown with its differences and the requests behind them, accepted and deleted.
func TestBill(t *testing.T) {
	t.Parallel()
	b := start(t)
	created, err := b.send(daily("12.000000000"), nil)
	servertest.Check(t, err)
	bill := created.Value
	if created.StatusCode != http.StatusCreated || bill.State != adminclient.BillStateOpen || bill.Comparison == nil || bill.Comparison.Requests != 2 {
		t.Fatalf("import: %s", created)
	}
	if c := bill.Comparison; c.Recorded != "8.00" || c.Billed != "12.00" || c.Open != "0.999999997" || !c.ByModel || c.ByCredential {
		t.Errorf("comparison %+v", c)
	}
	again, err := b.send(daily("12.000000000"), nil)
	servertest.Check(t, err)
	if again.StatusCode != http.StatusOK || again.Value.ID != bill.ID {
		t.Errorf("the same file again: %s", again)
	}

	list, err := servertest.Answered(b.API.ListBills(t.Context(), &adminclient.ListBillsParams{Limit: new(1)}))
	servertest.Check(t, err)
	if len(list.Value.Data) != 1 || list.Value.Data[0].ID != bill.ID || list.Value.NextCursor != nil {
		t.Errorf("list: %s", list)
	}
	differences, err := servertest.Answered(b.API.ListBillDifferences(t.Context(), bill.ID, &adminclient.ListBillDifferencesParams{
		Open: new(true), Kind: new(adminclient.BillDifferenceKindOurEstimate), Day: new(yesterday.Format(time.DateOnly)), Model: new("demo"),
	}))
	servertest.Check(t, err)
	if len(differences.Value.Data) != 1 || differences.Value.Data[0].State != adminclient.BillDifferenceStateOpen {
		t.Fatalf("differences: %s", differences)
	}
	behind, err := servertest.Answered(b.API.GetBillDifference(t.Context(), bill.ID, differences.Value.Data[0].Number))
	servertest.Check(t, err)
	requests := behind.Value.Requests
	if len(requests) != 2 || requests[0].Kind == nil || *requests[0].Kind != adminclient.BillDifferenceKindOurEstimate || *requests[0].ProviderRequestID != "call-1" {
		t.Errorf("requests: %s; want the estimated one first", behind)
	}

	accepted, err := servertest.Answered(b.API.AcceptBill(t.Context(), bill.ID, nil, adminclient.BillAcceptance{Reason: "They give a credit."}))
	servertest.Check(t, err)
	if accepted.Value.State != adminclient.BillStateAccepted || *accepted.Value.AcceptedAs != "They give a credit." || accepted.Value.AcceptedBy == nil {
		t.Errorf("accepted: %s", accepted)
	}
	_, err = servertest.Answered(b.API.DeleteBill(t.Context(), bill.ID))
	servertest.Check(t, err)
	gone, err := servertest.Answered(b.API.GetBill(t.Context(), bill.ID))
	if got := problem(t, gone, err); !strings.Contains(got, "not_found") {
		t.Errorf("after its deletion: %s", got)
	}
}

// The tokens of an export without amounts are whole numbers.
func TestUsageExport(t *testing.T) {
	t.Parallel()
	b := start(t)
	got, err := b.send(`{"object":"page","data":[{"object":"bucket","start_time":`+strconv.FormatInt(yesterday.Unix(), 10)+`,"end_time":`+
		strconv.FormatInt(yesterday.AddDate(0, 0, 1).Unix(), 10)+`,"results":[{"object":"organization.usage.completions.result","input_tokens":7,"output_tokens":2,
		"num_model_requests":2,"model":"demo"}]}],"has_more":false,"next_page":null}`, func(p *adminclient.ImportBillParams) {
		p.Format = new(adminclient.BillFormatOpenaiUsage)
	})
	servertest.Check(t, err)
	if c := got.Value.Comparison; got.Value.Unit != adminclient.BillUnitTokens || c.Billed != "9" || c.Recorded != "2" || len(c.Parts) != 2 {
		t.Errorf("comparison: %s", got)
	}
}

// An operator with a wrong file learns what is wrong, and nothing is stored.
func TestWrongFile(t *testing.T) {
	t.Parallel()
	b := start(t)
	for name, test := range map[string]struct {
		text   string
		change func(*adminclient.ImportBillParams)
		want   []string
	}{
		"a wrong amount": {daily("1,5"), nil, []string{"invalid_input", "line 2"}},
		"formula":        {daily("=1+1"), nil, []string{"invalid_input", "line 2, amount", "decimal"}},
		"a workbook":     {"PK\x03\x04", nil, []string{"invalid_input", "workbook"}},
		"euros":          {strings.ReplaceAll(daily("1"), "USD", "EUR"), nil, []string{"invalid_input", "EUR", "USD"}},
		"of years ago":   {"day,amount\n2020-01-01,1\n", nil, []string{"records_dropped"}},
		"no provider":    {daily("1"), func(p *adminclient.ImportBillParams) { p.Provider = "nobody" }, []string{"invalid_input", "provider"}},
		"another format": {
			daily("1"), func(p *adminclient.ImportBillParams) { p.Format = new(adminclient.BillFormatFocus) }, []string{"invalid_input", "focus", "csv"},
		},
		"a huge file": {strings.Repeat("x", providerbill.MaxFile+1), nil, []string{"body_too_large"}},
	} {
		answer, err := b.send(test.text, test.change)
		got := problem(t, answer, err)
		for _, want := range test.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %s; want %q", name, got, want)
			}
		}
	}
	answer, err := servertest.Answered(b.API.ImportBill(t.Context(), &adminclient.ImportBillParams{Provider: "maker"}, adminclient.WithBody("text/csv", []byte(daily("1")))))
	if got := problem(t, answer, err); !strings.Contains(got, "unsupported_media_type") {
		t.Errorf("another media type: %s", got)
	}
	list, err := servertest.Answered(b.API.ListBills(t.Context(), nil))
	servertest.Check(t, err)
	if len(list.Value.Data) != 0 {
		t.Errorf("stored: %s", list)
	}

	_, err = b.send(daily("8"), nil)
	servertest.Check(t, err)
	answer, err = b.send(daily("8"), func(p *adminclient.ImportBillParams) { p.Credential = new("main") })
	if got := problem(t, answer, err); !strings.Contains(got, "bill_imported") {
		t.Errorf("the same file for a credential: %s", got)
	}
	bill, err := servertest.Answered(b.API.GetBill(t.Context(), "bil_x"))
	if got := problem(t, bill, err); !strings.Contains(got, "not_found") {
		t.Errorf("no id: %s", got)
	}
	differences, err := servertest.Answered(b.API.ListBillDifferences(t.Context(), ident.Bill.New(), nil))
	if got := problem(t, differences, err); !strings.Contains(got, "not_found") {
		t.Errorf("another id: %s", got)
	}
}
