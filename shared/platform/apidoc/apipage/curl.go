package apipage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"modelgateway/shared/platform/apidoc"
)

// curl returns the command line of an operation: with its required parameters, and the first example of its body.
// HOST stands for the address of the API, and other words in capitals for values that the document has no example of.
func curl(op *apidoc.Operation) (string, error) {
	path, query := op.Path, ""
	var headers strings.Builder
	for i := range op.Params {
		p := &op.Params[i]
		switch {
		case p.In == "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", sampleOf(p))
		case p.Required && p.In == "query":
			query += "&" + p.Name + "=" + sampleOf(p)
		case p.Required && p.In == "header":
			headers.WriteString(" -H '" + p.Name + ": " + sampleOf(p) + "'")
		}
	}
	if query != "" {
		path += "?" + query[1:]
	}

	key := "MGW_API_KEY"
	if op.Scope != "" {
		key = "MGW_ADMIN_TOKEN"
	}
	line := `curl -sS --fail-with-body`
	if op.Method != http.MethodGet {
		line += " -X " + op.Method
	}
	line += ` 'https://HOST` + path + `' -H "Authorization: Bearer $` + key + `"` + headers.String()

	if op.Body == nil {
		return line, nil
	}
	media, found := apidoc.In(op.Body.Media, "application/json")
	if !found || media.Example == nil {
		return line, nil
	}
	text, err := compact(media.Example)
	if err != nil {
		return "", err
	}

	return line + " \\\n  -H 'Content-Type: application/json' -d '" + strings.ReplaceAll(text, "'", `'\''`) + "'", nil
}

// sampleOf returns the example of a parameter, or its name in capitals.
func sampleOf(p *apidoc.Param) string {
	switch {
	case p.Example != nil:
		return fmt.Sprint(p.Example)
	case p.Schema != nil && len(p.Schema.Examples) > 0:
		return fmt.Sprint(p.Schema.Examples[0])
	}
	return strings.ToUpper(strings.ReplaceAll(p.Name, "-", "_"))
}

func compact(v any) (string, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return "", fmt.Errorf("apipage: encode example: %w", err)
	}
	return strings.TrimSpace(out.String()), nil
}
