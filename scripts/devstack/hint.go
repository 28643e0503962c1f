package devstack

import (
	"fmt"
	"path/filepath"
	"strings"
)

// requests holds an example request by format.
var requests = map[string]struct{ path, body string }{
	"chat":      {"/v1/chat/completions", `{"model":"%s","messages":[{"role":"user","content":"Say hello"}]%s}`},
	"responses": {"/v1/responses", `{"model":"%s","input":"Say hello"%s}`},
	"messages":  {"/v1/messages", `{"model":"%s","max_tokens":256,"messages":[{"role":"user","content":"Say hello"}]%s}`},
}

// curl returns a command line that sends a request for a model in a format.
func curl(baseURL, key, model, format string, stream bool) string {
	flags, option := "-s", ""
	if stream {
		flags, option = "-sN", `,"stream":true`
	}
	request := requests[format]
	return fmt.Sprintf("curl %s %s%s -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' -d '%s'",
		flags, baseURL, request.path, key, fmt.Sprintf(request.body, model, option))
}

// shownBinary returns the path of a binary as a user types it in the repository.
func (l Layout) shownBinary(name string) string {
	path, err := filepath.Rel(l.Root, l.binary(name))
	if err != nil || strings.HasPrefix(path, "..") {
		path = l.binary(name)
	}
	if strings.ContainsAny(path, " '\"$") {
		return "'" + strings.ReplaceAll(path, "'", `'\\''`) + "'"
	}
	return path
}

// hint returns the message about a stack that is ready: addresses, files and commands.
func hint(l Layout, state State, catalog catalog) string {
	var out strings.Builder
	fmt.Fprintf(&out, `
The gateway is ready.

  API         %s
  admin API   %s/admin/v1 (token in %s)
  console     %s/console/ (sign in with that token)
  simulator   %s
  state       %s
  logs        %s

Commands to try:
`, strings.Join(state.BaseURLs, " and "), strings.Join(state.AdminURLs, " and "), l.secret("admin_token"),
		state.AdminURL, state.ProviderSimURL, l.state(), l.log("*"))

	fmt.Fprintf(&out, "\n  curl -s %s/v1/balance -H 'Authorization: Bearer %s'\n", state.BaseURL, state.APIKey)
	if id, format := catalog.example(); id != "" {
		for _, stream := range []bool{false, true} {
			fmt.Fprintf(&out, "\n  %s\n", curl(state.BaseURL, state.APIKey, id, format, stream))
		}
	}

	fmt.Fprintf(&out, `
What the requests cost, and the receipt of one of them, a moment after its answer:

  %[1]s --dev usage list
  %[1]s --dev usage get REQUEST_ID

The documents of both APIs are at %[2]s/docs and %[3]s/docs.
make cabinet runs an example of a customer portal against this stack.
`, l.shownBinary("gwctl"), state.OpsURLs[DataPlaneName(0)], state.AdminURL)

	out.WriteString("\nCtrl-C stops everything. The data stays for the next make run; make clean removes it.")
	return out.String()
}
