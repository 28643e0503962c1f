package gwctl_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/gwctl"
	"modelgateway/shared/platform/apidoc"
)

// The command line in the help of a command sends the request that the document describes.
func TestEveryOperationHasACommandWithAWorkingExample(t *testing.T) {
	t.Parallel()
	doc := document(t)
	examples := gwctl.CommandLines(t, document(t))
	for _, op := range doc.Operations {
		if len(examples[op.ID]) == 0 {
			t.Errorf("%s has no command", op.ID)
		}
		for path, example := range examples[op.ID] {
			b := setup(t, nil)
			line, _, _ := strings.Cut(example, "\n")
			words := split(line)
			if len(words) < 3 || !strings.HasPrefix(strings.Join(words[1:], " "), path) {
				t.Errorf("%s: the example of %s is %q", op.ID, path, example)
				continue
			}
			for _, word := range words {
				if _, name, found := strings.Cut(word, "=@"); found {
					b.file(name, wholeBody(doc, op))
				}
				if _, name, found := strings.Cut(word, "-file="); found {
					b.file(name, "a secret")
				}
			}
			if op.ID == "importBill" {
				b.file("FILE", "day,amount")
			}
			// The commands of these two make more than one call.
			if path == "catalog apply" || path == "catalog export" {
				continue
			}
			if code, _, errs := b.run(words[1:]...); code != gwctl.ExitOK {
				t.Errorf("%s: %s: exit %d: %s", op.ID, example, code, errs)
				continue
			}
			if got := b.last(); got.Method != op.Method || !pattern(op.Path).MatchString(got.Path) {
				t.Errorf("%s: %s sent %s %s; want %s %s", op.ID, example, got.Method, got.Path, op.Method, op.Path)
			}
		}
	}
}

// pattern returns an expression for a path with parameters.
func pattern(path string) *regexp.Regexp {
	return regexp.MustCompile("^" + regexp.MustCompile(`\\\{[^/]*?\\\}`).ReplaceAllString(regexp.QuoteMeta(path), "[^/]+") + "$")
}

// wholeBody returns a body with all required members.
func wholeBody(doc *apidoc.Document, op *apidoc.Operation) string {
	var members []string
	for _, media := range op.Body.Media {
		for _, p := range doc.Members(media.Schema) {
			if p.Required {
				members = append(members, p.Name+": null")
			}
		}
	}
	return "{" + strings.Join(members, ", ") + "}"
}

// split splits a command line like a shell, as far as the examples need.
func split(line string) []string {
	var words []string
	for _, m := range regexp.MustCompile(`(?:[^\s']|'[^']*')+`).FindAllString(line, -1) {
		words = append(words, strings.ReplaceAll(m, "'", ""))
	}
	return words
}

func TestCommandNamesAreUnique(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for id, examples := range gwctl.CommandLines(t, document(t)) {
		for path := range examples {
			if other, taken := seen[path]; taken {
				t.Errorf("`gwctl %s` is %s and %s", path, other, id)
			}
			seen[path] = id
		}
	}
}

// Scripts rely on these names.
func TestCommandNamesOfOperationIDs(t *testing.T) {
	t.Parallel()
	examples := gwctl.CommandLines(t, document(t))
	for id, want := range map[string]string{
		"createAccount": "accounts create", "getBalance": "balance get", "createCredit": "credits create", "listLedger": "ledger list",
		"listKeys": "keys list", "revealKey": "keys reveal", "revokeKey": "keys revoke", "importKeys": "keys import",
		"grantModel": "models grant", "listUsage": "usage list", "checkLedger": "ledger check", "listProxies": "proxies list",
		"createToken": "tokens create", "getCatalog": "catalog get",
	} {
		if _, found := examples[id][want]; !found {
			t.Errorf("%s is %v; want %s", id, slices.Collect(maps.Keys(examples[id])), want)
		}
	}
}

