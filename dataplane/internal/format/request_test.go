package format

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
)

var testSpec = Spec{
	Format: catalogkv.Chat,
	Policy: NewPolicy(
		Param{Name: "model", Action: Replace, Types: String},
		Param{Name: "text", Action: Forward, Types: String | Array, Required: true},
		Param{Name: "free", Action: Forward},
		Param{Name: "off", Action: Reject, Allow: []string{`false`, `"auto"`}},
		Param{Name: "tier", Action: Force, Value: `"default"`, Allow: []string{`"auto"`, `"default"`}},
		Param{Name: "store", Action: Force, Value: `false`},
		Param{Name: "gone", Action: Drop},
		Param{Name: "n", Action: Clamp, Types: Integer, Min: 1, Max: 10},
		Param{Name: "user", Action: Replace, Types: String},
		Param{Name: "fixed", Action: Replace, Value: `"ours"`},
		Param{Name: "one_of", Action: Forward, Allow: []string{`"a"`, `"b"`}},
		Param{Name: "but", Action: Forward, Deny: []string{`"svg"`}},
		Param{Name: "options", Action: Forward, Types: Object, Closed: true},
		Param{Name: "options.known", Action: Forward, Types: Boolean},
		Param{Name: "options.off", Action: Reject},
		Param{Name: "stream", Action: Forward},
		Param{Name: "limit", Action: Forward},
		Param{Name: "old_limit", Action: Forward},
		Param{Name: "tools", Action: Forward, Types: Array},
		Param{Name: "parts", Action: Forward},
	),
	Content:   []string{"text", "tools", "parts"},
	Limits:    []string{"limit", "old_limit"},
	UserParam: "user",
	Tools: NewTools([]string{"tools[]"}, func(kind string, _ []byte) ToolClass {
		switch {
		case kind == "" || kind == "function" || kind == "group":
			return ClientTool
		case kind == "secondary_model":
			return UnpricedTool
		}
		return ProviderTool
	}, func([]byte) ToolChoice { return ToolChoice{} }),
}

func parse(tb testing.TB, body string) *jsonspan.Object {
	tb.Helper()
	var obj jsonspan.Object
	if err := obj.Parse([]byte(body)); err != nil {
		tb.Fatalf("%v in %s", err, body)
	}
	return &obj
}

func read(tb testing.TB, body string) *Request {
	tb.Helper()
	r, e := testSpec.Read(parse(tb, body))
	if e != nil {
		tb.Fatal(e)
	}
	return r
}

