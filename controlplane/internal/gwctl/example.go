package gwctl

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// example returns a command line for help, built from the examples of the document.
func (o *operation) example(group, verb string) string {
	words := []string{"gwctl", group, verb}
	for _, arg := range o.args {
		value := arg.Example
		if value == nil {
			value = o.tool.doc.Example(arg.Schema)
		}
		words = append(words, quote(exampleText(value, sampleID(arg.Name))))
	}

	for _, in := range o.inputs {
		if in.required && in.in != "body" {
			words = append(words, "--"+in.flag+"="+quote(exampleText(o.exampleOf(in), "text")))
		}
	}

	line := "  " + strings.Join(append(words, o.bodyExample()...), " ")
	if o.body == nil || o.body.Example == nil || !strings.Contains(line, "--data=@") {
		return line
	}

	body, err := json.MarshalIndent(o.body.Example, "  ", "  ")
	if err != nil {
		return line
	}

	return line + "\n\n  The file, in YAML or JSON:\n  " + string(body)
}

// bodyExample returns flags for the members of the body's example, or --data if a member is not a scalar.
func (o *operation) bodyExample() []string {
	if o.op.Body == nil || o.takesFile() {
		return nil
	}
	if o.body == nil || o.body.Type != mediaJSON {
		return []string{"--data=@body"}
	}

	example, _ := o.body.Example.(map[string]any)
	var words []string
	for _, in := range o.inputs {
		if in.in != "body" {
			continue
		}

		value, given := example[in.name]
		if example == nil && in.required {
			value, given = o.exampleOf(in), true
		}
		if !given {
			continue
		}
		if !in.isPlain() && in.kind != "array" {
			return []string{"--data=@" + kebab(o.op.ID) + ".yaml"}
		}

		if in.isSecret() {
			words = append(words, "--"+in.flag+"-file="+in.flag+".txt")
			continue
		}

		words = append(words, "--"+in.flag+"="+quote(exampleText(value, "null")))
	}

	if len(words) == 0 && o.op.Body.Required && example == nil {
		return []string{"--data=@" + kebab(o.op.ID) + ".yaml"}
	}

	return words
}

// exampleOf returns a valid value of an input.
func (o *operation) exampleOf(in *input) any {
	if value := o.tool.doc.Example(in.schema); value != nil {
		return value
	}
	if in.kind == "array" && in.item != nil {
		return o.exampleOf(in.item)
	}

	switch {
	case in.schema.Format == "date-time":
		return "2026-01-31T00:00:00Z"
	case in.kind == "integer" || in.kind == "number":
		return 10
	case in.kind == "boolean":
		return true
	default:
		return sampleID(in.name)
	}
}

// sampleID returns a placeholder for an id.
func sampleID(name string) string { return strings.ToUpper(strings.TrimSuffix(name, "_id")) }

// exampleText returns a value as it is written on a command line.
func exampleText(value any, otherwise string) string {
	switch v := value.(type) {
	case nil:
		return otherwise
	case string:
		return v
	case []any:
		texts := make([]string, len(v))
		for i, each := range v {
			texts[i] = exampleText(each, "")
		}
		return strings.Join(texts, ",")
	case map[string]any:
		text, err := json.Marshal(v)
		if err != nil {
			return otherwise
		}
		return string(text)
	default:
		return fmt.Sprint(v)
	}
}

// quote quotes a word for the shell.
func quote(word string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@,=%+", r)
	}
	if word != "" && !slices.ContainsFunc([]rune(word), func(r rune) bool { return !safe(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
