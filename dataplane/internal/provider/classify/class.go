package classify

// Class says what an error is about. The zero value means that nothing was
// classified and never appears in a Verdict.
type Class uint8

// The classes, in the order in which one wins over the next.
const (
	// OurAccount: the provider refuses us, not the client: key, balance, plan,
	// region, access to the model, or a model name it does not know.
	OurAccount Class = iota + 1
	// ContentPolicy: the prompt or the output was refused for what it contains.
	ContentPolicy
	// ContextLength: the prompt, alone or with the requested output, does not
	// fit the model.
	ContextLength
	// InvalidImage: a reference image cannot be fetched, decoded or used.
	InvalidImage
	// RateLimit: too much at once, for us or for everybody.
	RateLimit
	// UnsupportedParameter: the model does not know the parameter.
	UnsupportedParameter
	// InvalidValue: the value of a parameter is refused.
	InvalidValue
	// NoImage: an image model answered without an image and without a reason.
	NoImage
	// Unavailable: the provider failed or could not be reached.
	Unavailable
	// OtherClient: the request is wrong in a way the table does not know.
	OtherClient
)

var classNames = map[Class]string{
	OurAccount: "our_account", ContentPolicy: "content_policy", ContextLength: "context_length", InvalidImage: "invalid_image",
	RateLimit: "rate_limit", UnsupportedParameter: "unsupported_parameter", InvalidValue: "invalid_value", NoImage: "no_image",
	Unavailable: "unavailable", OtherClient: "other_client",
}

// String returns the snake_case name, for logs and metric labels.
func (c Class) String() string {
	if name, ok := classNames[c]; ok {
		return name
	}
	return "unclassified"
}

// Codes of the client contract that a verdict can carry.
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

// outcome is what the client sees of a class.
type outcome struct {
	status int
	code   string
	// shown tells that the provider's words may pass, cleaned; fallback stands
	// in where there are none.
	shown    bool
	fallback string
	// elsewhere tells that another route may do better.
	elsewhere bool
}

var outcomes = map[Class]outcome{
	OurAccount:           {status: 502, code: CodeUnavailable, elsewhere: true},
	ContentPolicy:        {status: 400, code: CodeContentPolicy, shown: true, fallback: "The request was rejected by the content policy of the model."},
	ContextLength:        {status: 400, code: CodeContextLength, shown: true, fallback: "the request does not fit the context window of the model."},
	InvalidImage:         {status: 400, code: CodeInvalidImage, shown: true, fallback: "The model rejected the reference image."},
	RateLimit:            {status: 429, code: CodeRateLimit, elsewhere: true},
	UnsupportedParameter: {status: 400, code: CodeUnsupportedParameter, shown: true, fallback: "A parameter of the request is not supported by the model."},
	InvalidValue:         {status: 400, code: CodeInvalidValue, shown: true, fallback: "The model rejected the value of a parameter."},
	NoImage:              {status: 422, code: CodeGenerationFailed, shown: true, fallback: "The model returned no image."},
	Unavailable:          {status: 502, code: CodeUnavailable, elsewhere: true},
	OtherClient:          {status: 400, code: CodeInvalidRequest, shown: true, fallback: "The model provider rejected the request."},
}
