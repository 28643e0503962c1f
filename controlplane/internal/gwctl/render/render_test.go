package render_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/api"
	"modelgateway/controlplane/internal/gwctl/render"
	"modelgateway/shared/platform/apidoc"
)

func document(t *testing.T) *apidoc.Document {
	t.Helper()
	doc, err := apidoc.Parse(api.Document)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestResponsesInAllFormats(t *testing.T) {
	t.Parallel()
	const balance = `{"currency":"USD","balance":"12.30","reserved":"0","available":"12.30"}`
	tests := []struct {
		name, schema string
		format       render.Format
		columns      []string
		text, want   string
	}{
		{
			"a list with the columns of its schema", "AccountList", render.Table, nil,
			`{"data":[{"id":"acc_1","name":"Ä","status":"active","max_concurrent_requests":5,"max_open_video_jobs":7,"balance":` + balance + `,"created_at":"2026-01-31T00:00:00Z"}]}`,
			"ID     NAME  STATUS  BALANCE.BALANCE  BALANCE.AVAILABLE  BALANCE.CURRENCY  MAX_CONCURRENT_REQUESTS  MAX_OPEN_VIDEO_JOBS  CREATED_AT\nacc_1  Ä     active  12.30            12.30              USD               5                        7                    2026-01-31T00:00:00Z\n",
		},
		{"an empty list", "AccountList", render.Table, nil, `{"data":[]}`, "none\n"},
		{"an object in the order of its schema", "Balance", render.Table, nil, `{"available":"1","balance":"2","currency":"USD"}`, "currency   USD\nbalance    2\navailable  1\n"},
		{
			"members of members, and lists in an object", "Revocation", render.Table, nil,
			`{"effective":true,"revision":7,"confirmed_by":2,"key":{"id":"key_1"},"new":[{"a":1},{"a":2}]}`,
			"effective     yes\nrevision      7\nconfirmed_by  2\nkey.id        key_1\n\nnew:\nA\n1\n2\n",
		},
		{
			"a list in a member is a table with the columns of its schema", "UsageDetail", render.Table, nil,
			`{"request_id":"req_1","receipt":{"cost":"3.00","lines":[{"amount":"3.00","line":"input","quantity":3,"unit_price":"1.00","per":1}]}}`,
			"request_id    req_1\nreceipt.cost  3.00\n\nreceipt.lines:\nLINE   QUANTITY  UNIT_PRICE  PER  AMOUNT\ninput  3         1.00        1    3.00\n",
		},
		{
			"totals end with the cost", "UsageTotalList", render.Table, nil,
			`{"data":[{"day":"2026-10-02","requests":3,"estimated":0,"input":5,"cached_input":0,"cache_write":0,"output":7,"reasoning":0,"audio_in":0,"audio_out":0,"image_in":0,"image_out":0,"images":0,"seconds":0,"server_tool_requests":0,"cost":"1.50"}]}`,
			"DAY         REQUESTS  INPUT  CACHED_INPUT  OUTPUT  IMAGES  SECONDS  COST\n2026-10-02  3         5      0             7       0       0        1.50\n",
		},
		{"an empty list of texts or objects in an object", "ProviderCheck", render.Table, nil, `{"answered":true,"calls":[],"other":{"list":[]}}`, "answered    yes\ncalls       -\nother.list  -\n"},
		{"a list of texts", "GrantList", render.Table, nil, `{"models":["a","b"]}`, "models  a, b\n"},
		{"chosen columns", "AccountList", render.Table, []string{"name", "balance.currency", "no_such"}, `{"data":[{"name":"x","balance":` + balance + `}]}`, "NAME  BALANCE.CURRENCY  NO_SUCH\nx     USD               -\n"},
		{"numbers as they are", "", render.Table, nil, `{"n":1e-07,"big":9007199254740993}`, "big  9007199254740993\nn    1e-07\n"},
		{"control characters are replaced", "", render.Table, nil, `{"name":"a\u001b[2Jb\nc"}`, "name  a\uFFFD[2Jb\uFFFDc\n"},
		{
			"control characters in names of metadata are replaced", "Account", render.Table, nil, `{"id":"acc_1","metadata":{"a\u001b]0;x":"\u009b2J"}}`,
			"id               acc_1\nmetadata.a\uFFFD]0;x  \uFFFD2J\n",
		},
		{
			"control characters in an object are replaced", "AccountList", render.Table,
			[]string{"metadata"},
			`{"data":[{"metadata":{"a":"\u009b2J"}}]}`,
			"METADATA\n{\"a\":\"\uFFFD2J\"}\n",
		},
		{
			"limits with their windows", "LimitList", render.Table, nil,
			`{"data":[{"id":"lim_1","account_id":"acc_1","amount":"10.00","window":{"period":"day","time_zone":"UTC"},"models":[],"current":{"starts_at":"2026-01-31T00:00:00Z",
				"ends_at":"2026-02-01T00:00:00Z","amount":"10.00","spent":"7.00","reserved":"1.00","left":"2.00"}},
				{"id":"lim_2","account_id":"acc_1","name":"all","amount":"5.00","window":{"period":"forever"},"models":[]}]}`,
			"ID     NAME  WINDOW.PERIOD  AMOUNT  CURRENT.SPENT  CURRENT.RESERVED  CURRENT.LEFT  CURRENT.ENDS_AT\n" +
				"lim_1  -     day            10.00   7.00           1.00              2.00          2026-02-01T00:00:00Z\n" +
				"lim_2  all   forever        5.00    -              -                 -             -\n",
		},
		{"JSON keeps the order", "Balance", render.JSON, nil, `{"b":1.50,"a":[]}`, "{\n  \"b\": 1.50,\n  \"a\": []\n}\n"},
		{"YAML keeps the order and texts", "Balance", render.YAML, nil, `{"b":"1.50","a":true}`, "b: \"1.50\"\na: true\n"},
		{"lines of a list", "", render.Lines, nil, `{"data":[{"a": 1},{"b": 2}]}`, "{\"a\":1}\n{\"b\":2}\n"},
		{"one line of an object", "", render.Lines, nil, `{ "a": 1 }`, "{\"a\":1}\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			w := render.Writer{Out: &out, Doc: document(t), Format: tt.format, Columns: tt.columns}
			var schema *apidoc.Schema
			if tt.schema != "" {
				schema = &apidoc.Schema{Ref: "#/components/schemas/" + tt.schema}
			}
			if err := w.Show(schema, []byte(tt.text)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWideTableHasAllColumns(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := render.Writer{Out: &out, Doc: document(t), Format: render.Wide}
	err := w.Show(&apidoc.Schema{Ref: "#/components/schemas/KeyList"}, []byte(`{"data":[{"id":"key_1","account_id":"acc_1","revealable":true,"updated_at":"2026-01-31T00:00:00Z"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, column := range []string{"ACCOUNT_ID", "REVEALABLE", "UPDATED_AT"} {
		if !strings.Contains(out.String(), column) {
			t.Errorf("no %s in\n%s", column, out.String())
		}
	}
}

func TestDefaultColumnsExistInTheSchemas(t *testing.T) {
	t.Parallel()
	doc := document(t)
	for schema, columns := range render.DefaultColumns {
		for _, column := range columns {
			at := &apidoc.Schema{Ref: "#/components/schemas/" + schema}
			for name := range strings.SplitSeq(column, ".") {
				if at = doc.Member(at, name); at == nil {
					t.Errorf("%s has no %s", schema, column)
					break
				}
			}
		}
	}
}

func TestResponseThatIsNotJSONIsAnError(t *testing.T) {
	t.Parallel()
	for _, format := range render.Formats {
		w := render.Writer{Out: &bytes.Buffer{}, Doc: document(t), Format: render.Format(format)}
		if err := w.Show(nil, []byte("{")); err == nil {
			t.Errorf("%s: no error", format)
		}
	}
}
