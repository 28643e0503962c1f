package gwctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"modelgateway/shared/platform/apidoc"
)

// input is a flag for a parameter or a member of the body. It keeps its value as JSON and numbers as they were written.
type input struct {
	// name is the name in the API document; in is "query", "header" or "body".
	name, in string
	// flag is the name on the command line.
	flag     string
	required bool
	kind     string
	nullable bool
	schema   *apidoc.Schema
	// item describes the entries of a list.
	item *input
	// read returns the content of @file; only for values that are objects.
	read func(name string) ([]byte, error)

	set   bool
	value json.RawMessage
	// entries are the values of a list so far.
	entries []json.RawMessage
}

var _ pflag.Value = (*input)(nil)

func newInput(doc *apidoc.Document, name, in string, required bool, schema *apidoc.Schema, read func(string) ([]byte, error)) *input {
	whole := doc.Resolve(schema)
	i := &input{
		name:     name,
		in:       in,
		required: required,
		kind:     doc.Kind(schema),
		nullable: doc.Nullable(schema),
		schema:   whole,
		read:     read,
	}
	if i.kind == "array" {
		if i.item = newInput(doc, name, in, false, whole.Items, read); !i.item.isPlain() {
			i.kind, i.item = "object", nil // a list of objects is one value
		}
	}

	return i
}

// isPlain reports whether the value is a scalar.
func (i *input) isPlain() bool {
	return slices.Contains([]string{"string", "integer", "number", "boolean"}, i.kind)
}

// isSecret reports whether the value is a secret, which can be given by a file, too: other users of the machine see command
// lines, and shells store them.
func (i *input) isSecret() bool { return i.schema.WriteOnly && i.kind == "string" }

// secretFile is the flag that reads a secret from a file.
type secretFile struct{ *input }

var errTwice = errors.New("the secret is given twice")

func (secretFile) Type() string { return "path" }

// Set implements pflag.Value. It reads the file without the line break at its end.
func (f secretFile) Set(name string) error {
	if f.set {
		return errTwice
	}
	content, err := f.read(name)
	if err != nil {
		return err
	}
	text := strings.TrimRight(string(content), "\r\n")
	if text == "" {
		return errors.New("the file is empty")
	}
	if f.value, err = json.Marshal(text); err == nil {
		f.set = true
	}
	return err
}

// Type implements pflag.Value. Help shows it.
func (i *input) Type() string {
	switch {
	case i.kind == "array":
		return i.item.Type() + ",..." // ASCII, because help is aligned by bytes
	case i.schema.Format == "date-time":
		return "time"
	case i.schema.Name == "Money":
		return "decimal"
	case i.kind == "boolean":
		return "bool"
	case i.isPlain():
		return i.kind
	default:
		return "json"
	}
}

func (i *input) String() string { return string(i.value) }

func (i *input) Set(text string) error {
	if i.kind == "array" {
		return i.add(text)
	}
	if i.isSecret() && i.set {
		return errTwice
	}
	value, err := i.parse(text)
	if err == nil {
		i.set, i.value = true, value
	}
	return err
}

// add adds entries separated by commas.
func (i *input) add(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		entry, err := i.item.parse(part)
		if err != nil {
			return err
		}
		i.entries = append(i.entries, entry)
	}
	i.set, i.value = true, slices.Concat([]byte("["), bytes.Join(raws(i.entries), []byte(",")), []byte("]"))
	return nil
}

func raws(values []json.RawMessage) [][]byte {
	all := make([][]byte, len(values))
	for i, v := range values {
		all[i] = v
	}
	return all
}

// number matches the numbers of JSON.
var number = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

func (i *input) parse(text string) (json.RawMessage, error) {
	if i.nullable && text == "null" {
		return json.RawMessage("null"), nil
	}
	switch i.kind {
	case "boolean":
		b, err := strconv.ParseBool(text)
		if err != nil {
			return nil, errors.New("must be true or false")
		}
		return json.RawMessage(strconv.FormatBool(b)), nil
	case "integer":
		if _, err := strconv.ParseInt(text, 10, 64); err != nil {
			return nil, errors.New("must be an integer")
		}
		return json.RawMessage(text), nil
	case "number":
		if !number.MatchString(text) {
			return nil, errors.New("must be a number")
		}
		return json.RawMessage(text), nil
	case "string":
		return i.parseString(text)
	default:
		return i.parseObject(text)
	}
}

