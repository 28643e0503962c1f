package refused

import (
	"errors"
	"net/http"
	"time"

	"modelgateway/dataplane/internal/auth"
	"modelgateway/dataplane/internal/format"
	"modelgateway/shared/apierr"
	"modelgateway/shared/pulse"
)

// Key returns the error for a request whose key may not be used. Its message has the reason if the holder of the key can do
// something about it; a key that was revoked is not told apart from one that never existed.
func Key(err error) *apierr.Error {
	message := "The API key is missing, unknown or revoked."
	inactive, _ := errors.AsType[*auth.InactiveError](err)
	switch {
	case inactive == nil:
	case inactive.Reason == pulse.ReasonKeyRotated:
		message = "The API key was rotated, and this secret of it does not work any more."
	case inactive.Reason == pulse.ReasonKeyPaused:
		message = "The API key is paused."
	case inactive.Reason == pulse.ReasonKeyExpired:
		message = "The API key expired at " + time.UnixMilli(inactive.Key.Rules.ExpiresMS).UTC().Format(time.RFC3339) + "."
	case inactive.Reason == pulse.ReasonKeyNetwork && inactive.From.IsValid():
		message = "The API key may not be used from the address " + inactive.From.String() + "."
	case inactive.Reason == pulse.ReasonKeyNetwork:
		message = "The API key may only be used from certain networks, and the address of this request is not known."
	}
	return apierr.New(http.StatusUnauthorized, apierr.InvalidAPIKey, message)
}

// maxName bounds the length of a model name that a client sent and an error message repeats, in bytes.
const maxName = 128

// NoModel returns the error for a model that does not exist, or not for the account or the endpoint.
func NoModel(name string) *apierr.Error {
	return modelNotFound("The model '" + format.Clip(name, maxName) +
		"' does not exist, is not available to you, or does not support this endpoint.")
}

// NoModelForKey returns the error for a model that the account has and the key may not use.
func NoModelForKey(name string) *apierr.Error {
	return modelNotFound("The model '" + format.Clip(name, maxName) + "' is not among the models of this API key.")
}

func modelNotFound(message string) *apierr.Error {
	e := apierr.New(http.StatusNotFound, apierr.ModelNotFound, message)
	e.Param = "model"
	return e
}
