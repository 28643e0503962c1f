package video

import (
	"bytes"
	"encoding/json"
	"strings"
)

// storable is a provider's object as Postgres takes it: without the character
// U+0000 and without halves of surrogate pairs, which escapes can spell. What is
// no JSON stays as it is.
func storable(object json.RawMessage) json.RawMessage {
	if !bytes.Contains(object, []byte(`\u`)) {
		return object
	}
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return object
	}
	text, err := json.Marshal(withoutZero(value))
	if err != nil {
		return object
	}
	return text
}

// withoutZero removes the character from all texts and names. The decoder has
// put U+FFFD in the place of half pairs.
func withoutZero(value any) any {
	switch v := value.(type) {
	case string:
		return strings.ReplaceAll(v, "\x00", "")
	case []any:
		for i := range v {
			v[i] = withoutZero(v[i])
		}
	case map[string]any:
		clean := make(map[string]any, len(v))
		for name, member := range v {
			clean[strings.ReplaceAll(name, "\x00", "")] = withoutZero(member)
		}
		return clean
	}
	return value
}
