package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/platform/apidoc/apitest"
)

// A documented outcome is a response of an operation, as the API document lists it.
type documented struct {
	// operation is its id in the document.
	operation string
	// status is a status or a range of them, such as 4XX.
	status string
	// code is empty for a success and for an error without a code.
	code string
}

func (o documented) String() string {
	return strings.TrimSpace(o.operation + " " + o.status + " " + o.code)
}

// conformance holds every response that the tests of this package receive to the
// API document, and records which of the documented outcomes occurred.
type conformance struct {
	document *apitest.Document

	mu         sync.Mutex
	mismatches map[string]bool
	occurred   map[documented]bool
	// messages are those of all errors, without names and figures.
	messages map[string]bool
}

func newConformance() (*conformance, error) {
	text, err := os.ReadFile(filepath.Join("..", "..", "dataplane", "api", "openapi.yaml"))
	if err != nil {
		return nil, err
	}
	document, err := apitest.Load(text)
	if err != nil {
		return nil, err
	}
	return &conformance{document: document, mismatches: map[string]bool{}, occurred: map[documented]bool{}, messages: map[string]bool{}}, nil
}

// observe checks a response.
func (c *conformance) observe(x rig.Exchange) {
	found, err := c.check(x)
	message := ""
	if x.Response.StatusCode >= http.StatusBadRequest {
		message = errorOf(x.Body).message
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.mismatches[err.Error()] = true
	}
	if found != nil {
		c.occurred[*found] = true
	}
	if message != "" {
		c.messages[general(message)] = true
	}
}

// check returns the outcome that a response is, nil for a request without an
// operation.
func (c *conformance) check(x rig.Exchange) (*documented, error) {
	request := *x.Response.Request
	request.URL = request.URL.JoinPath() // folds doubled slashes, as the gateway does
	response := *x.Response
	response.Request = &request
	method := strings.Replace(request.Method, http.MethodHead, http.MethodGet, 1)
	op := c.document.Find(method, request.URL.EscapedPath())
	if op == nil {
		return nil, c.checkUnknown(x)
	}
	if !x.Complete && request.Method != http.MethodHead {
		return nil, nil // a client that left
	}
	code := ""
	if response.StatusCode >= http.StatusBadRequest {
		code = errorOf(x.Body).code
	}
	found := &documented{op.ID(), c.status(op, response.StatusCode), code}
	if err := c.document.CheckResponse(&response, x.Body); err != nil {
		return found, err
	}
	if err := c.checkHeaders(op, &response); err != nil {
		return found, fmt.Errorf("%v: %w", found, err)
	}
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		if err := c.checkEvents(op, x.Body); err != nil {
			return found, fmt.Errorf("%v: %w", found, err)
		}
	}
	return found, nil
}

// checkUnknown checks the answer to a path or method that the document does not
// have.
func (c *conformance) checkUnknown(x rig.Exchange) error {
	request := x.Response.Request
	at := request.Method + " " + request.URL.Path
	if x.Response.StatusCode != http.StatusNotFound {
		return fmt.Errorf("%s is not in the document and answers %d", at, x.Response.StatusCode)
	}
	if request.Method == http.MethodHead || !x.Complete {
		return nil
	}
	schema := "Error"
	if strings.HasPrefix(request.URL.Path, "/v1/messages") {
		schema = "MessagesError"
	}
	if err := c.checkJSON("/components/schemas/"+schema, x.Body); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}

// transportHeaders are those of HTTP itself, which the document does not name.
var transportHeaders = []string{"Connection", "Content-Length", "Content-Type", "Date", "Transfer-Encoding"}

// checkHeaders checks that the document names every header of a response.
func (c *conformance) checkHeaders(op *apitest.Operation, response *http.Response) error {
	_, node := c.document.Response(op, response.StatusCode)
	named := object(node, "headers")
	for name := range response.Header {
		if _, ok := named[strings.ToLower(name)]; !ok && !slices.Contains(transportHeaders, name) {
			return fmt.Errorf("the header %s is not documented", name)
		}
	}
	return nil
}

// checkEvents checks the data of the events of a stream.
func (c *conformance) checkEvents(op *apitest.Operation, body []byte) error {
	_, node := c.document.Response(op, http.StatusOK)
	ref, _ := object(node, "content", "text/event-stream", "x-event")["$ref"].(string)
	for _, event := range (&rig.Answer{Body: body}).Events() {
		if event.Data == "[DONE]" {
			continue
		}
		if err := c.checkJSON(strings.TrimPrefix(ref, "#"), []byte(event.Data)); err != nil {
			return fmt.Errorf("event %.200s: %w", event.Data, err)
		}
	}
	return nil
}

