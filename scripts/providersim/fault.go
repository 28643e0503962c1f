package providersim

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// fault is an error answer, without the envelope of a format.
type fault struct {
	status  int
	kind    string // error.type; chosen by format and status when empty
	code    string
	message string
	param   string
}

func invalid(code, param, message string, args ...any) *fault {
	return &fault{
		status:  http.StatusBadRequest,
		kind:    "invalid_request_error",
		code:    code,
		param:   param,
		message: fmt.Sprintf(message, args...),
	}
}

// errorDetail is the error member of the chat, responses, images and videos formats.
type errorDetail struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func (f *fault) detail() errorDetail {
	kind := f.kind
	if kind == "" {
		kind = commonType(f.status)
	}
	return errorDetail{
		Message: f.message,
		Type:    kind,
		Param:   orNull(f.param),
		Code:    orNull(f.code),
	}
}

// messagesError is the whole body of an error in the messages format.
type messagesError struct {
	Type  string `json:"type"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
	RequestID string `json:"request_id"`
}

func (f *fault) messagesError(requestID string) messagesError {
	body := messagesError{Type: "error", RequestID: requestID}
	body.Error.Type, body.Error.Message = f.kind, f.message
	if body.Error.Type == "" {
		body.Error.Type = messagesType(f.status)
	}
	return body
}

// envelope renders the fault as the format's error body.
func (f *fault) envelope(format Format, requestID string) []byte {
	if format == Messages {
		return mustJSON(f.messagesError(requestID))
	}
	return mustJSON(struct {
		Error errorDetail `json:"error"`
	}{f.detail()})
}

func commonType(status int) string {
	switch {
	case status == http.StatusTooManyRequests:
		return "requests"
	case status >= http.StatusInternalServerError:
		return "server_error"
	default:
		return "invalid_request_error"
	}
}

func messagesType(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusPaymentRequired:
		return "billing_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusConflict:
		return "conflict_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusGatewayTimeout:
		return "timeout_error"
	case statusOverloaded:
		return "overloaded_error"
	}

	if status >= http.StatusInternalServerError {
		return "api_error"
	}

	return "invalid_request_error"
}

// statusOverloaded is used by the messages format and has no name in net/http.
const statusOverloaded = 529

// faultOf returns the usual error of a status, for directives without further details.
func faultOf(status int) *fault {
	f := &fault{status: status}
	switch status {
	case http.StatusUnauthorized:
		f.code, f.message = "invalid_api_key", "The API key is not valid."
	case http.StatusPaymentRequired:
		f.code, f.message = "insufficient_quota", "The account has no credit left."
	case http.StatusForbidden:
		f.code, f.message = "permission_denied", "The key may not use this resource."
	case http.StatusNotFound:
		f.code, f.message = "model_not_found", "The model does not exist."
	case http.StatusRequestEntityTooLarge:
		f.code, f.message = "request_too_large", "The request is too large."
	case http.StatusTooManyRequests:
		f.code, f.message = "rate_limit_exceeded", "Rate limit reached. Please try again later."
	case http.StatusServiceUnavailable, statusOverloaded:
		f.code, f.message = "overloaded", "The model is overloaded."
	default:
		if status >= http.StatusInternalServerError {
			f.code, f.message = "server_error", "The server had an error while processing the request."
		} else {
			f.code, f.message = "invalid_request", "The request was refused."
		}
	}

	return f
}

// override returns the fault with the details of the directives.
func (f *fault) override(d *directives) *fault {
	changed := *f
	for _, o := range []struct{ field, with *string }{
		{&changed.code, &d.code},
		{&changed.kind, &d.kind},
		{&changed.message, &d.message},
		{&changed.param, &d.param},
	} {
		if *o.with != "" {
			*o.field = *o.with
		}
	}
	return &changed
}

// cannedFaults are the errors that body= may name, rendered in the format of the request.
var cannedFaults = map[string]fault{
	"rate_limit": {status: 429, code: "rate_limit_exceeded", message: "Rate limit reached for requests. Please try again in 1.5s."},
	"quota": {
		status:  429,
		kind:    "insufficient_quota",
		code:    "insufficient_quota",
		message: "You exceeded your current quota, check your plan and billing details.",
	},
	"overloaded": {status: 503, kind: "overloaded_error", code: "overloaded", message: "Overloaded"},
	"context_length": {
		status:  400,
		kind:    "invalid_request_error",
		code:    "context_length_exceeded",
		param:   "messages",
		message: "The prompt is longer than the context window of this model (131072 tokens).",
	},
	"content_policy": {
		status:  400,
		kind:    "invalid_request_error",
		code:    "content_policy_violation",
		message: "The request was refused by the safety system.",
	},
	"invalid_image": {status: 400, kind: "invalid_request_error", code: "invalid_image", message: "The image could not be decoded."},
	"invalid_key":   {status: 401, kind: "authentication_error", code: "invalid_api_key", message: "Incorrect API key provided."},
	"unknown_param": {
		status:  400,
		kind:    "invalid_request_error",
		code:    "unknown_parameter",
		param:   "seed",
		message: "Unknown parameter: 'seed'.",
	},
	"unsupported": {
		status:  400,
		kind:    "invalid_request_error",
		code:    "unsupported_value",
		param:   "temperature",
		message: "'temperature' does not support 0.2 with this model, only the default.",
	},
	"model_not_found": {
		status:  404,
		kind:    "invalid_request_error",
		code:    "model_not_found",
		message: "The model does not exist or you do not have access to it.",
	},
}

// cannedBodies are error bodies of servers that follow none of the formats.
var cannedBodies = map[string]struct {
	status            int
	contentType, body string
}{
	"html":  {502, "text/html", "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>\n"},
	"empty": {500, "", ""},
	"plain": {503, "text/plain; charset=utf-8", "upstream connect error or disconnect before headers\n"},
	"detail": {
		422,
		"application/json",
		`{"detail":[{"loc":["body","temperature"],"msg":"value is not a valid float","type":"type_error.float"}]}`,
	},
	"string_error": {500, "application/json", `{"error":"internal failure"}`},
	"message":      {403, "application/json", `{"message":"The security token included in the request is invalid."}`},
	"array": {
		400,
		"application/json",
		`[{"error":{"code":400,"message":"Request contains an invalid argument.","status":"INVALID_ARGUMENT"}}]`,
	},
	"broken_json": {500, "application/json", `{"error":{"message":"cut of`},
	"number_code": {429, "application/json", `{"error":{"code":1302,"message":"Concurrency limit reached."}}`},
}

// mustJSON encodes a value of a type of this package, which cannot fail.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("providersim: encode %T: %v", v, err))
	}
	return b
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
