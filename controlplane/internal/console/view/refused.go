package view

import "strings"

// refusals are the reasons for refusals that say less in their code, in words.
var refusals = map[string]string{
	"account_suspended":    "The account is suspended. The client is not told so: it gets the answer for an unknown key.",
	"key_revoked":          "The key was revoked. The client gets the answer for an unknown key.",
	"key_inactive":         "The account is suspended, or the key was revoked. The client gets the answer for an unknown key.",
	"key_rotated":          "The secret of the key was replaced, and does not work any more.",
	"key_paused":           "The key is paused.",
	"key_expired":          "The key has expired.",
	"key_network":          "The key may not be used from the address of the client.",
	"maintenance":          "An operator has closed it for maintenance.",
	"no_session":           "The session of the proxy had ended: it could not know what has changed since.",
	"no_spool":             "The spool of the proxy was full or could not be written: its usage could not be stored.",
	"no_room":              "The proxy had no room for its body.",
	"no_route":             "No route of the model could be called: closed provider, open breaker or refused credential.",
	"undecided":            "No control plane has decided about the key or the units in time.",
	"balance_insufficient": "The balance leaves less than the request may cost.",
	"balance_reserved":     "Running requests hold the rest of the balance.",
	"limit_insufficient":   "A spend limit leaves less than the request may cost.",
	"no_slot":              "As many requests of the account, or of the key, run as may.",

	"limit_reserved": "Running requests hold the rest of a spend limit.",
}

// codes say in words what a refusal is about for which no reason was recorded.
var codes = map[string]string{
	"invalid_api_key": "The key is missing, or it is no key of this gateway.",
	"model_not_found": "The account has no such model for the endpoint: " +
		"it does not exist, is disabled, is not granted, or has no route for the format.",
	"not_found":               "There is no such endpoint or video job, or the video is not ready.",
	"unsupported_parameter":   "The model does not support a parameter of the request. The answer names it.",
	"unsupported_value":       "The value of a parameter cannot be used. The answer names it.",
	"invalid_value":           "The value of a parameter cannot be used. The answer names it.",
	"invalid_request":         "The body of the request is malformed, or larger than it may be.",
	"context_length_exceeded": "The prompt and the output do not fit the model.",
}

// Refused says in words why a request was refused: by the reason, or by the code if none was recorded; empty if neither says more.
func Refused(code, reason string) string {
	if reason != "" {
		return Reason(reason)
	}
	return codes[code]
}

// Reason says in words why an explained request is refused.
func Reason(reason string) string {
	if text := refusals[reason]; text != "" {
		return text
	}
	return strings.ReplaceAll(reason, "_", " ")
}
