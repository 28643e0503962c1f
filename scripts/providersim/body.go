package providersim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// members are the top-level members of a request body. The values are the received bytes,
// because the number of tokens depends on their length.
type members map[string]json.RawMessage

// splitObject returns the members of a JSON object. A duplicate name is an error.
func splitObject(body []byte) (members, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("body is not valid UTF-8")
	}

	dec := json.NewDecoder(bytes.NewReader(body))
	open, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("parse body: %w", err)
	}
	if open != json.Delim('{') {
		return nil, errors.New("body is not a JSON object")
	}

	m := make(members)
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("parse member name: %w", err)
		}
		name, _ := tok.(string)
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, fmt.Errorf("parse member %q: %w", name, err)
		}
		if _, duplicate := m[name]; duplicate {
			return nil, fmt.Errorf("member %q appears twice", name)
		}
		m[name] = raw
	}

	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("parse end of body: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("bytes follow the JSON object")
	}

	return m, nil
}

// has reports whether name is present with a value other than null.
func (m members) has(name string) bool {
	raw, ok := m[name]
	return ok && string(raw) != "null"
}

// raw returns the value of name, or fallback when it is absent or null.
func (m members) raw(name, fallback string) json.RawMessage {
	if m.has(name) {
		return m[name]
	}
	return json.RawMessage(fallback)
}

// text returns a string member, or fallback when it is absent or of another type.
func (m members) text(name, fallback string) string {
	var s string
	if !m.has(name) || json.Unmarshal(m[name], &s) != nil {
		return fallback
	}
	return s
}

// number returns an integer member, or fallback when it is absent or of another type.
func (m members) number(name string, fallback int64) int64 {
	var n int64
	if !m.has(name) || json.Unmarshal(m[name], &n) != nil {
		return fallback
	}
	return n
}

// isTrue reports whether a boolean member is present and true.
func (m members) isTrue(name string) bool { return string(m[name]) == "true" }
