// Package optional has the type of a member of a JSON object that can be absent, null or set, as in the merge patches of
// the admin API.
package optional

import "encoding/json"

// Value is absent (the zero value), null or a T. A struct field of this type has the tag omitzero.
type Value[T any] struct {
	set   bool
	value *T
}

// Of returns a member that is set.
func Of[T any](v T) Value[T] { return Value[T]{true, &v} }

// Null returns a member that is null.
func Null[T any]() Value[T] { return Value[T]{set: true} }

// IsZero reports whether the member is absent.
func (v Value[T]) IsZero() bool { return !v.set }

// Get returns the value, nil for null, and whether the member is present.
func (v Value[T]) Get() (*T, bool) { return v.value, v.set }

// MarshalJSON writes the value or null.
func (v Value[T]) MarshalJSON() ([]byte, error) { return json.Marshal(v.value) }

// UnmarshalJSON reads a value or null; both are present.
func (v *Value[T]) UnmarshalJSON(data []byte) error {
	v.set = true
	return json.Unmarshal(data, &v.value)
}
