package view

// skipped are the reasons for which a route is not called, in words.
var skipped = map[string]string{
	"maintenance":       "its provider is closed for maintenance",
	"breaker_open":      "its circuit breaker is open: its last calls have failed",
	"cooldown":          "it failed lately, and others are preferred for a while",
	"no_credential":     "its provider has no credential",
	"rate_limit":        "its provider limits the rate, and other accounts had their turn",
	"disabled":          "it is disabled",
	"provider_disabled": "its provider is disabled",
	"parameters":        "it refuses a parameter of the request, or others offer more of its tools",
	"beyond_attempts":   "three routes come before it",
}

// Skipped says in words why a route is not called.
func Skipped(reason string) string {
	if text := skipped[reason]; text != "" {
		return text
	}
	return reason
}
