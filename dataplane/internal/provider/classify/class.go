package classify

// Class is the kind of an error. The zero value means "not classified" and does not occur
// in a Verdict.
type Class uint8

// The classes. If several apply, the earlier one is used.
const (
	// GatewayRefused: the provider refuses the gateway, not the client, because of the
	// key, balance, plan, region, access to the model, or an unknown model name.
	GatewayRefused Class = iota + 1
	// ContentPolicy: the provider refuses the content of the prompt or of the output.
	ContentPolicy
	// ContextLength: the prompt, alone or with the requested output, does not
	// fit the model.
	ContextLength
	// InvalidImage: a reference image cannot be fetched, decoded or used.
	InvalidImage
	// RateLimit: the gateway's account exceeds a rate, or the service is overloaded.
	RateLimit
	// UnsupportedParameter: the model does not support the parameter.
	UnsupportedParameter
	// InvalidValue: the provider refuses the value of a parameter.
	InvalidValue
	// NoImage: an image model returned neither an image nor a reason.
	NoImage
	// Unavailable: the provider failed or could not be reached.
	Unavailable
	// OtherClient: the request is invalid for a reason that no rule covers.
	OtherClient
)

var classNames = map[Class]string{
	GatewayRefused:       "gateway_refused",
	ContentPolicy:        "content_policy",
	ContextLength:        "context_length",
	InvalidImage:         "invalid_image",
	RateLimit:            "rate_limit",
	UnsupportedParameter: "unsupported_parameter",
	InvalidValue:         "invalid_value",
	NoImage:              "no_image",
	Unavailable:          "unavailable",
	OtherClient:          "other_client",
}

// String returns the name in snake_case, for logs and metric labels.
func (c Class) String() string {
	if name, ok := classNames[c]; ok {
		return name
	}
	return "unclassified"
}

// The error codes of the public API that a Verdict can have.
const (
	CodeUnavailable          = "upstream_unavailable"
	CodeContentPolicy        = "content_policy_violation"
	CodeContextLength        = "context_length_exceeded"
	CodeInvalidImage         = "invalid_image"
	CodeRateLimit            = "rate_limit_exceeded"
	CodeUnsupportedParameter = "unsupported_parameter"
	CodeUnsupportedValue     = "unsupported_value"
	CodeInvalidValue         = "invalid_value"
	CodeGenerationFailed     = "generation_failed"
	CodeInvalidRequest       = "invalid_request"
)

// outcome is the answer to the client for a class.
type outcome struct {
	status int
	code   string
	// showText is true if the client may read the provider's text, cleaned. fallback
	// replaces an empty text.
	showText bool
	fallback string
	// failover is true if another route may serve the request.
	failover bool
}

var outcomes = map[Class]outcome{
	GatewayRefused: {status: 502, code: CodeUnavailable, failover: true},
	ContentPolicy: {
		status:   400,
		code:     CodeContentPolicy,
		showText: true,
		fallback: "The request was rejected by the content policy of the model.",
	},
	ContextLength: {
		status:   400,
		code:     CodeContextLength,
		showText: true,
		fallback: "the request does not fit the context window of the model.",
	},
	InvalidImage: {status: 400, code: CodeInvalidImage, showText: true, fallback: "The model rejected the reference image."},
	RateLimit:    {status: 429, code: CodeRateLimit, failover: true},
	UnsupportedParameter: {
		status:   400,
		code:     CodeUnsupportedParameter,
		showText: true,
		fallback: "A parameter of the request is not supported by the model.",
	},
	InvalidValue: {status: 400, code: CodeInvalidValue, showText: true, fallback: "The model rejected the value of a parameter."},
	NoImage:      {status: 422, code: CodeGenerationFailed, showText: true, fallback: "The model returned no image."},
	Unavailable:  {status: 502, code: CodeUnavailable, failover: true},
	OtherClient:  {status: 400, code: CodeInvalidRequest, showText: true, fallback: "The model provider rejected the request."},
}
