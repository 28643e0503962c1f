// Package strict decodes JSON and YAML that people write: a member that the
// Go type does not have, a member given twice and a value of the wrong kind
// are faults, and all of them are reported, each with its path. So is text
// that could not be kept as it was written.
//
// Numbers never pass through a float: a type with UnmarshalText reads the
// digits as they were written.
package strict

import (
	"modelgateway/controlplane/internal/validation"
)

// maxDepth bounds how deep a document may be nested.
const maxDepth = 64

// JSON decodes one JSON value into what the pointer points to. Any error is a
// validation.Errors.
func JSON(data []byte, into any) error {
	tree, invalid := parseJSON(data)
	return decode(tree, invalid, decoder{}, into)
}

// Patch is JSON for a change: null is refused for what it would leave as it is.
// A type that reads its own JSON may still have a meaning for it.
func Patch(data []byte, into any) error {
	tree, invalid := parseJSON(data)
	return decode(tree, invalid, decoder{noNull: true}, into)
}

// YAML is JSON for YAML. Anchors and aliases are refused, and a date, a number
// or a boolean without quotes is taken as a string where a string is wanted.
func YAML(data []byte, into any) error {
	tree, invalid := parseYAML(data)
	return decode(tree, invalid, decoder{}, into)
}

func decode(tree *node, invalid validation.Errors, d decoder, into any) error {
	if len(invalid) > 0 {
		return invalid.Err()
	}
	if d.noZero(tree, ""); len(d.invalid) > 0 {
		return d.invalid.Err()
	}
	d.value(tree, into)
	return d.invalid.Err()
}

// kind is the kind of a node.
type kind int

const (
	null kind = iota
	boolean
	number
	text
	list
	object
)

// String names the kind as a fault's detail does.
func (k kind) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "a list", "an object"}[k]
}

// node is a parsed value.
type node struct {
	kind kind
	// loose marks a YAML scalar without quotes, which a string may take whatever it looks like.
	loose bool
	// text is the scalar as written.
	text    string
	items   []*node
	members []member
}

type member struct {
	name  string
	value *node
}