func TestReadRequiresAModel(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{}`, `{"model":null}`, `{"model":""}`, `{"model":7}`, `{"model":["m"]}`} {
		_, e := testSpec.Read(parse(t, body))
		if e == nil || e.Status != 400 || e.Code != apierr.InvalidRequest || e.Param != "model" {
			t.Errorf("%s: got %v", body, e)
		}
	}
	r := read(t, `{"model":"a\u002fb","stream":true,"old_limit":7}`)
	if r.Model != "a/b" || !r.Stream || r.MaxOutput != 7 || r.N != 1 {
		t.Errorf("got %+v", r)
	}
}

func TestCheckReturnsTheFirstRefusal(t *testing.T) {
	t.Parallel()
	offering := testSpec.Policy.With(catalogkv.Params{"tools": {Policy: "forward", Allow: raws(`"search*"`, `"secondary_model"`)}})
	const (
		unsupported = apierr.UnsupportedParameter
		invalid     = apierr.InvalidValue
	)
	tests := []struct {
		add         string // members added to a valid body
		code        apierr.Code
		param       string
		offersTools bool // code and param apply to a policy that offers tools, too
		withoutText bool
	}{
		{add: ``},
		{add: `,"free":{"any":[1]}`},
		{add: `,"nobody":1`, code: unsupported, param: "nobody"},
		{add: `,"nobody":null`},
		{add: `,"options.known":true`, code: unsupported, param: "options.known"},
		{add: `,"off":true`, code: unsupported, param: "off"},
		{add: `,"off":false`},
		{add: `,"off":"\u0061uto"`},
		{add: `,"off":null`},
		{add: `,"tier":"flex"`, code: apierr.UnsupportedValue, param: "tier"},
		{add: `,"tier":"auto"`},
		{add: `,"store":true`},
		{add: `,"gone":[1]`},
		{add: `,"n":99`},
		{add: `,"n":1.5`, code: invalid, param: "n"},
		{add: `,"n":"1"`, code: invalid, param: "n"},
		{add: `,"user":7`, code: invalid, param: "user"},
		{add: `,"one_of":"b"`},
		{add: `,"one_of":"c"`, code: apierr.UnsupportedValue, param: "one_of"},
		{add: `,"but":"png"`},
		{add: `,"but":"svg"`, code: apierr.UnsupportedValue, param: "but"},
		{add: `,"options":{"known":true,"off":null}`},
		{add: `,"options":{"known":1}`, code: invalid, param: "options.known"},
		{add: `,"options":{"off":1}`, code: unsupported, param: "options.off"},
		{add: `,"options":{"o\u0066f":1}`, code: unsupported, param: "options.off"},
		{add: `,"options":{"else":1}`, code: unsupported, param: "options.else"},
		{add: `,"options":[]`, code: invalid, param: "options"},
		{add: `,"stream":"yes"`, code: invalid, param: "stream"},
		{add: `,"limit":-1`, code: invalid, param: "limit"},
		{add: `,"limit":2.5`, code: invalid, param: "limit"},
		{add: `,"limit":5,"old_limit":5.0`},
		{add: `,"limit":5,"old_limit":6`, code: invalid, param: "old_limit"},
		{add: `,"limit":0,"old_limit":6`, code: invalid, param: "old_limit"},
		{add: `,"nobody":1`, code: unsupported, param: "nobody", withoutText: true},
		{add: ``, code: apierr.InvalidRequest, param: "text", withoutText: true},
		{add: `,"text":null`, code: apierr.InvalidRequest, param: "text", withoutText: true},
		{add: `,"input":"x","include":[]`, code: unsupported, param: "input", withoutText: true},
		{add: `,"include":[],"input":"x"`, code: unsupported, param: "input", withoutText: true},
		{add: `,"tools":[{"type":"function"},{}]`},
		{add: `,"tools":[{},{"type":"search_2"}]`, code: unsupported, param: "tools[1].type"},
		{add: `,"tools":[{},{"type":"search_2"}]`, offersTools: true},
		{add: `,"tools":[{"type":"shell"}]`, code: unsupported, param: "tools[0].type", offersTools: true},
		{add: `,"tools":[{"type":"secondary_model"}]`, code: unsupported, param: "tools[0].type", offersTools: true},
		{add: `,"tools":[{"type":"group","tools":[{},{"type":"shell"}]}]`, code: unsupported, param: "tools[0].tools[1].type"},
		{add: `,"tools":{"type":"shell"}`, code: invalid, param: "tools"},
	}
	for _, tt := range tests {
		body := `{"model":"m","text":"x"` + tt.add + `}`
		if tt.withoutText {
			body = `{"model":"m"` + tt.add + `}`
		}
		t.Run(body, func(t *testing.T) {
			t.Parallel()
			r := read(t, body)
			policy, rules := testSpec.Policy, Rules{}
			if tt.offersTools {
				policy, rules = offering, Rules{Sheet: &price.Sheet{FreeServerTool: true}}
			}
			got := r.Check(policy, rules)
			switch {
			case tt.code == "" && got != nil:
				t.Errorf("refused: %v", got)
			case tt.code != "" && (got == nil || got.Status != 400 || got.Code != tt.code || got.Param != tt.param):
				t.Errorf("got %+v; want %s of %s", got, tt.code, tt.param)
			}
		})
	}
	// A tool that the policy allows is refused without a price.
	r := read(t, `{"model":"m","text":"x","tools":[{"type":"search"}]}`)
	if e := r.Check(offering, Rules{}); e == nil || e.Param != "tools[0].type" {
		t.Errorf("a tool without a price: %v", e)
	}
}

func raws(values ...string) (out []jsonRaw) {
	for _, v := range values {
		out = append(out, jsonRaw(v))
	}
	return out
}

func TestAppendUpstreamAppliesThePolicy(t *testing.T) {
	t.Parallel()
	target := Target{
		Model: `up"stream`, Policy: testSpec.Policy, PseudonymFunc: pseudonym,
		IdentityFunc: func(value string) string { return "hash_of_" + value },
	}
	wants := target
	wants.WantsUser = true
	none := target
	none.IdentityFunc = nil
	const forced = `,"store":false,"tier":"default"}`
	tests := []struct {
		name, body, want string
		target           Target
	}{
		{
			"all else byte for byte", "{ \"text\" : \"a\\u00e9\" ,\n\"model\":\"m\", \"free\": 1.50e0 }",
			"{ \"text\" : \"a\\u00e9\" ,\n\"model\":\"up\\\"stream\", \"free\": 1.50e0,\"store\":false,\"tier\":\"default\" }", target,
		},
		{"forced values replace", `{"tier":"auto","model":"m","store":true}`, `{"tier":"default","model":"up\"stream","store":false}`, target},
		{"null is absent", `{"model":"m","text":null,"nobody":null,"n":null,"user":null}`, `{"model":"up\"stream"` + forced, target},
		{"allowed values of refused parameters", `{"model":"m","off":false,"gone":{}}`, `{"model":"up\"stream"` + forced, target},
		{"clamped up", `{"model":"m","n":-3}`, `{"model":"up\"stream","n":1` + forced, target},
		{"clamped down", `{"model":"m","n":1e40}`, `{"model":"up\"stream","n":10` + forced, target},
		{"within the bounds", `{"model":"m","n":3.0}`, `{"model":"up\"stream","n":3.0` + forced, target},
		{"identities", `{"model":"m","user":"\u0041lice","fixed":[1]}`, `{"model":"up\"stream","user":"hash_of_Alice","fixed":"ours"` + forced, target},
		{"no identities", `{"model":"m","user":"Alice"}`, `{"model":"up\"stream"` + forced, none},
		{"own user wins", `{"model":"m","user":"Alice"}`, `{"model":"up\"stream","user":"hash_of_Alice"` + forced, wants},
		{"pseudonym", `{"model":"m"}`, `{"model":"up\"stream","store":false,"tier":"default","user":"acc"}`, wants},
		{"parameter without a row", `{"model":"m","nobody":1}`, `{"model":"up\"stream"` + forced, target},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := read(t, tt.body)
			for range 2 { // it may be called again
				got := string(r.AppendUpstream([]byte("> "), tt.target))
				if diff := cmp.Diff("> "+tt.want, got); diff != "" {
					t.Errorf("want -, got +:\n%s", diff)
				}
			}
			if r.ContentType() != "application/json" {
				t.Errorf("content type %q", r.ContentType())
			}
			r.Release()
		})
	}
}

