package apierr

import "encoding/json"

// body is the inner object of both envelopes. Members without a value are left
// out.
type body struct {
	Message   string `json:"message"`
	Type      string `json:"type"`
	Code      Code   `json:"code,omitempty"`
	Param     string `json:"param,omitempty"`
	RequestID string `json:"request_id,omitempty"`
}

// Envelope returns the error in the common envelope:
// {"error":{message,type,code,param,request_id}}.
func (e *Error) Envelope(requestID string) []byte {
	return encode(struct {
		Error body `json:"error"`
	}{body{e.Message, e.Type(), e.Code, e.Param, requestID}})
}

// MessagesEnvelope returns the error in the envelope of the messages format:
// {"type":"error","error":{type,message,code,param},"request_id"}.
func (e *Error) MessagesEnvelope(requestID string) []byte {
	return encode(struct {
		Type      string `json:"type"`
		Error     body   `json:"error"`
		RequestID string `json:"request_id"`
	}{"error", body{e.Message, e.MessagesType(), e.Code, e.Param, ""}, requestID})
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // strings and structs always marshal
		panic(err)
	}
	return b
}