func (i *input) parseString(text string) (json.RawMessage, error) {
	if i.isSecret() && strings.HasPrefix(text, "@") {
		return nil, fmt.Errorf("begins with @; --%s-file reads a file", i.flag)
	}
	if words := i.words(); len(words) > 0 && !slices.Contains(words, text) {
		return nil, fmt.Errorf("must be one of %s", strings.Join(words, ", "))
	}
	if i.schema.Format == "date-time" {
		at, err := parseTime(text)
		if err != nil {
			return nil, err
		}
		text = at
	}
	return json.Marshal(text)
}

// parseTime returns a time or the beginning of a day, in UTC.
func parseTime(text string) (string, error) {
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day.Format(time.RFC3339), nil
	}
	if _, err := time.Parse(time.RFC3339, text); err != nil {
		return "", errors.New("must be a time such as 2026-01-31T12:00:00Z, or a day such as 2026-01-31")
	}
	return text, nil
}

// parseObject returns the JSON of a text or of @file, in JSON or YAML.
func (i *input) parseObject(text string) (json.RawMessage, error) {
	if name, found := strings.CutPrefix(text, "@"); found {
		content, err := i.read(name)
		if err != nil {
			return nil, err
		}
		text = string(content)
	}
	return toJSON([]byte(text))
}

// words returns the values of an enumeration.
func (i *input) words() []string {
	var words []string
	for _, v := range i.schema.Enum {
		if v != nil {
			words = append(words, fmt.Sprint(v))
		}
	}
	return words
}

// text returns the value without the quotes of JSON, for the query or a header.
func (i *input) text() []string {
	if i.kind == "array" {
		texts := make([]string, len(i.entries))
		for n, entry := range i.entries {
			texts[n] = unquote(entry)
		}
		return texts
	}
	return []string{unquote(i.value)}
}

func unquote(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

// toJSON converts JSON or YAML to JSON. Numbers stay as they are written.
func toJSON(text []byte) (json.RawMessage, error) {
	if json.Valid(text) {
		return bytes.TrimSpace(text), nil
	}
	var tree yaml.Node
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, fmt.Errorf("is neither JSON nor YAML: %w", err)
	}
	if len(tree.Content) != 1 {
		return nil, errors.New("is empty")
	}
	return nodeJSON(tree.Content[0])
}

func nodeJSON(n *yaml.Node) (json.RawMessage, error) {
	switch n.Kind {
	case yaml.MappingNode, yaml.SequenceNode:
		return branchJSON(n)
	case yaml.ScalarNode:
	default:
		return nil, fmt.Errorf("line %d: aliases are not supported", n.Line)
	}
	switch {
	case n.ShortTag() == "!!null":
		return json.RawMessage("null"), nil
	case n.ShortTag() == "!!bool":
		var b bool
		if err := n.Decode(&b); err != nil {
			return nil, fmt.Errorf("line %d: %w", n.Line, err)
		}
		return json.RawMessage(strconv.FormatBool(b)), nil
	case (n.ShortTag() == "!!int" || n.ShortTag() == "!!float") && number.MatchString(n.Value):
		return json.RawMessage(n.Value), nil
	default:
		return json.Marshal(n.Value)
	}
}

func branchJSON(n *yaml.Node) (json.RawMessage, error) {
	opening, closing, step := byte('['), byte(']'), 1
	if n.Kind == yaml.MappingNode {
		opening, closing, step = '{', '}', 2
	}

	out := []byte{opening}
	for i := 0; i+step <= len(n.Content); i += step {
		if i > 0 {
			out = append(out, ',')
		}
		if step == 2 {
			name, err := json.Marshal(n.Content[i].Value)
			if err != nil {
				return nil, err
			}
			out = append(append(out, name...), ':')
		}
		value, err := nodeJSON(n.Content[i+step-1])
		if err != nil {
			return nil, err
		}
		out = append(out, value...)
	}

	return append(out, closing), nil
}
