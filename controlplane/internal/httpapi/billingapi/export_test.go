package billingapi_test

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
)

// fill writes usage records of a key, a second apart, the last one a minute ago.
func (b *server) fill(k *adminclient.IssuedKey, records, padding int) {
	b.T.Helper()
	account, err := ident.Account.Parse(k.AccountID)
	servertest.Check(b.T, err)
	key, err := ident.Key.Parse(k.ID)
	servertest.Check(b.T, err)
	_, err = b.DB.Pool().Exec(b.T.Context(), `
		insert into usage_records (request_id, session_id, seq, account_id, key_id, model, format, provider, status, started_at, finished_at, usage,
			rule, price_version, cost, reservation)
		select (left(uuid_floor(at)::text, 14) || '7' || lpad(to_hex(g % 4096), 3, '0') || '-8000-' || lpad(to_hex(g), 12, '0'))::uuid, 1, g, $1, $2,
			'model-' || g % 3, 'chat', repeat('x', $4), 'completed', at, now(), '{"input": 5}', 'reported', 1, g as cost, g as reservation
		from generate_series(1, $3) g, lateral (select now() - interval '1 minute' - ($3 - g) * interval '1 second' as at) as moments`,
		account, key, records, padding)
	servertest.Check(b.T, err)
}

// exported reads a whole export of usage.
func (b *server) exported(params adminclient.ExportUsageParams) (string, adminclient.ExportSummary) {
	b.T.Helper()
	answer, err := b.API.ExportUsage(b.T.Context(), &params)
	servertest.Check(b.T, err)
	var text bytes.Buffer
	done, err := answer.CopyTo(&text)
	servertest.Check(b.T, err)
	return text.String(), done
}

// records parses lines of JSON.
func records(t *testing.T, text string) []adminclient.UsageRecord {
	t.Helper()
	var found []adminclient.UsageRecord
	for decoder := json.NewDecoder(strings.NewReader(text)); decoder.More(); {
		var r adminclient.UsageRecord
		servertest.Check(t, decoder.Decode(&r))
		found = append(found, r)
	}
	return found
}

