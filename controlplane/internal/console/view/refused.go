package view

import "strings"

// refusals are the reasons for refusals that say less in their code, in words.
var refusals = map[string]string{
	"account_suspended": "The account is suspended. The client is not told so: it gets the answer for an unknown key.",
	"key_revoked":       "The key was revoked. The client gets the answer for an unknown key.",
	"balance_spent":     "The balance does not suffice.",
	"balance_reserved":  "Running requests hold the rest of the balance.",
	"key_limit_spent":   "The spend limit of the key is reached.",
	"no_slot":           "As many requests of the account run as may.",

	"key_limit_reserved": "Running requests hold the rest of the key's spend limit.",
}

// Reason says in words why an explained request is refused.
func Reason(reason string) string {
	if text := refusals[reason]; text != "" {
		return text
	}
	return strings.ReplaceAll(reason, "_", " ")
}

// WhyRefused says in words why requests with an error code and status were refused, as far as nothing was short; empty if the
// code says it. known is set if the key is known.
func WhyRefused(code string, status int, known bool) string {
	switch {
	case code == "invalid_api_key" && known:
		return "the account is suspended, or the key was revoked: the client gets the answer for an unknown key"
	case code == "invalid_api_key":
		return "the key is missing or unknown"
	case code == "" && status == 503:
		return "no route of the model could be called: closed provider, open breaker or refused credential"
	case code == "service_unavailable":
		return "maintenance, or the proxy could not decide"
	default:
		return ""
	}
}
