package wire

import (
	"encoding/json"

	"modelgateway/shared/event"
)

// ExplainRequest asks every proxy how it would answer a request now. The proxy reserves nothing and calls no provider.
type ExplainRequest struct {
	V int `json:"v"`
	// Record is the record of the key, as the control plane has just read it. Its KeyID is empty if the request is of an
	// account, whatever the key.
	Record KeyRecord `json:"record"`
	// Pools are the pools of the record, with the current windows of its limits.
	Pools []PoolState `json:"pools"`
	// Format is the format of the request (package catalogkv), Model the name of the model in it.
	Format string `json:"format"`
	Model  string `json:"model"`
	Stream bool   `json:"stream,omitempty"`
	// MaxTokens, N and InputTokens are the output limit, the number of choices or images, and the estimated length of the
	// prompt in tokens; zero: the request states none, and its prompt is as short as can be.
	MaxTokens   int64 `json:"max_tokens,omitempty"`
	N           int64 `json:"n,omitempty"`
	InputTokens int64 `json:"input_tokens,omitempty"`
	// Parameters are further members of the body, which replace those made of the other fields; an object or empty.
	Parameters json.RawMessage `json:"parameters,omitempty"`
	// Video is why a further video job would be refused, as its creation decides, nil if it would not; FreeVideo that of one that is
	// expected to cost nothing. Only the proxy knows the price. Both are nil for other formats.
	Video     *event.VideoRefusal `json:"video,omitempty"`
	FreeVideo *event.VideoRefusal `json:"free_video,omitempty"`
}

// PoolState is what a pool has, for an explanation. Free includes the units that proxies hold and no request uses: they
// are recalled before a request is refused.
type PoolState struct {
	Pool      PoolID   `json:"pool"`
	Kind      PoolKind `json:"kind"`
	Unlimited bool     `json:"unlimited,omitempty"`
	Total     int64    `json:"total"`
	Free      int64    `json:"free"`
	Settled   int64    `json:"settled"`
	// Limit is the number of the limit whose current window the pool is, zero for other pools. EndMS is when that ends, zero if never.
	Limit int64 `json:"limit,omitempty"`
	EndMS int64 `json:"end_ms,omitempty"`
}

// ExplainStep is a step of the checks on a request, in their order.
type ExplainStep string

// The steps.
const (
	ExplainKey               ExplainStep = "key"
	ExplainSystemMaintenance ExplainStep = "system_maintenance"
	ExplainBody              ExplainStep = "body"
	ExplainModel             ExplainStep = "model"
	ExplainModelMaintenance  ExplainStep = "model_maintenance"
	ExplainParameters        ExplainStep = "parameters"
	ExplainAdmission         ExplainStep = "admission"
	ExplainRoutes            ExplainStep = "routes"
)

// ExplainResponse is the answer of one session to an ExplainRequest.
type ExplainResponse struct {
	V       int       `json:"v"`
	Session SessionID `json:"session"`
	// Name is the name of the proxy.
	Name string `json:"name"`
	// CatalogRevision is that of the catalog of the proxy; zero if it has none yet.
	CatalogRevision int64 `json:"catalog_revision"`
	// Refusals are the steps that refuse the request, in their order: the client gets the first. Without one, the request
	// is sent to the first route to try. Steps after one that leaves them without a meaning are not made.
	Refusals []ExplainRefusal `json:"refusals,omitempty"`
	// PriceVersion and PriceMultiplier are zero if the request was refused before its price was known.
	PriceVersion    int64 `json:"price_version,omitempty"`
	PriceMultiplier int64 `json:"price_multiplier,omitempty"`
	// InputTokens is the estimate of the prompt. Reservation is the cost that is reserved, in nano-units.
	InputTokens int64 `json:"input_tokens,omitempty"`
	Reservation int64 `json:"reservation,omitempty"`
	// Needs are the units of the pools that the request needs; nil before the price is known.
	Needs []Need `json:"needs,omitempty"`
	// Routes are the routes of the model that support the format: first those to try, in their order, then those that are
	// left out.
	Routes []ExplainRoute `json:"routes,omitempty"`
}

// ExplainRefusal is the answer of a step that refuses a request.
type ExplainRefusal struct {
	Step    ExplainStep `json:"step"`
	Status  int         `json:"status"`
	Code    string      `json:"code,omitempty"`
	Message string      `json:"message"`
	Param   string      `json:"param,omitempty"`
	// RetryAfter is in seconds; zero: the answer states none.
	RetryAfter int64 `json:"retry_after,omitempty"`
	// Reason is that of a refused admission.
	Reason RefusalReason `json:"reason,omitempty"`
}

// ExplainRoute is what a proxy would do with a route.
type ExplainRoute struct {
	Route         string `json:"route"`
	Provider      string `json:"provider"`
	UpstreamModel string `json:"upstream_model"`
	// URL is the address that the call would go to; empty if the proxy does not know the provider.
	URL      string `json:"url,omitempty"`
	Priority int    `json:"priority"`
	Weight   int    `json:"weight"`
	// Credential is the id of the credential that would be used; empty if the route is skipped.
	Credential string `json:"credential,omitempty"`
	// Skipped is why the route is not tried: one of the reasons of package event, or one of those below.
	Skipped string `json:"skipped,omitempty"`
}

// The reasons for which a route is left out before it is considered for an attempt, beside those of package event.
const (
	// SkippedParameters: the route refuses a parameter of the request, or another offers more of its tools.
	SkippedParameters = "parameters"
	// SkippedDisabled: the route is disabled. SkippedProviderDisabled: its provider is.
	SkippedDisabled         = "disabled"
	SkippedProviderDisabled = "provider_disabled"
	// SkippedBeyondAttempts: as many routes as a request may try come before it.
	SkippedBeyondAttempts = "beyond_attempts"
)
