// Package apipage renders an OpenAPI document as an HTML page without scripts
// and without external resources. The page contains only text of the document.
//
// Two extensions of OpenAPI are rendered as tables: x-problems, the problem
// types of an API that answers with problem documents, each with a page of its
// own, and x-errors, the error codes of any other API.
package apipage

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"modelgateway/shared/platform/apidoc"
)

//go:embed page.gohtml problem.gohtml style.css
var files embed.FS

// Policy is the Content-Security-Policy of the pages: nothing runs, and
// nothing is loaded.
const Policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Problem is a problem type of the API.
type Problem struct {
	Code        string `yaml:"code"`
	Status      int    `yaml:"status"`
	Description string `yaml:"description"`
}

// Code is an error code of the API.
type Code struct {
	// Code is empty for an error without one.
	Code        string `yaml:"code"`
	Status      string `yaml:"status"`
	Description string `yaml:"description"`
	// Retry says whether and when a client should retry.
	Retry string `yaml:"retry"`
}

// Site is a set of rendered pages. It is immutable and safe for concurrent use.
type Site struct {
	page     []byte
	problems map[string][]byte
	kinds    []Problem
}

// heading is the part of the document that apidoc does not read.
type heading struct {
	Info struct {
		Title       string `yaml:"title"`
		Version     string `yaml:"version"`
		Summary     string `yaml:"summary"`
		Description string `yaml:"description"`
	} `yaml:"info"`
	Tags []struct {
		Name        string `yaml:"name"`
		Description string `yaml:"description"`
	} `yaml:"tags"`
	Problems []Problem `yaml:"x-problems"` //nolint:tagliatelle // an extension of OpenAPI
	Errors   []Code    `yaml:"x-errors"`   //nolint:tagliatelle // an extension of OpenAPI
}

// group holds the operations of a tag.
type group struct {
	Name, Description string
	Operations        []*apidoc.Operation
}

// New renders a document.
func New(document []byte) (*Site, error) {
	doc, err := apidoc.Parse(document)
	if err != nil {
		return nil, fmt.Errorf("apipage: %w", err)
	}

	var head heading
	if err := yaml.Unmarshal(document, &head); err != nil {
		return nil, fmt.Errorf("apipage: read heading: %w", err)
	}

	style, err := files.ReadFile("style.css")
	if err != nil {
		return nil, fmt.Errorf("apipage: %w", err)
	}

	pages, err := template.New("").Funcs(functions(doc)).ParseFS(files, "*.gohtml")
	if err != nil {
		return nil, fmt.Errorf("apipage: %w", err)
	}

	var groups []group
	for _, tag := range head.Tags {
		g := group{Name: tag.Name, Description: tag.Description}
		for _, op := range doc.Operations {
			if op.Tag == tag.Name {
				g.Operations = append(g.Operations, op)
			}
		}
		groups = append(groups, g)
	}

	site := &Site{problems: map[string][]byte{}, kinds: head.Problems}
	common := map[string]any{
		"Head":    head,
		"Groups":  groups,
		"Schemas": doc.SchemaNames(),
		"Style":   template.CSS(style), //nolint:gosec // our own file
	}
	if site.page, err = render(pages, "page.gohtml", common); err != nil {
		return nil, err
	}

	for _, p := range head.Problems {
		text, err := render(pages, "problem.gohtml", map[string]any{"Problem": p, "Style": common["Style"]})
		if err != nil {
			return nil, err
		}
		site.problems[p.Code] = text
	}

	return site, nil
}

func render(pages *template.Template, name string, data any) ([]byte, error) {
	var out bytes.Buffer
	if err := pages.ExecuteTemplate(&out, name, data); err != nil {
		return nil, fmt.Errorf("apipage: render: %w", err)
	}
	return out.Bytes(), nil
}

// Page returns the page of the whole document.
func (s *Site) Page() []byte { return s.page }

// Problem returns the page of a problem type, nil if there is none with that code.
func (s *Site) Problem(code string) []byte { return s.problems[code] }

// ProblemTypes returns the problem types that the document describes.
func (s *Site) ProblemTypes() []Problem { return slices.Clone(s.kinds) }

// functions returns the functions that the templates call.
func functions(doc *apidoc.Document) template.FuncMap {
	r := renderer{doc}
	return template.FuncMap{
		"prose": prose, "inline": inline, "body": body, "curl": curl,
		"type": r.typeOf, "note": r.note, "members": doc.Members, "lower": strings.ToLower,
		"schema": func(name string) *apidoc.Schema {
			return doc.Resolve(&apidoc.Schema{Ref: "#/components/schemas/" + name})
		},
		"named": func(s *apidoc.Schema) string { return doc.Resolve(s).Name },
	}
}

type renderer struct{ doc *apidoc.Document }

// typeOf returns the name of a type, as a link if the type is a named schema.
func (r renderer) typeOf(s *apidoc.Schema) template.HTML {
	whole := r.doc.Resolve(s)
	kind := r.doc.Kind(s)
	var text string
	switch {
	case whole.Name != "":
		text = link(whole.Name)
	case kind == "array":
		text = "list of " + string(r.typeOf(whole.Items))
	case kind == "":
		text = "anything"
	case whole.Format != "":
		text = template.HTMLEscapeString(kind + " (" + whole.Format + ")")
	default:
		text = template.HTMLEscapeString(kind)
	}

	if r.doc.Nullable(s) {
		text += " or null"
	}

	return template.HTML(text) //nolint:gosec // every part is escaped
}

func link(name string) string {
	name = template.HTMLEscapeString(name)
	return `<a href="#schema-` + name + `">` + name + `</a>`
}

// note returns the description, enumeration, default and example of a value.
func (r renderer) note(s *apidoc.Schema) template.HTML {
	whole := r.doc.Resolve(s)
	var notes []string
	if whole.Description != "" {
		notes = append(notes, string(inline(whole.Description)))
	}

	if len(whole.Enum) > 0 && whole.Name == "" {
		values := make([]string, len(whole.Enum))
		for i, v := range whole.Enum {
			values[i] = code(v)
		}
		notes = append(notes, "One of "+strings.Join(values, ", ")+".")
	}

	if whole.Default != nil {
		notes = append(notes, "Default "+code(whole.Default)+".")
	}
	if len(whole.Examples) > 0 {
		notes = append(notes, "Such as "+code(whole.Examples[0])+".")
	}

	return template.HTML(strings.Join(notes, " ")) //nolint:gosec // every part is escaped
}

func code(v any) string { return "<code>" + template.HTMLEscapeString(fmt.Sprint(v)) + "</code>" }

// prose renders text as paragraphs.
func prose(text string) template.HTML {
	var out strings.Builder
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		out.WriteString("<p>" + string(inline(paragraph)) + "</p>")
	}
	return template.HTML(out.String()) //nolint:gosec // every part is escaped
}

// inline renders text in which backticks mark code.
func inline(text string) template.HTML {
	var out strings.Builder
	for i, part := range strings.Split(text, "`") {
		if part = template.HTMLEscapeString(part); i%2 == 1 {
			part = "<code>" + part + "</code>"
		}
		out.WriteString(part)
	}
	return template.HTML(out.String()) //nolint:gosec // every part is escaped
}

// body renders an example: a text as it is, any other value as indented JSON.
func body(v any) (string, error) {
	if text, ok := v.(string); ok {
		return text, nil
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return "", fmt.Errorf("apipage: encode example: %w", err)
	}
	return out.String(), nil
}
