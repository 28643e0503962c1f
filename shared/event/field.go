package event

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
)

// fields are the JSON members of a struct type, for the scanner. They are
// derived from the type, so that a new member cannot be forgotten here.
type fields struct {
	list []field
	// byName holds indices of list.
	byName map[string]int
}

type field struct {
	// index is the index of the field in the struct.
	index int
	// quoted is the encoded name with the colon.
	quoted    string
	kind      reflect.Kind
	omitEmpty bool
	// within holds the members if the field is a struct or a slice of structs.
	within *fields
}

var usageFields = fieldsOf(reflect.TypeFor[Usage]())

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func fieldsOf(t reflect.Type) *fields {
	all := &fields{byName: map[string]int{}}
	for i := range t.NumField() {
		member := t.Field(i)
		name, options, _ := strings.Cut(member.Tag.Get("json"), ",")
		f := field{
			index:     i,
			quoted:    strconv.Quote(name) + ":",
			kind:      member.Type.Kind(),
			omitEmpty: options == "omitempty",
		}

		switch {
		case reflect.PointerTo(member.Type).Implements(unmarshaler):
			f.kind = reflect.Invalid // only its UnmarshalJSON can decode it
		case f.kind == reflect.Struct:
			f.within = fieldsOf(member.Type)
		case f.kind == reflect.Slice && member.Type.Elem().Kind() == reflect.Struct:
			f.within = fieldsOf(member.Type.Elem())
		}

		all.byName[name] = len(all.list)
		all.list = append(all.list, f)
	}

	return all
}

func valueOf[T any](of *T) reflect.Value { return reflect.ValueOf(of).Elem() }

// object decodes an object into a struct with these fields. It is fastest if the
// members are in the order of the fields.
func (s *scanner) object(all *fields, into reflect.Value) bool {
	if !s.skip("{") {
		return false
	}
	if s.skip("}") {
		return true
	}

	for next := 0; ; {
		f := s.name(all, next)
		if f == nil || !s.value(f, into.Field(f.index)) {
			return false
		}
		next = f.index + 1
		if s.skip("}") {
			return true
		}
		if !s.skip(",") {
			return false
		}
	}
}

// name decodes the name of a member. It tries the field at index next first, and
// then those after it, because empty members are left out.
func (s *scanner) name(all *fields, next int) *field {
	for i := next; i < len(all.list); i++ {
		if f := &all.list[i]; s.skip(f.quoted) {
			return f
		} else if !f.omitEmpty {
			break
		}
	}
	name, ok := s.str()
	i, known := all.byName[name]
	if !ok || !known || !s.skip(":") {
		return nil
	}
	return &all.list[i]
}

func (s *scanner) value(f *field, into reflect.Value) bool {
	switch f.kind {
	case reflect.Int, reflect.Int16, reflect.Int64:
		n, ok := s.integer()
		into.SetInt(n)
		return ok && !into.OverflowInt(n)
	case reflect.String:
		text, ok := s.str()
		into.SetString(text)
		return ok
	case reflect.Bool:
		is, ok := s.boolean()
		into.SetBool(is)
		return ok
	case reflect.Struct:
		return s.object(f.within, into)
	case reflect.Slice:
		if f.within == nil {
			return into.Type().Elem().Kind() == reflect.Int64 && s.integers(into)
		}
		return s.objects(f.within, into)
	default:
		return false
	}
}

// integers decodes an array that is not empty into an empty slice of integers.
func (s *scanner) integers(into reflect.Value) bool {
	if into.Len() > 0 || !s.skip("[") {
		return false
	}
	for {
		n, ok := s.integer()
		if !ok {
			return false
		}
		into.Set(reflect.Append(into, reflect.ValueOf(n)))
		if s.skip("]") {
			return true
		}
		if !s.skip(",") {
			return false
		}
	}
}

// objects decodes an array that is not empty into an empty slice of structs with these fields.
func (s *scanner) objects(all *fields, into reflect.Value) bool {
	if into.Len() > 0 || !s.skip("[") {
		return false
	}
	for {
		into.Grow(1)
		into.SetLen(into.Len() + 1)
		if !s.object(all, into.Index(into.Len()-1)) {
			return false
		}
		if s.skip("]") {
			return true
		}
		if !s.skip(",") {
			return false
		}
	}
}
