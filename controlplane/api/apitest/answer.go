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

// CheckAnswer tells what is wrong with an answer of the server by the
// document: its status, media type, headers that must be there, and body.
func (d *Document) CheckAnswer(r *http.Response, body []byte) error {
	op := d.Find(r.Request.Method, r.Request.URL.EscapedPath())
	if op == nil {
		return nil // no operation: a page, or a path that there is not
	}
	fault := d.checkAnswer(op, r, body)
	if fault != nil {
		return fmt.Errorf("%s: %s answers %d: %w", op.ID(), r.Request.URL.Path, r.StatusCode, fault)
	}
	return nil
}

func (d *Document) checkAnswer(op *Operation, r *http.Response, body []byte) error {
	responses := member(op.Node, "responses")
	status := strconv.Itoa(r.StatusCode)
	if _, declared := responses[status]; !declared {
		if r.StatusCode < http.StatusBadRequest {
			return errors.New("the status is not declared")
		}
		status = "default"
	}
	at, response := d.Resolve(op.Pointer+"/responses/"+status, member(responses, status))
	for name, header := range member(response, "headers") {
		_, header := d.Resolve("", header.(object))
		if required, _ := header["required"].(bool); required && r.Header.Get(name) == "" {
			return fmt.Errorf("the header %s is missing", name)
		}
	}
	content := member(response, "content")
	if len(content) == 0 {
		if len(body) > 0 {
			return errors.New("it has a body")
		}
		return nil
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || content[media] == nil {
		return fmt.Errorf("the media type %q is not declared", r.Header.Get("Content-Type"))
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

// Transport checks every answer that passes.
type Transport struct {
	Document *Document
	// Report is told of every answer that does not fit the document.
	Report func(error)
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err //nolint:wrapcheck // a transport's error is passed on as it is
	}
	body, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close() // it was read
	if err != nil {
		return nil, err
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	if err := t.Document.CheckAnswer(answer, body); err != nil {
		t.Report(err)
	}
	return answer, nil
}
