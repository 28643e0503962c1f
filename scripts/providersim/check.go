package providersim

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

//go:embed params.json
var paramsJSON []byte

// param is an entry of params.json: a top-level parameter of a format.
type param struct {
	Name      string   `json:"name"`
	Types     []string `json:"types"`      // string integer number boolean array object
	Required  bool     `json:"required"`   // must be present
	Null      bool     `json:"null"`       // null is accepted
	Min       *float64 `json:"min"`        // of a number
	Max       *float64 `json:"max"`        // of a number
	Enum      []string `json:"enum"`       // of a string
	Pattern   string   `json:"pattern"`    // of a string
	MinLength int      `json:"min_length"` // of a string, characters
	MaxLength int      `json:"max_length"` // of a string, characters; 0 is no bound
	MinItems  int      `json:"min_items"`  // of an array
	MaxItems  int      `json:"max_items"`  // of an array; 0 is no bound
	Beta      string   `json:"beta"`       // prefix in anthropic-beta that enables it
	GoneIn    string   `json:"gone_in"`    // anthropic-version that removed it

	pattern *regexp.Regexp
}

var paramTable = loadParams(paramsJSON)

func loadParams(data []byte) map[Format][]param {
	var table map[Format][]param
	if err := json.Unmarshal(data, &table); err != nil {
		panic(fmt.Sprintf("providersim: params.json: %v", err))
	}
	for _, params := range table {
		for i := range params {
			if params[i].Pattern != "" {
				params[i].pattern = regexp.MustCompile(params[i].Pattern)
			}
		}
	}
	return table
}

// check returns the error of the format's public endpoint for a request, nil if it is valid.
func check(f Format, m members, h http.Header) *fault {
	params := paramTable[f]
	if bad := checkNames(f, params, m, h); bad != nil {
		return bad
	}

	for i := range params {
		p := &params[i]
		raw, present := m[p.Name]
		switch {
		case !present && p.Required:
			return f.missing(p.Name)
		case present:
			if bad := p.check(f, raw, h); bad != nil {
				return bad
			}
		}
	}

	return checkNested(f, m, h)
}

func checkNames(f Format, params []param, m members, h http.Header) *fault {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		i := slices.IndexFunc(params, func(p param) bool { return p.Name == name })
		if i < 0 || !enabled(params[i].Beta, h) {
			return f.unknown(name)
		}
	}
	return nil
}

func enabled(beta string, h http.Header) bool {
	if beta == "" {
		return true
	}
	for _, line := range h.Values("Anthropic-Beta") {
		for item := range strings.SplitSeq(line, ",") {
			if strings.HasPrefix(strings.TrimSpace(item), beta) {
				return true
			}
		}
	}
	return false
}

func (f Format) unknown(name string) *fault {
	if f == Messages {
		return invalid("unknown_parameter", name, "%s: Extra inputs are not permitted", name)
	}
	return invalid("unknown_parameter", name, "Unknown parameter: '%s'.", name)
}

func (f Format) missing(name string) *fault {
	if f == Messages {
		return invalid("missing_required_parameter", name, "%s: Field required", name)
	}
	return invalid("missing_required_parameter", name, "Missing required parameter: '%s'.", name)
}

func (f Format) refused(code, name, reason string, args ...any) *fault {
	reason = fmt.Sprintf(reason, args...)
	if f == Messages {
		return invalid(code, name, "%s: %s", name, reason)
	}
	return invalid(code, name, "Invalid '%s': %s.", name, reason)
}

func (p *param) check(f Format, raw json.RawMessage, h http.Header) *fault {
	kind := kindOf(raw)
	if kind == "null" && p.Null {
		return nil
	}
	if p.GoneIn != "" && h.Get("Anthropic-Version") >= p.GoneIn {
		return f.refused("unsupported_parameter", p.Name, "not available since API version %s", p.GoneIn)
	}
	if !slices.Contains(p.Types, kind) && (kind != "integer" || !slices.Contains(p.Types, "number")) {
		return f.refused("invalid_type", p.Name, "expected %s, got %s", strings.Join(p.Types, " or "), kind)
	}

	switch kind {
	case "integer", "number":
		return p.checkNumber(f, raw)
	case "string":
		return p.checkString(f, raw)
	case "array":
		return p.checkArray(f, raw)
	}

	return nil
}

func (p *param) checkNumber(f Format, raw json.RawMessage) *fault {
	var v float64
	if json.Unmarshal(raw, &v) != nil {
		return f.refused("invalid_value", p.Name, "number out of range")
	}
	if p.Min != nil && v < *p.Min {
		return f.refused("integer_below_min_value", p.Name, "expected at least %v, got %s", *p.Min, raw)
	}
	if p.Max != nil && v > *p.Max {
		return f.refused("integer_above_max_value", p.Name, "expected at most %v, got %s", *p.Max, raw)
	}
	return nil
}

func (p *param) checkString(f Format, raw json.RawMessage) *fault {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return f.refused("invalid_type", p.Name, "string cannot be read")
	}

	n := utf8.RuneCountInString(s)
	switch {
	case len(p.Enum) > 0 && !slices.Contains(p.Enum, s):
		return f.refused("invalid_value", p.Name, "supported values are %s", strings.Join(p.Enum, ", "))
	case p.pattern != nil && !p.pattern.MatchString(s):
		return f.refused("invalid_value", p.Name, "does not match %s", p.Pattern)
	case n < p.MinLength:
		return f.refused("invalid_value", p.Name, "must not be empty")
	case p.MaxLength > 0 && n > p.MaxLength:
		return f.refused("string_above_max_length", p.Name, "expected at most %d characters, got %d", p.MaxLength, n)
	}

	return nil
}

func (p *param) checkArray(f Format, raw json.RawMessage) *fault {
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		return f.refused("invalid_type", p.Name, "array cannot be read")
	}
	switch {
	case len(items) < p.MinItems:
		return f.refused("empty_array", p.Name, "expected at least %d items, got %d", p.MinItems, len(items))
	case p.MaxItems > 0 && len(items) > p.MaxItems:
		return f.refused("array_above_max_length", p.Name, "expected at most %d items, got %d", p.MaxItems, len(items))
	}
	return nil
}

// kindOf returns the JSON type of a valid value. A number with a fraction or an exponent is
// not an integer, even if its value is one.
func kindOf(raw json.RawMessage) string {
	switch raw[0] {
	case '"':
		return "string"
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}

	if strings.ContainsAny(string(raw), ".eE") {
		return "number"
	}

	return "integer"
}
