package apitest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// CheckResponse returns an error if the status, the media type, a required
// header or the body of a response does not match the document. The response to
// a request without an operation, such as one for a page or an unknown path, is
// not checked.
func (d *Document) CheckResponse(r *http.Response, body []byte) error {
	method := r.Request.Method
	if method == http.MethodHead { // a document describes only the GET
		method, body = http.MethodGet, nil
	}
	op := d.Find(method, r.Request.URL.EscapedPath())
	if op == nil {
		return nil
	}
	if err := d.checkResponse(op, r, body); err != nil {
		return fmt.Errorf("%s: %s answers %d: %w", op.ID(), r.Request.URL.Path, r.StatusCode, err)
	}
	return nil
}

func (d *Document) checkResponse(op *Operation, r *http.Response, body []byte) error {
	at, response := d.Response(op, r.StatusCode)
	if response == nil {
		return errors.New("the status is not declared")
	}

	for name, header := range member(response, "headers") {
		_, header := d.Resolve("", header.(object))
		if required, _ := header["required"].(bool); required && r.Header.Get(name) == "" {
			return fmt.Errorf("the header %s is missing", name)
		}
	}

	content := member(response, "content")
	if r.Request.Method == http.MethodHead {
		return nil
	}

	if len(content) == 0 {
		if len(body) > 0 {
			return errors.New("it has a body")
		}
		return nil
	}

	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return fmt.Errorf("the media type: %w", err)
	}
	if kind, _, _ := strings.Cut(media, "/"); content[media] == nil && content[kind+"/*"] != nil {
		return nil // the document declares a range of media types without a schema to check
	}
	if content[media] == nil {
		return fmt.Errorf("the media type %q is not declared", media)
	}
	if media != "application/json" && !strings.HasSuffix(media, "+json") {
		return nil
	}

	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("the body: %w", err)
	}

	return d.Check(at+"/content/"+escape(media)+"/schema", value)
}

// Response returns the response that is declared for a status, and the JSON
// pointer to it: the one for the exact status, else the one for its range, such
// as 4XX, else, if the status is an error, the default. It returns nil if none
// is declared.
func (d *Document) Response(op *Operation, status int) (pointer string, response map[string]any) {
	responses := member(op.Node, "responses")
	exact := strconv.Itoa(status)
	names := []string{exact, exact[:1] + "XX"}
	if status >= http.StatusBadRequest {
		names = append(names, "default")
	}
	for _, name := range names {
		if _, declared := responses[name]; declared {
			return d.Resolve(op.Pointer+"/responses/"+name, member(responses, name))
		}
	}
	return "", nil
}

// Transport checks every response against the document.
type Transport struct {
	Document *Document
	// Report is called with every mismatch.
	Report func(error)
}

func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err //nolint:wrapcheck // a transport's error is passed on as it is
	}
	body, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close() // ReadAll has reported any error
	if err != nil {
		return nil, err
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	if err := t.Document.CheckResponse(answer, body); err != nil {
		t.Report(err)
	}
	return answer, nil
}
