package videojob

import (
	"bytes"
	"encoding/json"
	"strings"
)

// storable returns a provider's object in a form that Postgres accepts: without the character
// U+0000 and without unpaired surrogates, which JSON escapes can contain. Text that is not JSON is
// returned unchanged.
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

// withoutZero removes U+0000 from all texts and names. The decoder has already replaced unpaired
// surrogates by U+FFFD.
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
