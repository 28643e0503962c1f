// Package adminclient is the Go client of the admin API, generated from its
// OpenAPI document but for this file. Every method returns a response with one
// member per status that the document names, and the Problem of any other.
package adminclient

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// New returns a client of the API at an address such as
// "https://admin.example.com", which sends the token with every request.
func New(address, token string, options ...ClientOption) (*ClientWithResponses, error) {
	authorize := WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	})
	c, err := NewClientWithResponses(address, append([]ClientOption{authorize}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("adminclient: %w", err)
	}
	return c, nil
}

// Error makes a problem an error, with every wrong field.
func (p *Problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%d)", p.Title, p.Status)
	if p.Detail != nil {
		b.WriteString(": " + *p.Detail)
	}
	for i, e := range p.Errors {
		b.WriteString([]string{": ", "; "}[min(i, 1)] + e.Field + " " + e.Detail)
	}
	return b.String()
}

// Kind tells whether the problem is of a kind, named by the end of its type such
// as "not_found".
func (p *Problem) Kind(kind string) bool { return strings.HasSuffix(p.Type, "/"+kind) }
