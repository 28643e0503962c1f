package providersim

import (
	"encoding/json"
	"sort"
)

// toolCall is the call in an answer to a request that forces one.
type toolCall struct {
	name      string
	arguments string // a JSON object
}

// function holds the common members of the formats' tool definitions.
type function struct {
	name   string
	schema json.RawMessage
}

// forcedTool returns the call that the request's tool choice requires, nil if it requires
// none. Only tools that the client runs with JSON arguments are called; a request with other
// tools only gets text.
func forcedTool(f Format, m members) *toolCall {
	name, forced := toolChoice(f, m)
	if !forced {
		return nil
	}
	for _, fn := range functions(f, m) {
		if name == "" || fn.name == name {
			return &toolCall{name: fn.name, arguments: sampleArguments(fn.schema)}
		}
	}
	return nil
}

// toolChoice returns the required function, empty for any, and whether a call is required.
func toolChoice(f Format, m members) (name string, forced bool) {
	if m.text("tool_choice", "") == "required" {
		return "", true
	}

	var choice struct {
		Type     string `json:"type"`
		Name     string `json:"name"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}

	if json.Unmarshal(m.raw("tool_choice", "{}"), &choice) != nil {
		return "", false
	}

	switch {
	case f == Chat && choice.Type == "function":
		return choice.Function.Name, true
	case f == Responses && choice.Type == "function":
		return choice.Name, true
	case f == Messages && choice.Type == "any":
		return "", true
	case f == Messages && choice.Type == "tool":
		return choice.Name, true
	}

	return "", false
}

func functions(f Format, m members) []function {
	var tools []struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Parameters  json.RawMessage `json:"parameters"`
		InputSchema json.RawMessage `json:"input_schema"`
		Function    struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
	}

	if json.Unmarshal(m.raw("tools", "[]"), &tools) != nil {
		return nil
	}

	var fns []function
	for _, t := range tools {
		switch {
		case f == Chat && t.Type == "function":
			fns = append(fns, function{t.Function.Name, t.Function.Parameters})
		case f == Responses && t.Type == "function":
			fns = append(fns, function{t.Name, t.Parameters})
		case f == Messages && (t.Type == "" || t.Type == "custom"):
			fns = append(fns, function{t.Name, t.InputSchema})
		}
	}

	return fns
}

// sampleArguments returns an object with the required properties of a schema, with fixed
// values of their types.
func sampleArguments(schema json.RawMessage) string {
	var s struct {
		Required   []string `json:"required"`
		Properties map[string]struct {
			Type any   `json:"type"`
			Enum []any `json:"enum"`
		} `json:"properties"`
	}

	if len(schema) == 0 || json.Unmarshal(schema, &s) != nil {
		return "{}"
	}

	args := make(map[string]any, len(s.Required))
	sort.Strings(s.Required)

	for _, name := range s.Required {
		p := s.Properties[name]
		if len(p.Enum) > 0 {
			args[name] = p.Enum[0]
			continue
		}

		switch p.Type {
		case "integer", "number":
			args[name] = 1
		case "boolean":
			args[name] = true
		case "array":
			args[name] = []any{}
		case "object":
			args[name] = map[string]any{}
		default:
			args[name] = vocabulary[0]
		}
	}

	return string(mustJSON(args))
}

// argumentPieces splits arguments into the pieces of a stream.
func argumentPieces(arguments string) []string {
	half := (len(arguments) + 1) / 2
	return []string{arguments[:half], arguments[half:]}
}
