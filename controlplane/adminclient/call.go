package adminclient

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"
)

// Response is a successful response.
type Response[T any] struct {
	// Value is the decoded body; nil if the response has no JSON body.
	Value *T
	// StatusCode is 200 to 299. If an operation has several, its description explains them.
	StatusCode int
	// Header has, among others, the ETag of the value.
	Header http.Header
	// Body is the body of the response, not decoded.
	Body []byte
}

// String returns the status code and the body, for logs and tests.
func (r *Response[T]) String() string {
	if r == nil {
		return "no response"
	}
	return fmt.Sprintf("%d %s", r.StatusCode, r.Body)
}

// Empty is the value of a response without a body.
type Empty struct{}

// CallOption changes one request.
type CallOption func(*http.Request)

// WithHeader sets a header of the request, for example Accept.
func WithHeader(name, value string) CallOption {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// WithBody sends a body in place of the method's body parameter, for example of another media type, or encoded JSON.
func WithBody(mediaType string, body []byte) CallOption {
	return func(r *http.Request) {
		r.Header.Set("Content-Type", mediaType)
		r.ContentLength = int64(len(body))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		r.Body, _ = r.GetBody()
	}
}

// call is one call of an operation.
type call struct {
	method, path string
	// ids replace the {parameters} of the path, in order.
	ids []any
	// params points to a generated struct (see encodeParams) or is nil; body is encoded as JSON unless it is nil.
	params, body any
}

// do sends a request and decodes its response.
func do[T any](ctx context.Context, c *Client, in call, options []CallOption) (*Response[T], error) {
	answer, err := c.send(ctx, in, options)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("adminclient: %s %s: %w", in.method, in.path, err)
	}

	r := &Response[T]{StatusCode: answer.StatusCode, Header: answer.Header, Body: body}
	if strings.HasPrefix(answer.Header.Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(body, &r.Value); err != nil {
			return nil, fmt.Errorf("adminclient: %s %s: decode the response: %w", in.method, in.path, err)
		}
	}

	return r, nil
}

// send returns the response if its status is one of success. The caller closes its body.
func (c *Client) send(ctx context.Context, in call, options []CallOption) (*http.Response, error) {
	r, err := c.request(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("adminclient: %s %s: %w", in.method, in.path, err)
	}

	for _, set := range options {
		set(r)
	}

	answer, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("adminclient: %w", err)
	}

	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		defer func() { _ = answer.Body.Close() }()
		return nil, readError(answer)
	}

	return answer, nil
}

func (c *Client) request(ctx context.Context, in call) (*http.Request, error) {
	path, rest, _ := strings.Cut(in.path, "{")
	for _, id := range in.ids {
		_, tail, _ := strings.Cut(rest, "}")
		before, next, _ := strings.Cut(tail, "{")
		path, rest = path+url.PathEscape(fmt.Sprint(id))+before, next
	}

	query, header := encodeParams(in.params)
	if len(query) > 0 {
		path += "?" + query.Encode()
	}

	var body io.Reader
	if in.body != nil {
		text, err := json.Marshal(in.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
		header.Set("Content-Type", "application/json")
	}

	r, err := http.NewRequestWithContext(ctx, in.method, c.address+path, body)
	if err != nil {
		return nil, fmt.Errorf("build the request: %w", err)
	}

	header.Set("Authorization", "Bearer "+c.token)
	r.Header = header
	return r, nil
}

// encodeParams encodes a generated struct of parameters. A field with the tag form is sent in the query, any other
// one in the header that its tag json names. A nil pointer and an empty list are left out; the elements of a list are
// separated by commas.
func encodeParams(params any) (url.Values, http.Header) {
	query, header := url.Values{}, http.Header{}
	pointer := reflect.ValueOf(params)
	if !pointer.IsValid() || pointer.IsNil() {
		return query, header
	}

	for field, value := range pointer.Elem().Fields() {
		if value.IsZero() || value.Kind() == reflect.Slice && value.Len() == 0 {
			continue
		}
		if name, _, _ := strings.Cut(field.Tag.Get("form"), ","); name != "" {
			query.Set(name, encodeParam(value))
		} else {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			header.Set(name, encodeParam(value))
		}
	}

	return query, header
}

func encodeParam(value reflect.Value) string {
	if at, ok := reflect.TypeAssert[time.Time](value); ok {
		return at.Format(time.RFC3339Nano)
	}
	switch value.Kind() {
	case reflect.Pointer:
		return encodeParam(value.Elem())
	case reflect.Slice:
		elements := make([]string, value.Len())
		for i := range elements {
			elements[i] = encodeParam(value.Index(i))
		}
		return strings.Join(elements, ",")
	default:
		return fmt.Sprint(value.Interface())
	}
}
