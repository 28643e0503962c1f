// Package render writes responses for gwctl: as a table whose columns follow from the response's schema, as JSON, as
// YAML, or as one JSON object per line.
//
// JSON output is the text of the server, so that numbers and the order of members do not change.
package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"modelgateway/controlplane/internal/strict"
	"modelgateway/shared/platform/apidoc"
)

// Format is an output format.
type Format string

// The formats.
const (
	Table Format = "table"
	// Wide is a table with all columns.
	Wide Format = "wide"
	JSON Format = "json"
	YAML Format = "yaml"
	// Lines is one JSON object per line.
	Lines Format = "ndjson"
)

// Formats has all formats, for help and completion.
var Formats = []string{string(Table), string(Wide), string(JSON), string(YAML), string(Lines)}

// Writer writes responses.
type Writer struct {
	Out    io.Writer
	Doc    *apidoc.Document
	Format Format
	// Columns are the columns of a table. If there are none, the schema decides.
	Columns []string
}

// Show writes one response. Its schema may be nil.
func (w *Writer) Show(schema *apidoc.Schema, text []byte) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	switch w.Format {
	case JSON:
		return w.json(text)
	case YAML:
		return w.yaml(text)
	case Lines:
		items, err := Items(text)
		if err != nil || items == nil {
			items = []json.RawMessage{text}
		}
		return w.Line(items)
	default:
		return w.table(schema, text)
	}
}

// Items returns the entries of a list; nil if the response is not a list.
func Items(text []byte) ([]json.RawMessage, error) {
	var list struct {
		Data []json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("decode the response: %w", err)
	}
	return list.Data, nil
}

// Line writes entries, one per line.
func (w *Writer) Line(items []json.RawMessage) error {
	var out bytes.Buffer
	for _, item := range items {
		if err := json.Compact(&out, item); err != nil {
			return fmt.Errorf("decode the response: %w", err)
		}
		out.WriteByte('\n')
	}
	return w.write(out.Bytes())
}

func (w *Writer) json(text []byte) error {
	var out bytes.Buffer
	if err := json.Indent(&out, bytes.TrimSpace(text), "", "  "); err != nil {
		return fmt.Errorf("decode the response: %w", err)
	}
	out.WriteByte('\n')
	return w.write(out.Bytes())
}

func (w *Writer) yaml(text []byte) error {
	out, err := strict.ToYAML(text)
	if err != nil {
		return fmt.Errorf("decode the response: %w", err)
	}
	return w.write(out)
}

func (w *Writer) write(text []byte) error {
	if _, err := w.Out.Write(text); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// table writes a list as rows and an object as lines of name and value.
func (w *Writer) table(schema *apidoc.Schema, text []byte) error {
	value, err := decode(text)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	w.value(&out, schema, value)
	return w.write(out.Bytes())
}

func (w *Writer) value(out *bytes.Buffer, schema *apidoc.Schema, value any) {
	switch v := value.(type) {
	case map[string]any:
		if _, list := v["data"].([]any); len(w.Columns) > 0 && !list {
			w.members(out, v)
			return
		}
		w.object(out, schema, v)
	case []any:
		w.rows(out, w.Doc.Resolve(schema).Items, v)
	default:
		fmt.Fprintln(out, plain(v))
	}
}

// members writes the members of an object that the user chose.
func (w *Writer) members(out *bytes.Buffer, object map[string]any) {
	lines := make([][]string, 0, len(w.Columns))
	for _, column := range w.Columns {
		lines = append(lines, []string{column, plain(lookup(object, column))})
	}
	align(out, lines)
}

// sublist is a list in an object. It is written as a table of its own.
type sublist struct {
	path    string
	schema  *apidoc.Schema
	entries []any
}

// object writes the scalar members first, then each list as a table of its own.
func (w *Writer) object(out *bytes.Buffer, schema *apidoc.Schema, object map[string]any) {
	var lines [][]string
	var lists []sublist
	for _, name := range w.names(schema, object) {
		member := w.Doc.Member(schema, name)
		switch v := object[name].(type) {
		case []any:
			if slices.ContainsFunc(v, isObject) || name == "data" {
				lists = append(lists, sublist{name, member, v})
				continue
			}
			lines = append(lines, []string{name, joined(v)})
		case map[string]any:
			inner, more := w.nested(name, member, v)
			lines, lists = append(lines, inner...), append(lists, more...)
		case nil:
			lines = append(lines, []string{name, "-"}) // absent members are left out; null has a meaning, such as no limit
		default:
			if name != "next_cursor" {
				lines = append(lines, []string{name, plain(v)})
			}
		}
	}

	align(out, lines)
	for _, list := range lists {
		if out.Len() > 0 {
			out.WriteByte('\n')
		}
		if list.path != "data" {
			fmt.Fprintf(out, "%s:\n", list.path)
		}
		w.rows(out, w.Doc.Resolve(list.schema).Items, list.entries)
	}

	if cursor, more := object["next_cursor"].(string); more {
		fmt.Fprintf(out, "\nThere are more entries: add --cursor %s, or --all.\n", cursor)
	}
}

// names returns the members in the schema's order, then those that the schema does not have.
func (w *Writer) names(schema *apidoc.Schema, object map[string]any) []string {
	var names []string
	for _, p := range w.Doc.Members(schema) {
		if _, present := object[p.Name]; present && !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	var others []string
	for name := range object {
		if !slices.Contains(names, name) {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	return append(names, others...)
}

// nested flattens an object into lines with dotted names, and returns the lists in it.
func (w *Writer) nested(path string, schema *apidoc.Schema, object map[string]any) (lines [][]string, lists []sublist) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		at, member := path+"."+Printable(name), w.Doc.Member(schema, name)
		switch v := object[name].(type) {
		case map[string]any:
			inner, more := w.nested(at, member, v)
			lines, lists = append(lines, inner...), append(lists, more...)
		case []any:
			if slices.ContainsFunc(v, isObject) {
				lists = append(lists, sublist{at, member, v})
				continue
			}
			lines = append(lines, []string{at, joined(v)})
		default:
			lines = append(lines, []string{at, plain(v)})
		}
	}
	return lines, lists
}

func isObject(v any) bool {
	_, is := v.(map[string]any)
	return is
}

func decode(text []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("decode the response: %w", err)
	}
	return value, nil
}

// plain returns a value as the text of a cell.
func plain(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		return Printable(v)
	case json.Number:
		return v.String()
	case bool:
		return map[bool]string{true: "yes", false: "no"}[v]
	case []any:
		return joined(v)
	default:
		text, err := json.Marshal(v)
		if err != nil { // the value was decoded from JSON
			panic(err)
		}
		return Printable(string(text))
	}
}

// Printable replaces control characters, which could move the cursor: customers choose the names that are shown.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || (r >= 0x7f && r < 0xa0) {
			return '\uFFFD'
		}
		return r
	}, text)
}

// joined returns the values of a list in one line. An empty list looks like an absent value: a blank looks like a fault.
func joined(values []any) string {
	if len(values) == 0 {
		return plain(nil)
	}
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = plain(v)
	}
	return strings.Join(texts, ", ")
}
