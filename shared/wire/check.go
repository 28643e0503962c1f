package wire

// CheckRequest asks one proxy to call a provider, once in each format, and to report what comes.
type CheckRequest struct {
	V int `json:"v"`
	// Proxy is the name of the proxy that makes the calls; the others do nothing.
	Proxy string `json:"proxy"`
	// Provider is the id of the provider.
	Provider string `json:"provider"`
}

// CheckResponse is what a proxy found.
type CheckResponse struct {
	V       int       `json:"v"`
	Session SessionID `json:"session"`
	// Name is the name of the proxy.
	Name string `json:"name"`
	// CatalogRevision is that of the catalog of the proxy; zero if it has none yet.
	CatalogRevision int64 `json:"catalog_revision"`
	// Calls are empty if no route with a credential leads to the provider.
	Calls []CheckedCall `json:"calls,omitempty"`
}

// CheckResult is what a call of a check means.
type CheckResult string

// The results.
const (
	// CheckWorks: the provider answered in the format, or refused what was left out on purpose because it costs much.
	CheckWorks CheckResult = "works"
	// CheckRefusedRequest: the provider understood the call, and refused a part of it.
	CheckRefusedRequest CheckResult = "refused_request"
	// CheckRefusedSecret: the provider refused the credential.
	CheckRefusedSecret CheckResult = "refused_secret"
	// CheckNotFound: the provider has nothing at the address, or does not know the model.
	CheckNotFound CheckResult = "not_found"
	// CheckOtherFormat: the answer is none of the format, such as a web page.
	CheckOtherFormat CheckResult = "other_format"
	// CheckBusy: the provider limits the rate, or is overloaded.
	CheckBusy CheckResult = "busy"
	// CheckFailed: the provider reported a failure of its own.
	CheckFailed CheckResult = "failed"
	// CheckNoAnswer: no answer came.
	CheckNoAnswer CheckResult = "no_answer"
)

// CheckedCall is one call of a check.
type CheckedCall struct {
	Format        string `json:"format"`
	Route         string `json:"route"`
	UpstreamModel string `json:"upstream_model"`
	Credential    string `json:"credential"`
	// URL is the address that was called.
	URL    string      `json:"url"`
	Result CheckResult `json:"result"`
	// Status is that of the answer; zero without one.
	Status int `json:"status,omitempty"`
	// Detail is the begin of the provider's text, without secrets, or why no answer came.
	Detail string `json:"detail,omitempty"`
	// Hint says what to change, if that is certain.
	Hint string `json:"hint,omitempty"`
	// MS is how long the call took, in milliseconds.
	MS int64 `json:"ms"`
}