func (c *conformance) checkJSON(schema string, text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return err
	}
	return c.document.Check(schema, value)
}

// status returns the name under which an operation documents a status.
func (c *conformance) status(op *apitest.Operation, status int) string {
	exact := strconv.Itoa(status)
	responses := object(op.Node, "responses")
	if _, ok := responses[exact]; !ok {
		if _, ok := responses[exact[:1]+"XX"]; ok {
			return exact[:1] + "XX"
		}
	}
	return exact
}

// notProvoked are documented outcomes that no test of this package can provoke,
// with the reason. An empty operation stands for all.
var notProvoked = map[documented]string{
	{"", "500", ""}: "an internal error cannot be provoked from outside; package httpapi tests it",
	{"getVideo", "503", "service_unavailable"}:        "needs a control plane that does not answer: chaos.TestControlPlaneDoesNotAnswer",
	{"getVideoContent", "503", "service_unavailable"}: "as above",
	{"listModels", "503", "service_unavailable"}:      "as above",
	{"getBalance", "503", "service_unavailable"}:      "as above",
	{"getVideo", "429", "rate_limit_exceeded"}:        "needs a control plane that is slow: chaos.TestDownloadsOfOneAccountLeaveThoseOfOthers and package httpapi",
}

// messagesNotProvoked are the messages of such outcomes.
var messagesNotProvoked = []string{
	"An internal error occurred. Please try again. If it persists, contact support with the request id.",
	"The service is temporarily unavailable. Please try again.",
	"The balance is temporarily unavailable. Please try again.",
	"This account reads too many video jobs at the same time. Please try again.",
}

// report returns all mismatches. With complete, these include documented
// outcomes and messages that did not occur.
func (c *conformance) report(complete bool) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	faults := slices.Collect(maps.Keys(c.mismatches))
	outcomes, messages := c.listed()
	for o := range c.occurred {
		if !outcomes[o] {
			faults = append(faults, o.String()+" occurred and is not documented")
		}
	}
	if complete {
		for o := range outcomes {
			_, everywhere := notProvoked[documented{"", o.status, o.code}]
			if _, excused := notProvoked[o]; !c.occurred[o] && !excused && !everywhere {
				faults = append(faults, o.String()+" is documented and did not occur")
			}
		}
		for message, example := range messages {
			if !c.messages[general(message)] && !slices.Contains(messagesNotProvoked, message) {
				faults = append(faults, fmt.Sprintf("example %s has the message %q, which no error had", example, message))
			}
		}
	}
	slices.Sort(faults)
	return faults
}

// listed returns all outcomes of the document, and the messages of the
// examples of errors with the name of the example.
func (c *conformance) listed() (outcomes map[documented]bool, messages map[string]string) {
	outcomes, messages = map[documented]bool{}, map[string]string{}
	for i := range c.document.Operations {
		op := &c.document.Operations[i]
		for status, response := range object(op.Node, "responses") {
			_, response := c.document.Resolve("", response.(map[string]any))
			examples := object(response, "content", "application/json", "examples")
			if status < "4" || len(examples) == 0 {
				outcomes[documented{op.ID(), status, ""}] = true
				continue
			}
			for name, example := range examples {
				_, example := c.document.Resolve("", example.(map[string]any))
				text, _ := json.Marshal(example["value"])
				e := errorOf(text)
				outcomes[documented{op.ID(), status, e.code}] = true
				messages[e.message] = name
			}
		}
	}
	return outcomes, messages
}

// errorOf reads code and message of either envelope; they are empty for
// anything else.
func errorOf(body []byte) (e struct{ code, message string }) {
	var envelope struct {
		Error *struct{ Code, Message string }
	}
	if json.Unmarshal(body, &envelope) == nil && envelope.Error != nil {
		e.code, e.message = envelope.Error.Code, envelope.Error.Message
	}
	return e
}

var specific = regexp.MustCompile(`'[^']*'|"[^"]*"|\b[a-z]+_[0-9a-f]{32}\b|[0-9]+(\.[0-9]+)?`)

// general returns a message without the names and figures of one request.
func general(message string) string { return specific.ReplaceAllString(message, "…") }

// object returns a nested object of the document, nil if there is none.
func object(node map[string]any, path ...string) map[string]any {
	for _, name := range path {
		node, _ = node[name].(map[string]any)
	}
	return node
}
