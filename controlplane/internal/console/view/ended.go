package view

import "strings"

// failures are the classes of failures of providers, in words.
var failures = map[string]string{
	"added_member":          "the provider refuses a parameter that the gateway adds to requests",
	"truncated":             "the provider ended its answer before it was complete",
	"connection":            "the connection to the provider failed",
	"timeout":               "the provider sent nothing for too long",
	"unavailable":           "the provider failed, or has an outage",
	"rate_limit":            "the provider is overloaded, or limits the rate of calls",
	"gateway_refused":       "the provider refuses the gateway's key, balance or plan",
	"content_policy":        "the provider refused the content of the prompt or of the answer",
	"context_length":        "the prompt and the output do not fit the model",
	"invalid_image":         "the provider could not use an image of the request",
	"invalid_value":         "the provider refused the value of a parameter",
	"no_image":              "the model returned neither an image nor a reason",
	"no_stream":             "the provider answered in one piece where a stream was asked for",
	"busy":                  "the proxy had no room for a large event of the answer",
	"unsupported_parameter": "the model does not support a parameter of the request",
	"other_client":          "the provider rejected the request without a reason that is known",
	"unclassified":          "the provider sent an error that no rule explains",
}

// Failure says in words what the class of a provider's failure means.
func Failure(class string) string {
	if text := failures[class]; text != "" {
		return text
	}
	return strings.ReplaceAll(class, "_", " ")
}

// WhyEnded says in words why a request ended before its answer was complete, and why it is charged; empty for a complete answer.
// class is the class of the last failure of a provider; begun is set if the client has got a part of the answer, and rule is that
// of the charge.
func WhyEnded(status, class string, begun bool, rule string) string {
	var why string
	switch {
	case status == "client_gone":
		why = "The client closed the connection before the end of the answer."
	case status == "revoked":
		why = "The key was revoked, or its account suspended, while the request ran."
	case status == "aborted":
		why = "The proxy ended while the request ran, without a record of its end."
	case status != "failed":
		return ""
	case begun && class != "":
		why = "The stream broke off: " + Failure(class) + ". The client got what had come until then, and an error at its end."
	case begun:
		why = "The answer broke off after a part of it had been sent."
	case class != "":
		why = "No route served it. The last failure: " + Failure(class) + "."
	default:
		why = "No route served it."
	}

	switch rule {
	case "reported":
		return why + " It is charged by what the provider reported."
	case "estimated":
		return why + " It is charged by an estimate of what was delivered, because the provider had reported no usage that can be used."
	default:
		return why + " Nothing is charged."
	}
}
