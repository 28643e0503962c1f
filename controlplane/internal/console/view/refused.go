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

// Reason says in words why an explained request is refused.
func Reason(reason string) string {
	if text := refusals[reason]; text != "" {
		return text
	}
	return strings.ReplaceAll(reason, "_", " ")
}
