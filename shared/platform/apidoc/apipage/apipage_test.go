package apipage_test

import (
	"html"
	"strings"
	"testing"

	"modelgateway/shared/platform/apidoc/apipage"
)

const sample = `
openapi: 3.1.0
info: {title: A, version: "1", summary: An API., description: Two ` + "`words`" + `.}
tags: [{name: b, description: About b.}]
x-errors:
  - {code: bad_thing, status: 400, description: Something <bad>., retry: "no"}
  - {status: 500, description: Unknown., retry: "yes"}
paths:
  /b:
    get:
      operationId: getB
      tags: [b]
      summary: Get b
      responses:
        "200":
          description: Yes.
          headers: {X-Why: {description: Because., schema: {type: string}}}
          content:
            text/event-stream:
              examples: {short: {summary: One event, value: "data: 1"}}
`

func TestNewRendersErrorsHeadersAndExamples(t *testing.T) {
	t.Parallel()
	site, err := apipage.New([]byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	page := string(site.Page())
	for _, want := range []string{
		"<code>bad_thing</code>", "no code", "Something &lt;bad&gt;.", "<code>words</code>", "<code>X-Why</code>", "Because.", "One event", "<pre>data: 1</pre>",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	for _, unwanted := range []string{`id="problems"`, "scope "} {
		if strings.Contains(page, unwanted) {
			t.Errorf("the page has %q, which is not in the document", unwanted)
		}
	}
}

func TestOperationsHaveCurlLines(t *testing.T) {
	t.Parallel()
	site, err := apipage.New([]byte(`
openapi: 3.1.0
tags: [{name: b, description: About b.}]
paths:
  /b/{id}:
    parameters: [{name: id, in: path, required: true, schema: {type: string, examples: [b_1]}}]
    get:
      operationId: getB
      tags: [b]
      security: [{token: [read]}]
      parameters: [{name: since, in: query, required: true, schema: {type: string}}, {name: limit, in: query, schema: {type: string}}]
    put:
      operationId: putB
      tags: [b]
      parameters: [{name: If-Match, in: header, required: true, schema: {type: string}}]
      requestBody: {content: {application/json: {example: {text: "it's <b>"}}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	page := html.UnescapeString(string(site.Page()))
	for _, want := range []string{
		`<pre class="curl">curl -sS --fail-with-body 'https://HOST/b/b_1?since=SINCE' -H "Authorization: Bearer $MGW_ADMIN_TOKEN"</pre>`,
		`<pre class="curl">curl -sS --fail-with-body -X PUT 'https://HOST/b/b_1' -H "Authorization: Bearer $MGW_API_KEY" -H 'If-Match: IF_MATCH' \
  -H 'Content-Type: application/json' -d '{"text":"it'\''s <b>"}'</pre>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no line %s", want)
		}
	}
}

func TestNewReturnsErrors(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"a: [", "info: [1]"} {
		if _, err := apipage.New([]byte(text)); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}
