// Package apidoc reads OpenAPI documents: their operations with parameters,
// bodies and responses, and the schemas that they refer to. Both planes use it,
// each for its own document: package apipage renders the document as a page,
// package apitest checks a server against it, and gwctl derives its commands
// from it.
//
// It is a module of its own, so that the module modelgateway/shared, the
// contract between the planes, needs only the standard library.
//
// Parse is lenient: the test and the linter of a document validate it. The
// order of the document is kept.
package apidoc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Document is an OpenAPI document.
type Document struct {
	// Operations are in the order of the document.
	Operations []*Operation
	// Tags holds the description of each tag.
	Tags map[string]string

	schemas map[string]*Schema
}

// Operation is one method of one path.
type Operation struct {
	ID, Method, Path, Tag, Summary, Description string
	// Scope is the scope that a token needs; empty if the document names none.
	Scope string
	// Params are those of the path and of the method, references followed.
	Params []Param
	// Body is nil for an operation without a request body.
	Body *Body
	// Responses are in the order of the document.
	Responses []Response
}

// Param is a parameter in the path, the query or a header.
type Param struct {
	Name        string  `yaml:"name"`
	In          string  `yaml:"in"`
	Required    bool    `yaml:"required"`
	Description string  `yaml:"description"`
	Schema      *Schema `yaml:"schema"`
	Example     any     `yaml:"example"`
	// Explode is nil for the default: each entry of a list is a parameter of its own.
	Explode *bool `yaml:"explode"`
}

// Joined reports whether the entries of a list form one value, separated by commas.
func (p *Param) Joined() bool { return p.Explode != nil && !*p.Explode }

// Body is the request body of an operation.
type Body struct {
	Required bool
	Media    []Media
}

// Response is the response of an operation with a status, such as "200".
type Response struct {
	Status      string
	Description string
	Headers     []Header
	Media       []Media
}

// Header is a header of a response.
type Header struct {
	Name        string
	Description string
	Schema      *Schema
}

// Media is one media type of a body.
type Media struct {
	Type   string
	Schema *Schema
	// Example is the value of the first example; nil if there is none.
	Example any
	// Examples are all examples, in the order of the document.
	Examples []Example
}

// Example is an example of a body.
type Example struct {
	// Name is empty for the only example of a media type.
	Name, Summary string
	Value         any
}

// Parse reads a document.
func Parse(text []byte) (*Document, error) {
	var raw rawDocument
	if err := yaml.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("apidoc: %w", err)
	}
	d := &Document{Tags: map[string]string{}, schemas: raw.Components.Schemas}
	for _, tag := range raw.Tags {
		d.Tags[tag.Name] = tag.Description
	}
	var errs []error
	for _, path := range raw.Paths {
		operations, err := raw.operations(path)
		errs = append(errs, err)
		d.Operations = append(d.Operations, operations...)
	}
	return d, errors.Join(errs...)
}

// Operation returns the operation with an id, nil if there is none.
func (d *Document) Operation(id string) *Operation {
	i := slices.IndexFunc(d.Operations, func(op *Operation) bool { return op.ID == id })
	if i < 0 {
		return nil
	}
	return d.Operations[i]
}

// PathParams returns the parameters of the path, in the order of the path.
func (op *Operation) PathParams() []Param {
	var params []Param
	for part := range strings.SplitSeq(op.Path, "{") {
		name, _, found := strings.Cut(part, "}")
		if p := op.Param("path", name); found && p != nil {
			params = append(params, *p)
		}
	}
	return params
}

// Param returns the parameter with a name in "path", "query" or "header", nil if
// there is none.
func (op *Operation) Param(in, name string) *Param {
	for i := range op.Params {
		if p := &op.Params[i]; p.In == in && strings.EqualFold(p.Name, name) {
			return p
		}
	}
	return nil
}

// Success returns the first response with a status 2xx, or the zero Response if
// the operation declares none.
func (op *Operation) Success() Response {
	for _, answer := range op.Responses {
		if strings.HasPrefix(answer.Status, "2") {
			return answer
		}
	}
	return Response{}
}

// In returns the entry of a media type, and whether there is one.
func In(media []Media, mediaType string) (Media, bool) {
	for _, m := range media {
		if m.Type == mediaType {
			return m, true
		}
	}
	return Media{}, false
}