func TestExportUsage(t *testing.T) {
	t.Parallel()
	const all = 2500 // three pages
	b := start(t)
	k := b.Key(b.Account(1).ID, "")
	other := b.Key(b.Account(1).ID, "")
	b.fill(k, all, 3)
	text, done := b.exported(adminclient.ExportUsageParams{})
	got := records(t, text)
	if len(got) != all || done.Rows != all || done.Cursor != got[all-1].RequestID {
		t.Fatalf("got %d rows, and trailers %+v; want %d", len(got), done, all)
	}
	if !slices.IsSortedFunc(got, func(a, b adminclient.UsageRecord) int { return strings.Compare(a.RequestID, b.RequestID) }) {
		t.Error("rows are not in order")
	}
	one, err := servertest.Answered(b.API.GetUsage(t.Context(), got[7].RequestID))
	servertest.Check(t, err)
	if one.StatusCode == http.StatusOK {
		if diff := cmp.Diff(one.Value.Cost, got[7].Cost); diff != "" {
			t.Errorf("cost (-record +row):\n%s", diff)
		}
	}

	// The other format has the same rows, and an export can be continued after any row.
	format := adminclient.ExportFormatCSV
	table, done := b.exported(adminclient.ExportUsageParams{Format: &format, Cursor: &got[1299].RequestID})
	rows, err := csv.NewReader(strings.NewReader(table)).ReadAll()
	servertest.Check(t, err)
	if len(rows) != 1+1200 || done.Rows != 1200 {
		t.Fatalf("got %d rows from the middle, %+v; want 1200 and a header", len(rows), done)
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	for i, row := range rows[1:] {
		want := got[1300+i]
		if row[column["request_id"]] != want.RequestID || row[column["cost"]] != want.Cost || row[column["input"]] != "5" || row[column["currency"]] != "USD" {
			t.Fatalf("row %d: %v; want %+v", i, row, want)
		}
		if at, err := time.Parse(time.RFC3339, row[column["started_at"]]); err != nil || !at.Equal(want.StartedAt) {
			t.Fatalf("row %d: started %s, %v", i, row[column["started_at"]], err)
		}
	}

	model := "model-1"
	from, to := got[100].StartedAt, got[200].StartedAt
	for name, tt := range map[string]struct {
		params adminclient.ExportUsageParams
		want   int64
	}{
		"key":             {adminclient.ExportUsageParams{KeyID: &k.ID}, all},
		"other key":       {adminclient.ExportUsageParams{KeyID: &other.ID}, 0},
		"key and account": {adminclient.ExportUsageParams{KeyID: &k.ID, AccountID: &other.AccountID}, 0},
		"account":         {adminclient.ExportUsageParams{AccountID: &k.AccountID, Model: &model}, 834},
		"key and model":   {adminclient.ExportUsageParams{KeyID: &k.ID, Model: &model}, 834},
		"model":           {adminclient.ExportUsageParams{Model: &model}, 834},
		"time":            {adminclient.ExportUsageParams{From: &from, To: &to}, 100},
		"time and model":  {adminclient.ExportUsageParams{From: &from, To: &to, Model: &model}, 33},
	} {
		if _, done := b.exported(tt.params); done.Rows != tt.want {
			t.Errorf("%s: got %d rows; want %d", name, done.Rows, tt.want)
		}
	}
	bad := adminclient.ExportFormat("xls")
	for _, params := range []adminclient.ExportUsageParams{{Format: &bad}, {Cursor: new("x")}, {KeyID: new("x")}} {
		_, err := b.API.ExportUsage(t.Context(), &params)
		if e, ok := errors.AsType[*adminclient.Error](err); !ok || e.StatusCode != http.StatusBadRequest {
			t.Errorf("%+v: got %v; want 400", params, err)
		}
	}
}

func TestExportLedger(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	a, other := b.Account(1), b.Account(1)
	for i := range 5 {
		b.Credit(a.ID, "1.00", strings.Repeat("=x", i+1))
	}
	expires := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	_, err := servertest.Answered(b.API.CreateCredit(t.Context(), other.ID, nil, adminclient.CreditCreate{
		Amount: "7.00", Kind: adminclient.CreditKindPromotion, Reference: "other", ExpiresAt: &expires, Priority: new(7),
	}))
	servertest.Check(t, err)
	b.Proxy("p").Report(b.Key(a.ID, ""), time.Now(), b.Sheet("demo-chat"), price.Usage{Input: 1_000_000})
	read := func(params adminclient.ExportLedgerParams) (entries []adminclient.LedgerEntry, done adminclient.ExportSummary) {
		t.Helper()
		answer, err := b.API.ExportLedger(t.Context(), &params)
		servertest.Check(t, err)
		var text bytes.Buffer
		done, err = answer.CopyTo(&text)
		servertest.Check(t, err)
		for decoder := json.NewDecoder(&text); decoder.More(); {
			var e adminclient.LedgerEntry
			servertest.Check(t, decoder.Decode(&e))
			entries = append(entries, e)
		}
		return entries, done
	}
	whole, done := read(adminclient.ExportLedgerParams{})
	if len(whole) != 14 || done.Rows != 14 {
		t.Fatalf("got %d entries; want 7 transactions of two", len(whole))
	}
	if whole[0].Kind != "payment" || whole[13].Kind != "usage" || whole[13].LedgerAccount == whole[12].LedgerAccount {
		t.Errorf("first and last: %+v, %+v", whole[0], whole[13])
	}
	for i := range whole { // both sides have what a credit has
		credit := whole[i].Kind != "usage"
		given := credit && whole[i].Reference == "other"
		if e := &whole[i]; (e.Priority != nil) != credit || (e.ExpiresAt != nil) != given || (given && (*e.Priority != 7 || !e.ExpiresAt.Equal(expires))) {
			t.Errorf("entry %d: %+v; want the priority and the expiry of credits alone", i, e)
		}
	}
	own, _ := read(adminclient.ExportLedgerParams{AccountID: &a.ID})
	if len(own) != 6 {
		t.Errorf("got %d entries of the account; want 6", len(own))
	}
	for i := range whole { // from wherever it broke off, the rest is the same
		cursor := whole[i].TransactionID + "/" + string(rune('0'+whole[i].Line))
		rest, _ := read(adminclient.ExportLedgerParams{Cursor: &cursor})
		if diff := cmp.Diff(append([]adminclient.LedgerEntry{}, whole[i+1:]...), append([]adminclient.LedgerEntry{}, rest...)); diff != "" {
			t.Errorf("behind entry %d (-want +got):\n%s", i, diff)
		}
	}
	cursor := own[2].TransactionID + "/1"
	if rest, _ := read(adminclient.ExportLedgerParams{AccountID: &a.ID, Cursor: &cursor}); len(rest) != 3 {
		t.Errorf("got %d entries of the account after the third; want 3", len(rest))
	}
	if none, _ := read(adminclient.ExportLedgerParams{To: &own[0].BookedAt, AccountID: &a.ID}); len(none) != 0 {
		t.Errorf("got %d entries before the first", len(none))
	}
	for _, cursor := range []string{"x", "txn_1/1", own[0].TransactionID, own[0].TransactionID + "/0", "txn_00000000000070008000000000000000/1"} {
		if _, err := b.API.ExportLedger(t.Context(), &adminclient.ExportLedgerParams{Cursor: &cursor}); adminclient.Code(err) != "invalid_input" {
			t.Errorf("cursor %q was taken", cursor)
		}
	}
	format := adminclient.ExportFormatCSV
	answer, err := b.API.ExportLedger(t.Context(), &adminclient.ExportLedgerParams{Format: &format})
	servertest.Check(t, err)
	var table bytes.Buffer
	_, err = answer.CopyTo(&table)
	servertest.Check(t, err)
	if !strings.Contains(table.String(), ",'=x=x,") || strings.Contains(table.String(), ",=x") {
		t.Errorf("a reference can be taken for a formula:\n%s", table.String())
	}
}

// An export is much larger than the memory that it needs, and a truncated one is recognised. The
// test measures the heap, so it runs alone.
func TestExportUsesLittleMemory(t *testing.T) { //nolint:paralleltest // see above
	if testing.Short() {
		t.Skip("writes 60 MB")
	}
	const (
		rows     = 40_000
		padding  = 1500
		heapGrow = 24 << 20
	)
	b := start(t)
	b.fill(b.Key(b.Account(1).ID, ""), rows, padding)
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	streaming, err := adminclient.New(b.URL, servertest.BootstrapToken) // the one of the other tests reads answers whole, to check them
	servertest.Check(t, err)
	answer, err := streaming.ExportUsage(t.Context(), &adminclient.ExportUsageParams{})
	servertest.Check(t, err)
	reader := bufio.NewReader(answer.Body)
	lines, size := 0, 0
	for lines < 5000 {
		line, err := reader.ReadBytes('\n')
		servertest.Check(t, err)
		size += len(line)
		if lines++; lines%1000 == 0 {
			if grown := heap() - before; grown > heapGrow {
				t.Errorf("the heap has grown by %d MiB after %d MB", grown>>20, size>>20)
			}
		}
	}
	// Rows that are not sent yet cannot be read any more.
	_, err = b.DB.Pool().Exec(t.Context(), "drop table usage_records")
	servertest.Check(t, err)
	answer.Body = struct {
		io.Reader
		io.Closer
	}{reader, answer.Body}
	var rest countWriter
	done, err := answer.CopyTo(&rest)
	if !errors.Is(err, adminclient.ErrIncomplete) {
		t.Errorf("got %+v, %v after %d more bytes; want it incomplete", done, err, rest)
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) { // or whoever knows nothing of trailers would take it for the whole
		t.Errorf("got %v; want the response to be cut off", err)
	}
	if total := size + int(rest); total >= rows*padding {
		t.Errorf("all %d bytes had been sent: the export was not streamed", total)
	}
}

type countWriter int

func (c *countWriter) Write(b []byte) (int, error) { *c += countWriter(len(b)); return len(b), nil }
