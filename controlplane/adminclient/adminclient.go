// Package adminclient is the Go client of the admin API. The types, and one method for each operation, are generated
// from the API's OpenAPI document (client.gen.go); the other files send requests and read responses.
//
// A method returns a Response if the operation succeeded. If the server answered with an error status, the error is
// an *Error with the status, the code of the problem and, where the server names one, the time to wait before the
// request is repeated. Exports are streamed: see Export.
package adminclient

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Client calls the admin API. It is safe for concurrent use.
type Client struct {
	address, token string
	http           *http.Client
}

// Option configures a Client.
type Option func(*Client)

// WithHTTPClient sends requests with a client other than http.DefaultClient, for example one with a time limit.
func WithHTTPClient(client *http.Client) Option { return func(c *Client) { c.http = client } }

// New returns a client of the API at an address such as "https://admin.example.com". The token is sent with every
// request. An error means that the address is not a URL with a host.
func New(address, token string, options ...Option) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("adminclient: %w", err)
	}
	if u.Host == "" {
		return nil, fmt.Errorf("adminclient: the address %q has no host", address)
	}
	c := &Client{address: strings.TrimRight(address, "/"), token: token, http: http.DefaultClient}
	for _, set := range options {
		set(c)
	}
	return c, nil
}
