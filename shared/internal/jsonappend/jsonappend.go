// Package jsonappend owns the encoding of members whose names and types are
// known when the code is written: what is made for every request is not worth
// reflection. It writes what encoding/json writes, byte for byte.
package jsonappend

import (
	"encoding/json"
	"strconv"
)

// String appends a member of a string, the first of its object without a
// comma.
func String(b []byte, name, value string) []byte { return text(member(b, name), value) }

// NonEmpty appends the member unless it is empty.
func NonEmpty(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return String(b, name, value)
}

// Int appends a member of a number.
func Int(b []byte, name string, value int64) []byte {
	return strconv.AppendInt(member(b, name), value, 10)
}

// NonZero appends the member unless it is zero.
func NonZero(b []byte, name string, value int64) []byte {
	if value == 0 {
		return b
	}
	return Int(b, name, value)
}

// True appends the member if it is true.
func True(b []byte, name string, value bool) []byte {
	if !value {
		return b
	}
	return append(member(b, name), "true"...)
}

// Object begins a member that is an object; the caller appends its members
// and the closing brace.
func Object(b []byte, name string) []byte { return append(member(b, name), '{') }

// member appends a name, which needs no escapes.
func member(b []byte, name string) []byte {
	if len(b) > 0 && b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, name...)
	return append(b, '"', ':')
}

func text(b []byte, value string) []byte {
	for i := range len(value) {
		if c := value[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			escaped, err := json.Marshal(value)
			if err != nil { // a string always marshals
				panic(err)
			}
			return append(b, escaped...)
		}
	}
	b = append(b, '"')
	b = append(b, value...)
	return append(b, '"')
}
