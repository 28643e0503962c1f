package apierr

import "encoding/json"

// body is the inner object of both envelopes. Members without a value are left
// out.
type body struct {
	Message   string          `json:"message"`
	Type      string          `json:"type"`
	Code      Code            `json:"code,omitempty"`
	Param     *string         `json:"param,omitempty"`
	Details   json.RawMessage `json:"details,omitempty"`
	RequestID string          `json:"request_id,omitempty"`
}

// Envelope returns the error in the common envelope:
// {"error":{message,type,code,param,request_id}}.
func (e *Error) Envelope(requestID string) []byte {
	return encode(struct {
		Error body `json:"error"`
	}{body{
		Message:   e.Message,
		Type:      e.Type(),
		Code:      e.Code,
		Param:     e.param(),
		RequestID: requestID,
	}})
}

// MessagesEnvelope returns the error in the envelope of the messages format:
// {"type":"error","error":{type,message,code,param},"request_id"}.
func (e *Error) MessagesEnvelope(requestID string) []byte {
	return encode(struct {
		Type      string `json:"type"`
		Error     body   `json:"error"`
		RequestID string `json:"request_id"`
	}{"error", body{
		Message: e.Message,
		Type:    e.MessagesType(),
		Code:    e.Code,
		Param:   e.param(),
		Details: e.Details,
	}, requestID})
}

// param returns the parameter for an envelope, nil if the error is about none.
func (e *Error) param() *string {
	if e.Param == "" && !e.ParamIsEmpty {
		return nil
	}
	return &e.Param
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // strings and structs always marshal
		panic(err)
	}
	return b
}
