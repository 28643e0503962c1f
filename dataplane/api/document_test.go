package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/api"
	"modelgateway/shared/apierr"
	"modelgateway/shared/platform/apidoc"
	"modelgateway/shared/platform/apidoc/apitest"
)

var (
	loadTested = sync.OnceValues(func() (*apitest.Document, error) { return apitest.Load(api.Document) })
	loadParsed = sync.OnceValues(func() (*apidoc.Document, error) { return apidoc.Parse(api.Document) })
)

func load(t *testing.T) (*apitest.Document, *apidoc.Document) {
	t.Helper()
	tested, err := loadTested()
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := loadParsed()
	if err != nil {
		t.Fatal(err)
	}
	return tested, parsed
}

func TestOperationsAreComplete(t *testing.T) {
	t.Parallel()
	_, doc := load(t)
	var got []string
	for _, op := range doc.Operations {
		got = append(got, op.Method+" "+op.Path)
		if op.Summary == "" || strings.HasSuffix(op.Summary, ".") || op.Description == "" || doc.Tags[op.Tag] == "" {
			t.Errorf("%s: want a summary without a full stop, a description and a tag that the document describes: %+v", op.ID, op)
		}
		for _, answer := range op.Responses {
			names := map[string]bool{}
			for _, h := range answer.Headers {
				names[h.Name] = true
			}
			if !names["x-request-id"] || !names["request-id"] {
				t.Errorf("%s: %s does not declare a header with the id of the request", op.ID, answer.Status)
			}
		}
	}
	want := []string{
		"POST /v1/chat/completions", "POST /v1/responses", "POST /v1/messages", "POST /v1/images/generations", "POST /v1/videos",
		"GET /v1/videos/{id}", "GET /v1/videos/{id}/content", "GET /v1/models", "GET /v1/balance",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
}

// media calls visit for every media type of every body of the document.
func media(tested *apitest.Document, visit func(at, pointer, mediaType string, node map[string]any)) {
	for i := range tested.Operations {
		op := &tested.Operations[i]
		bodies := map[string]string{}
		if _, ok := op.Node["requestBody"]; ok {
			bodies["request"] = op.Pointer + "/requestBody"
		}
		for status := range member(op.Node, "responses") {
			bodies[status] = op.Pointer + "/responses/" + status
		}
		for name, pointer := range bodies {
			node := op.Node
			for step := range strings.SplitSeq(strings.TrimPrefix(pointer, op.Pointer+"/"), "/") {
				node = member(node, step)
			}
			pointer, node := tested.Resolve(pointer, node)
			for mediaType, content := range member(node, "content") {
				at := pointer + "/content/" + strings.ReplaceAll(mediaType, "/", "~1")
				visit(op.ID()+" "+name, at, mediaType, content.(map[string]any))
			}
		}
	}
}

func TestExamplesMatchTheirSchemas(t *testing.T) {
	t.Parallel()
	tested, _ := load(t)
	checked := 0
	media(tested, func(at, pointer, mediaType string, node map[string]any) {
		for name, example := range member(node, "examples") {
			_, example := tested.Resolve("", example.(map[string]any))
			switch mediaType {
			case "application/json":
				checked++
				if err := tested.Check(pointer+"/schema", example["value"]); err != nil {
					t.Errorf("%s: example %s: %v", at, name, err)
				}
			case "text/event-stream":
				ref := member(node, "x-event")["$ref"].(string)
				for _, data := range events(example["value"].(string)) {
					checked++
					if err := tested.Check(strings.TrimPrefix(ref, "#"), data); err != nil {
						t.Errorf("%s: example %s: %v", at, name, err)
					}
				}
			}
		}
	})
	if checked < 100 {
		t.Errorf("only %d values were checked", checked)
	}
}

// events returns the JSON data of the events of a stream.
func events(stream string) []any {
	var all []any
	for line := range strings.SplitSeq(stream, "\n") {
		data, isData := strings.CutPrefix(line, "data: ")
		if !isData || data == "[DONE]" {
			continue
		}
		var value any
		if err := json.Unmarshal([]byte(data), &value); err != nil {
			panic(fmt.Sprintf("%s: %v", data, err))
		}
		all = append(all, value)
	}
	return all
}

// errorExample is the error of an example, in either envelope.
type errorExample struct {
	RequestID string `json:"request_id"`
	Error     struct {
		Message, Param string
		Code           apierr.Code
		RequestID      string `json:"request_id"`
	}
}

// Every example of an error equals the envelope that package apierr builds from
// its status, code, message and parameter, and is in the table of errors.
func TestErrorExamplesAreRealEnvelopes(t *testing.T) {
	t.Parallel()
	tested, _ := load(t)
	listed := map[string]bool{}
	for _, row := range tested.Root()["x-errors"].([]any) {
		code, _ := row.(map[string]any)["code"].(string)
		listed[row.(map[string]any)["status"].(string)+" "+code] = false
	}
	media(tested, func(at, _, _ string, node map[string]any) {
		_, status, _ := strings.Cut(at, " ")
		if status < "4" || status > "6" {
			return
		}
		key := status
		if status == "4XX" { // the table has the usual status of the code
			status, key = "409", "400"
		}
		for name, example := range member(node, "examples") {
			_, example := tested.Resolve("", example.(map[string]any))
			text, err := json.Marshal(example["value"])
			if err != nil {
				t.Fatal(err)
			}
			var read errorExample
			if err := json.Unmarshal(text, &read); err != nil {
				t.Fatalf("%s: %s: %v", at, name, err)
			}
			e := apierr.New(statusCode(t, status), read.Error.Code, read.Error.Message)
			e.Param = read.Error.Param
			want := e.Envelope(read.Error.RequestID)
			if strings.HasPrefix(at, "createMessage ") {
				want = e.MessagesEnvelope(read.RequestID)
			}
			if diff := cmp.Diff(decode(t, want), decode(t, text)); diff != "" {
				t.Errorf("%s: example %s (-apierr +document):\n%s", at, name, diff)
			}
			if _, ok := listed[key+" "+string(e.Code)]; !ok {
				t.Errorf("%s: example %s: %s %q is not in x-errors", at, name, key, e.Code)
			}
			listed[key+" "+string(e.Code)] = true
		}
	})
	for row, found := range listed {
		if !found {
			t.Errorf("x-errors has %q, which is no response of an operation", row)
		}
	}
}

func statusCode(t *testing.T, text string) int {
	t.Helper()
	status, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

func decode(t *testing.T, text []byte) any {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// The responses that have headers about retries declare them.
func TestRetryHeaders(t *testing.T) {
	t.Parallel()
	tested, _ := load(t)
	for i := range tested.Operations {
		op := &tested.Operations[i]
		for status := 400; status < 600; status++ {
			_, response := tested.Response(op, status)
			if member(op.Node, "responses")[strconv.Itoa(status)] == nil || status == http.StatusRequestedRangeNotSatisfiable {
				continue
			}
			e := apierr.New(status, apierr.InvalidRequest, "")
			headers := member(response, "headers")
			if _, has := headers["x-should-retry"]; has != e.Permanent() {
				t.Errorf("%s: %d has x-should-retry: %t; want %t", op.ID(), status, has, e.Permanent())
			}
			if _, has := headers["retry-after"]; has != (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable) {
				t.Errorf("%s: %d has retry-after: %t", op.ID(), status, has)
			}
		}
	}
}

func TestEveryComponentIsUsed(t *testing.T) {
	t.Parallel()
	tested, _ := load(t)
	for kind, components := range member(tested.Root(), "components") {
		for name := range components.(map[string]any) {
			if kind != "securitySchemes" && !bytes.Contains(api.Document, []byte("#/components/"+kind+"/"+name+"'")) {
				t.Errorf("nothing refers to %s %s", kind, name)
			}
		}
	}
}

func TestRegisterServesTheDocumentAndItsPage(t *testing.T) {
	t.Parallel()
	_, doc := load(t)
	mux := http.NewServeMux()
	api.Register(mux)
	get := func(path string) string {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.Code != http.StatusOK {
			t.Fatalf("%s: got %d", path, w.Code)
		}
		return w.Body.String()
	}
	if get("/openapi.yaml") != string(api.Document) {
		t.Error("/openapi.yaml is not the document")
	}
	page := get("/docs")
	ids := []string{"errors"}
	for _, op := range doc.Operations {
		ids = append(ids, op.ID)
	}
	for _, id := range ids {
		if !strings.Contains(page, ` id="`+id+`"`) {
			t.Errorf("%s is not on the page", id)
		}
	}
	for _, link := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(page, ` id="`+link[1]+`"`) {
			t.Errorf("the link to %s has no target on the page", link[1])
		}
	}
	if i := slices.IndexFunc([]string{"<script", "<link", "<img", "src="}, func(s string) bool { return strings.Contains(page, s) }); i >= 0 {
		t.Error("the page refers to external resources")
	}
}

func member(node map[string]any, name string) map[string]any {
	m, _ := node[name].(map[string]any)
	return m
}
