package upload

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"modelgateway/dataplane/internal/bytebudget"
	"modelgateway/dataplane/internal/httpapi/buffer"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/apierr"
)

// ErrCrowded is the error for an account that sends as many large bodies as may be read at the same time.
var ErrCrowded = apierr.New(http.StatusTooManyRequests, apierr.RateLimitExceeded,
	"This account sends too many large requests at the same time. Please try again when one of them has been received.")

// ErrKeyCrowded is the same for a key with slots of its own.
var ErrKeyCrowded = apierr.New(http.StatusTooManyRequests, apierr.RateLimitExceeded,
	"This API key sends too many large requests at the same time. Please try again when one of them has been received.")

// maxEncoding bounds the length of a content encoding that an error message repeats, in bytes.
const maxEncoding = 128

// refusal returns the error for a body that was not read. Errors of the gate and of the budget stay as they are.
func (b *Body) refusal(err error, limit int64) error {
	invalid := func(message string) error {
		return apierr.New(http.StatusBadRequest, apierr.InvalidRequest, message).WithCause(err)
	}

	var encoding *EncodingError
	switch {
	case b.refused, errors.Is(err, bytebudget.ErrFull), errors.Is(err, bytebudget.ErrShare), errors.Is(err, bytebudget.ErrTooLarge):
		return err
	case errors.Is(err, buffer.ErrTooLarge):
		return apierr.New(http.StatusRequestEntityTooLarge, apierr.InvalidRequest,
			fmt.Sprintf("The request body is larger than the limit of %d MiB.", limit>>20)).WithCause(err)
	case errors.As(err, &encoding):
		name := encoding.Encoding
		if len(name) > maxEncoding {
			name = strings.ToValidUTF8(name[:maxEncoding], "") + "…"
		}
		return invalid("Request bodies with the content encoding '" + name + "' are not accepted: send gzip, zstd or none.")
	case errors.Is(err, ErrCompressed):
		return invalid("The request body is not valid in its content encoding.")
	default:
		return invalid("The request body could not be read completely.")
	}
}

// NotJSON is the error for a body that is not a valid JSON object.
func NotJSON(err error) *apierr.Error {
	e := apierr.New(http.StatusBadRequest, apierr.InvalidRequest, "").WithCause(err)
	var duplicate *jsonspan.DuplicateError
	var syntax *jsonspan.SyntaxError
	switch {
	case errors.As(err, &duplicate):
		e.Message, e.Param = "The request body contains the member '"+duplicate.Path+"' more than once.", duplicate.Path
	case errors.As(err, &syntax):
		e.Message = fmt.Sprintf("The request body is not a valid JSON object: %s at byte %d.", syntax.Msg, syntax.Offset)
	default:
		e.Message = "The request body is not a valid JSON object."
	}
	return e
}
