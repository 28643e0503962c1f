// Package checkwire defines the messages of a check of a provider: one proxy calls it, and reports what comes.
package checkwire

import "modelgateway/shared/wire"

// Request asks one proxy to call a provider, once in each format, and to report what comes.
type Request struct {
	V int `json:"v"`
	// Proxy is the name of the proxy that makes the calls; the others do nothing.
	Proxy string `json:"proxy"`
	// Provider is the id of the provider.
	Provider string `json:"provider"`
}

// Response is what a proxy found.
type Response struct {
	V       int            `json:"v"`
	Session wire.SessionID `json:"session"`
	// Name is the name of the proxy.
	Name string `json:"name"`
	// CatalogRevision is that of the catalog of the proxy; zero if it has none yet.
	CatalogRevision int64 `json:"catalog_revision"`
	// Calls are empty if no route with a credential leads to the provider.
	Calls []Call `json:"calls,omitempty"`
}

// Result is what a call of a check means.
type Result string

// The results.
const (
	// Works: the provider answered in the format, or refused what was left out on purpose because it costs much.
	Works Result = "works"
	// RefusedRequest: the provider understood the call, and refused a part of it.
	RefusedRequest Result = "refused_request"
	// RefusedSecret: the provider refused the credential.
	RefusedSecret Result = "refused_secret"
	// NotFound: the provider has nothing at the address, or does not know the model.
	NotFound Result = "not_found"
	// OtherFormat: the answer is none of the format, such as a web page.
	OtherFormat Result = "other_format"
	// Busy: the provider limits the rate, or is overloaded.
	Busy Result = "busy"
	// Failed: the provider reported a failure of its own.
	Failed Result = "failed"
	// NoAnswer: no answer came.
	NoAnswer Result = "no_answer"
)

// Call is one call of a check.
type Call struct {
	Format        string `json:"format"`
	Route         string `json:"route"`
	UpstreamModel string `json:"upstream_model"`
	Credential    string `json:"credential"`
	// URL is the address that was called.
	URL    string `json:"url"`
	Result Result `json:"result"`
	// Status is that of the answer; zero without one.
	Status int `json:"status,omitempty"`
	// Detail is the provider's code and message if the answer is an error of the format, without what could be a secret, otherwise
	// the type of its content; or why no answer came.
	Detail string `json:"detail,omitempty"`
	// Hint says what to change, if that is certain.
	Hint string `json:"hint,omitempty"`
	// MS is how long the call took, in milliseconds.
	MS int64 `json:"ms"`
}