func TestSpliceUpstreamCopiesNoLongParts(t *testing.T) {
	t.Parallel()
	long := `"` + strings.Repeat("long ", 10_000) + `"`
	r := read(t, `{"n":2,"text":`+long+`,"model":"m","free":[`+long+`]}`)
	target := Target{Model: "upstream", Policy: testSpec.Policy}
	want := string(r.AppendUpstream(nil, target))
	for range 2 {
		edits, parts := r.SpliceUpstream([]byte("> "), target)
		if diff := cmp.Diff(want, string(slices.Concat(parts...))); diff != "" {
			t.Errorf("want -, got +:\n%s", diff)
		}
		if len(edits) > 1000 || len(parts) < 4 {
			t.Errorf("%d bytes are copied, %d parts", len(edits), len(parts))
		}
	}
	r.Release()
}

func TestEstimateInputCountsMediaByNumber(t *testing.T) {
	t.Parallel()
	picture := `{"image_url":"data:image/png;base64,` + strings.Repeat("A", 4000) + `"}`
	document := `{"file_data":"data:application/pdf;base64,` + strings.Repeat("A", 4000-28) + `"}`
	tests := []struct {
		name, body string
		want       int64
	}{
		{"one quarter, rounded up", `{"model":"m","text":"abc"}`, 2},
		{"white space within", `{"model":"m","text":  ["a", "b"],"free":"not counted"}`, 3},
		{"two members", `{"model":"m","text":"abcde","tools":[1]}`, 3},
		{"null", `{"model":"m","text":null}`, 0},
		{"pictures", `{"model":"m","parts":[` + picture + `,"abc",` + picture + `]}`, 11 + 2*1000},
		{"a document", `{"model":"m","parts":[` + document + `]}`, 5 + 1000 + 250},
		{"plain text in base64", `{"model":"m","parts":[` + strings.Replace(document, "application/pdf", "text/plain; p=1 ", 1) + `]}`, 5 + 1000 + 250 + 500},
		// Public tokenizers make 0.68 (o200k_base) and 0.72 (cl100k_base) tokens a byte of it.
		{"base64 as text", `{"model":"m","text":"` + strings.Repeat("QUJD", 1000) + `"}`, 3001},
	}
	for _, tt := range tests {
		if got := read(t, tt.body).EstimateInput(1000); got != tt.want {
			t.Errorf("%s: got %d; want %d", tt.name, got, tt.want)
		}
	}
}

func TestRefusalsNameTheParameter(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 200)
	if e := Unsupported(long); len(e.Param) > maxParamName || !strings.HasPrefix(long, e.Param) {
		t.Errorf("a name of %d bytes is answered", len(e.Param))
	}
}

type jsonRaw = json.RawMessage

func pseudonym() string { return "acc" }