// odd is a document from which commands are hard to derive.
const odd = `
openapi: 3.1.0
tags: [{name: things, description: Things.}]
paths:
  /v1/things:
    get:
      operationId: getThings
      tags: [things]
      summary: Get things
      parameters:
        - {name: output, in: query, schema: {type: string}}
        - {name: sort_by, in: query, schema: {type: array, items: {type: string, enum: [a, b]}}}
        - {name: by, in: query, style: form, explode: false, schema: {type: array, items: {type: string}}}
        - {name: X-Trace, in: header, schema: {type: string}}
        - {name: Accept, in: header, schema: {type: string}}
      responses:
        "200": {description: All., content: {text/csv: {}, application/x-ndjson: {}}}
  /v1/things/{thing_id}/parts/{part_id}:
    parameters:
      - {name: part_id, in: path, required: true, schema: {type: string}}
    get:
      operationId: getThing
      tags: [things]
      summary: Get a thing
      parameters:
        - {name: thing_id, in: path, required: true, schema: {type: string}}
      responses: {"200": {description: It., content: {application/json: {schema: {type: object}}}}}
    patch:
      operationId: patchHTTPThing
      tags: [things]
      summary: Patch
      parameters:
        - {name: thing_id, in: path, required: true, schema: {type: string}}
        - {name: name, in: query, schema: {type: string}}
        - {name: If-Match, in: header, schema: {type: string}}
      requestBody:
        content:
          application/json:
            schema:
              allOf:
                - {$ref: "#/components/schemas/Base"}
                - {type: object, required: [price], properties: {price: {type: [string, "null"]}}}
      responses: {"204": {description: Done.}}
  /v1/keys:rotate:
    post: {operationId: rotateMasterKeys, tags: [things], summary: Rotate, responses: {"204": {description: Done.}}}
components:
  schemas:
    Base:
      type: object
      properties:
        name: {type: string}
        data: {type: integer}
        on: {type: boolean}
        at: {type: string, format: date-time}
        tags: {type: array, items: {type: string}}
        rate: {type: number}
        nested: {type: object, properties: {a: {type: string}}}
        list: {type: array, items: {type: object}}
`

func parse(t *testing.T, text string) *apidoc.Document {
	t.Helper()
	doc, err := apidoc.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestUnusualDocument(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.document = parse(t, odd)
	b.file("list.yaml", "- {x: 1e-07, y: [true, null, ~, 'no', 007]}\n")
	tests := []struct {
		name string
		args string
		want seen
	}{
		{"flag of the tool's name, list, header", "things get --query-output=x --sort-by=a,b --sort-by a --by day --by=key,model --x-trace 7", seen{Method: "GET", Path: "/v1/things", Query: "by=day%2Ckey%2Cmodel&output=x&sort_by=a&sort_by=b&sort_by=a"}},
		{"single beside plural, parameters of two places in the order of the path", "thing get a/b p", seen{Method: "GET", Path: "/v1/things/a%2Fb/parts/p"}},
		{
			"body of every type",
			`http-thing patch t p --name=q --body-name=n --body-data=7 --on --at=2026-01-31 --tags=a,b --rate=1e-07 --nested={"a":"b"} --list=@list.yaml --price=null`,
			seen{Method: "PATCH", Path: "/v1/things/t/parts/p", Query: "name=q", Body: `{"at":"2026-01-31T00:00:00Z","data":7,"list":[{"x":1e-07,"y":[true,null,null,"no","007"]}],"name":"n","nested":{"a":"b"},"on":true,"price":null,"rate":1e-07,"tags":["a","b"]}`},
		},
		{"no body where none is needed", "http-thing patch t p", seen{Method: "PATCH", Path: "/v1/things/t/parts/p"}},
		{"a body as it is", `http-thing patch t p --data={"price":"1"}`, seen{Method: "PATCH", Path: "/v1/things/t/parts/p", Body: `{"price":"1"}`}},
		{"a body with flags over it", `http-thing patch t p --data={"price":"1","name":"x"} --body-name=y`, seen{Method: "PATCH", Path: "/v1/things/t/parts/p", Body: `{"name":"y","price":"1"}`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b.ok(strings.Fields(tt.args)...)
			got := b.last()
			got.Header = nil
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAcceptChoosesTheMediaType(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.document = parse(t, odd)
	for args, want := range map[string]string{
		"things get": "text/csv", "things get --accept ndjson": "application/x-ndjson", "thing get t p": "application/json",
	} {
		b.ok(strings.Fields(args)...)
		if got := b.last().Header.Get("Accept"); got != want {
			t.Errorf("%s asks for %s; want %s", args, got, want)
		}
	}
}

func TestInvalidInputIsNotSent(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.document = parse(t, odd)
	for _, args := range []string{
		"things get --sort-by=c", "things get --accept xml", "things get extra", "things bogus", "bogus", "things get --bogus",
		"thing get t", "http-thing patch t p --on=perhaps", "http-thing patch t p --body-data=1.5", "http-thing patch t p --at=today",
		"http-thing patch t p --rate=0x1p-2", "http-thing patch t p --body-name=x", "http-thing patch t p --data=[1]",
		"http-thing patch t p --data=@missing", "things get -o xml", "things get --server=nonsense",
	} {
		code, _, errs := b.run(strings.Fields(args)...)
		if code != gwctl.ExitUsage || !strings.Contains(errs, "gwctl: ") {
			t.Errorf("%s: exit %d, %q; want %d", args, code, errs, gwctl.ExitUsage)
		}
	}
	if len(b.seen) > 0 {
		t.Errorf("sent %v", b.seen)
	}
}
