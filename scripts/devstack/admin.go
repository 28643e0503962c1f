package devstack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// callTimeout bounds one call of an API of the stack.
const callTimeout = 30 * time.Second

// caller calls a JSON API with a bearer token.
type caller struct {
	url, token string
}

// call sends a request and decodes the answer into result, unless that is nil. A body that
// is a string is sent unchanged; other bodies are encoded as JSON.
func (c caller) call(ctx context.Context, method, path, mediaType string, body, result any) error {
	if err := c.exchange(ctx, method, path, mediaType, body, result); err != nil {
		return fmt.Errorf("%s %s%s: %w", method, c.url, path, err)
	}
	return nil
}

func (c caller) get(ctx context.Context, path string, result any) error {
	return c.call(ctx, http.MethodGet, path, "", nil, result)
}

func (c caller) post(ctx context.Context, path string, body, result any) error {
	return c.call(ctx, http.MethodPost, path, "application/json", body, result)
}

func (c caller) exchange(ctx context.Context, method, path, mediaType string, body, result any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	payload, err := encode(body)
	if err != nil {
		return err
	}

	request, err := http.NewRequestWithContext(ctx, method, c.url+path, payload)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}

	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Accept", "application/json")
	if mediaType != "" {
		request.Header.Set("Content-Type", mediaType)
	}

	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return errors.Unwrap(err) // without the method and the URL, which call adds
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s: %s", response.Status, problem(text))
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(text, result); err != nil {
		return fmt.Errorf("answer: %w", err)
	}

	return nil
}

// problem returns the text of an answer with an error status: of one of the admin API, its title and what is wrong with which
// member, a line each; of another one, all of it.
func problem(text []byte) string {
	var p struct {
		Title  string `json:"title"`
		Detail string `json:"detail"`
		Errors []struct {
			Field  string `json:"field"`
			Detail string `json:"detail"`
		} `json:"errors"`
	}
	if json.Unmarshal(text, &p) != nil || p.Title == "" {
		return string(bytes.TrimSpace(text))
	}

	var out strings.Builder
	out.WriteString(p.Title)
	if p.Detail != "" {
		out.WriteString(": " + p.Detail)
	}
	for _, e := range p.Errors {
		out.WriteString("\n  " + strings.TrimSpace(e.Field+" "+e.Detail))
	}
	return out.String()
}

func encode(body any) (io.Reader, error) {
	switch body := body.(type) {
	case nil:
		return http.NoBody, nil
	case string:
		return strings.NewReader(body), nil
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	return bytes.NewReader(text), nil
}
