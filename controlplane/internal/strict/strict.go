// Package strict decodes JSON and YAML that people write. Unknown members, duplicate members,
// values of the wrong type and text that cannot be stored as written are errors. All of them are
// reported at once, each with its path.
//
// Numbers are never converted to floats: a type with UnmarshalText gets the digits as they were
// written.
package strict

import (
	"modelgateway/controlplane/internal/validation"
)

// maxDepth bounds the nesting of a document.
const maxDepth = 64

// JSON decodes one JSON value into the value that into points to. The error is validation.Errors.
func JSON(data []byte, into any) error {
	tree, invalid := parseJSON(data)
	return decode(tree, invalid, decoder{}, into)
}

// Patch decodes like JSON, but rejects null for a pointer, because null and an absent member would
// mean the same. A type with UnmarshalJSON can accept null.
func Patch(data []byte, into any) error {
	tree, invalid := parseJSON(data)
	return decode(tree, invalid, decoder{noNull: true}, into)
}

// YAML decodes YAML like JSON. It rejects anchors and aliases. An unquoted date, number or boolean
// is accepted as a string.
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

// kind is the type of a value in a document.
type kind int

const (
	null kind = iota
	boolean
	number
	text
	list
	object
)

// String returns the name for field errors.
func (k kind) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "a list", "an object"}[k]
}

// node is a parsed value.
type node struct {
	kind kind
	// loose marks an unquoted YAML scalar, which can be decoded into a string even if it is a date, a number or a boolean.
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
