package usagereport

import (
	"bytes"

	"modelgateway/dataplane/internal/jsonspan"
)

// places are where providers and proxies put a report besides the place of the format: in the answer, or around it. None of
// them is in what an answer repeats of the request, such as its metadata: a client could report its own usage.
var places = [...][]string{
	{"usage"},
	{"x_groq", "usage"},
	{"choices", "0", "usage"},
	{"choices", "0", "delta", "usage"},
	{"choices", "0", "message", "usage"},
	{"message", "usage"},
	{"response", "usage"},
	{"delta", "usage"},
	{"data", "usage"},
	{"result", "usage"},
	{"meta", "usage"},
	{"meta", "tokens"},
	{"usageMetadata"},
	{"usage_metadata"},
	{"response", "usageMetadata"},
	{"token_usage"},
	{"amazon-bedrock-invocationMetrics"},
}

// Elsewhere returns the first report with a count in an answer or event that has none in the place of its format, nil if there
// is none.
func Elsewhere(answer []byte) []byte {
	if !bytes.Contains(answer, []byte("oken")) {
		return nil // such as most events of a stream: a report has counts of tokens, and to look for each place takes long
	}
	for _, place := range places {
		if raw, ok := jsonspan.Find(answer, place...); ok {
			if _, found, _ := Read(raw); found {
				return raw
			}
		}
	}
	return nil
}

// In returns the report with a count in a member of an answer, nil if there is none, or if none of the places is in a member
// with this name.
func In(name, value []byte) []byte {
	for _, place := range places {
		if place[0] != string(name) {
			continue
		}
		raw := value
		if len(place) > 1 {
			raw, _ = jsonspan.Find(value, place[1:]...)
		}
		if _, found, _ := Read(raw); found {
			return raw
		}
	}
	return nil
}
