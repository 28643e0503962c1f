package responses

import (
	"strconv"

	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/sse"
	"modelgateway/shared/apierr"
)

// AppendError appends the two events of a failure: the error, and the failed response. Their numbers continue those
// of the provider.
func (a *reader) AppendError(dst []byte, e *apierr.Error, requestID string) []byte {
	next := a.sequence + 1
	data := append([]byte(`{"type":"error","sequence_number":`), strconv.FormatInt(next, 10)...)
	data = append(data, ',')
	data = append(data, e.Envelope(requestID)[1:]...)
	dst = sse.AppendEvent(dst, "error", data)

	data = append(data[:0], `{"type":"response.failed","sequence_number":`...)
	data = strconv.AppendInt(data, next+1, 10)
	data = append(data, `,"response":`...)
	data = a.appendFailed(data, e, requestID)
	data = append(data, '}')
	a.sequence = next + 1
	return sse.AppendEvent(dst, "response.failed", data)
}

// appendFailed appends the response that the stream began with, as failed.
func (a *reader) appendFailed(dst []byte, e *apierr.Error, requestID string) []byte {
	response := a.created
	if len(response) == 0 {
		response = a.emptyResponse(requestID)
	}
	w := jsonspan.NewSplicer(dst, response)
	c := jsonspan.ObjectAt(response, 0)
	for c.Next() {
		switch string(c.DecodedName()) {
		case "status":
			c.Set(&w, []byte(`"failed"`))
		case "error":
			c.Set(&w, failureObject(e))
		}
	}
	return w.Finish()
}

// failureObject returns the error member of a failed response. One client reads the time to wait from the message.
func failureObject(e *apierr.Error) []byte {
	code, message := string(e.Code), e.Message
	if code == "" {
		code = "server_error"
	}
	if s := e.RetryAfterSeconds(); e.Code == apierr.RateLimitExceeded && s > 0 {
		message += " Please try again in " + strconv.Itoa(s) + "s."
	}
	out := append([]byte(`{"code":`), jsonspan.AppendString(nil, code)...)
	out = append(out, `,"message":`...)
	out = jsonspan.AppendString(out, message)
	return append(out, '}')
}

// emptyResponse returns a response for a stream that broke off before its first event.
func (a *reader) emptyResponse(requestID string) []byte {
	out := append([]byte(`{"id":`), jsonspan.AppendString(nil, "resp_"+requestID)...)
	out = append(out, `,"object":"response","created_at":0,"status":"failed","background":false,"completed_at":null,"error":null,`+
		`"incomplete_details":null,"instructions":null,"max_output_tokens":null,"model":`...)
	out = append(out, a.Model...)
	return append(out, `,"output":[],"parallel_tool_calls":true,"previous_response_id":null,"store":false,"temperature":null,`+
		`"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_p":null,`+
		`"truncation":"disabled","usage":null,"metadata":{}}`...)
}
