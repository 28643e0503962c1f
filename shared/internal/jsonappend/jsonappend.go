// Package jsonappend appends members of JSON objects without reflection, for
// messages that are encoded for every request. The result has the same bytes as
// that of encoding/json.
package jsonappend

import (
	"encoding/json"
	"strconv"
)

// String appends a string member. Like all functions of the package, it first
// appends a comma unless the member is the first of its object.
func String(b []byte, name, value string) []byte { return text(member(b, name), value) }

// NonEmpty appends a string member unless value is empty.
func NonEmpty(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return String(b, name, value)
}

// Int appends a number member.
func Int(b []byte, name string, value int64) []byte {
	return strconv.AppendInt(member(b, name), value, 10)
}

// NonZero appends a number member unless value is zero.
func NonZero(b []byte, name string, value int64) []byte {
	if value == 0 {
		return b
	}
	return Int(b, name, value)
}

// True appends a boolean member if value is true.
func True(b []byte, name string, value bool) []byte {
	if !value {
		return b
	}
	return append(member(b, name), "true"...)
}

// Object appends the start of an object member. The caller appends the members
// and the closing brace.
func Object(b []byte, name string) []byte { return append(member(b, name), '{') }

// member appends a name. The name must not need escapes.
func member(b []byte, name string) []byte {
	if len(b) > 0 && b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, name...)
	return append(b, '"', ':')
}

// plain has the bytes that stand for themselves in a string.
var plain = func() (table [256]bool) {
	for c := ' '; c <= '~'; c++ {
		table[c] = c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	return table
}()

func text(b []byte, value string) []byte {
	for i := range len(value) {
		if !plain[value[i]] {
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
