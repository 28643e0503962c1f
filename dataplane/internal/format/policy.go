package format

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
)

// Action is the treatment of a parameter.
type Action uint8

// The actions. Reject, the zero Action, applies to parameters that the table does not have.
const (
	// Reject refuses the request unless Allow has the value. An allowed value asks for the default behaviour, so it is
	// not sent.
	Reject Action = iota
	// Forward sends the value as it is.
	Forward
	// Force sends Value, whatever the client sent. If Allow is set, other values of the client are refused.
	Force
	// Drop leaves the parameter out.
	Drop
	// Clamp sends an integer after moving it into the range from Min to Max.
	Clamp
	// Replace sends Value instead of the client's value or, without a Value, a keyed hash of the client's value.
	Replace
)

// Types is a set of JSON types. The zero set means any type.
type Types uint8

// The members of Types.
const (
	Boolean Types = 1 << iota
	Integer
	Number
	String
	Array
	Object
)

// Param is the rule for one parameter, a row of the table.
type Param struct { //nolint:recvcheck // with returns a changed copy
	// Name is that of a top-level member, or parent.child for a member of one.
	Name   string
	Action Action
	// Types are the allowed types. They are listed only where the gateway depends on the type; elsewhere the provider
	// refuses wrong types.
	Types Types
	// Required refuses a body without the parameter.
	Required bool
	// Closed refuses members of the value that no row names.
	Closed bool
	// Value is JSON text, see Force and Replace.
	Value string
	// Allow and Deny list values as JSON text. Allow: see Reject and Force; under Forward, other values are refused
	// as unsupported_value. For tools, Allow lists the types of provider-run tools that are offered, where a trailing
	// * stands for any suffix. Deny lists values that are refused although others are accepted. An override empties
	// both unless it has an Allow of its own.
	Allow, Deny []string
	// Priced has values, as JSON text, that are accepted only if the model has a rate of its own for a line of tokens,
	// whatever the policy allows: they cost more than the line that would apply without it.
	Priced map[string]price.Line
	// Tiers has values that ask for service tiers: their names, "auto" for the choice of the provider, or * for any name. They
	// are accepted, and sent whatever Action says, if the model has prices for the tier. An override empties it, unless it forwards
	// them.
	Tiers []string
	// Otherwise says what happens to provider-run tools that Allow does not list, or that have no price, if the request
	// offers them to the model without demanding a call: Drop leaves them out, anything else refuses the request.
	Otherwise Action
	// Hint is a sentence that a refusal ends with, empty for none: what the client can do instead.
	Hint string
	// Details is a JSON object that a refusal carries in the envelope of the messages format, empty for none.
	Details string
	// Min and Max are the bounds of Clamp, zero for none.
	Min, Max int64

	raw   []byte // Value
	added Added  // the member of this name
	// tiers are those of the format, which an override that forwards them restores.
	tiers []string
}

// Policy is a compiled parameter table. It is immutable and safe for concurrent use.
type Policy struct {
	params map[string]*Param
	// nested has the rows for the members of a parameter, by its name.
	nested map[string]map[string]*Param
	forced []*Param
	// tiered has the rows with Tiers.
	tiered   []*Param
	required []*Param
}

// NewPolicy compiles a table.
func NewPolicy(params ...Param) *Policy {
	p := &Policy{params: make(map[string]*Param, len(params)), nested: map[string]map[string]*Param{}}
	for _, row := range params {
		row.raw, row.added = []byte(row.Value), AddedOf(row.Name)
		if row.tiers == nil {
			row.tiers = row.Tiers
		}
		if len(row.raw) == 0 {
			row.raw = nil
		}
		parent, child, isNested := strings.Cut(row.Name, ".")
		if !isNested {
			p.params[row.Name] = &row
			continue
		}
		if p.nested[parent] == nil {
			p.nested[parent] = map[string]*Param{}
		}
		p.nested[parent][child] = &row
	}

	for _, name := range slices.Sorted(maps.Keys(p.params)) {
		row := p.params[name]
		if row.Action == Force {
			p.forced = append(p.forced, row)
		}
		if len(row.Tiers) > 0 {
			p.tiered = append(p.tiered, row)
		}
		if row.Required {
			p.required = append(p.required, row)
		}
	}

	return p
}

// With returns the policy with the rows of overrides changed; later overrides win. An override with an unknown action
// refuses its parameter: parameters with an unknown treatment must not reach a provider. Compiling costs more than a
// request, so callers keep the result.
func (p *Policy) With(overrides ...catalogkv.Params) *Policy {
	rows := map[string]Param{}
	for _, override := range overrides {
		for name, change := range override {
			row, ok := rows[name]
			if !ok {
				row = p.Row(name)
			}
			rows[name] = row.with(change)
		}
	}

	if len(rows) == 0 {
		return p
	}

	all := make([]Param, 0, len(p.params)+len(rows))
	for row := range p.all() {
		if _, changed := rows[row.Name]; !changed {
			all = append(all, *row)
		}
	}

	return NewPolicy(slices.AppendSeq(all, maps.Values(rows))...)
}

// Row returns the rule for a name, Reject if the table has none.
func (p *Policy) Row(name string) Param {
	row := p.params[name]
	if parent, child, ok := strings.Cut(name, "."); ok {
		row = p.nested[parent][child]
	}
	if row == nil {
		return Param{Name: name}
	}
	return *row
}

// Names returns the names of all rows, sorted.
func (p *Policy) Names() []string {
	var names []string
	for row := range p.all() {
		names = append(names, row.Name)
	}
	slices.Sort(names)
	return names
}

func (p *Policy) all() func(yield func(*Param) bool) {
	return func(yield func(*Param) bool) {
		for _, row := range p.params {
			if !yield(row) {
				return
			}
		}
		for _, rows := range p.nested {
			for _, row := range rows {
				if !yield(row) {
					return
				}
			}
		}
	}
}

var actions = map[string]Action{
	"reject": Reject, "forward": Forward, "force": Force, "drop": Drop, "clamp": Clamp, "replace": Replace,
}

// with returns the row changed by an override.
func (row Param) with(change catalogkv.Param) Param {
	row.Action = actions[change.Policy]
	row.Value, row.Allow, row.Deny, row.Tiers = string(change.Value), nil, nil, nil
	for _, value := range change.Allow {
		row.Allow = append(row.Allow, string(value))
		if text, ok := jsonspan.Text(nil, value); ok && len(row.tiers) > 0 {
			row.Tiers = append(row.Tiers, string(text))
		}
	}
	switch {
	case row.Action != Forward: // a request does not get the tier that it asks for
		row.Tiers = nil
	case len(row.Allow) == 0:
		row.Tiers = row.tiers
	}
	if change.Otherwise != "" {
		row.Otherwise = actions[change.Otherwise]
	}
	if row.Action == Clamp {
		row.Min, row.Max = clampBounds(change.Value, row.Min, row.Max)
	}
	return row
}

// clampBounds parses the value of a clamp: the upper bound alone, or {"min":…,"max":…}.
func clampBounds(value json.RawMessage, low, high int64) (int64, int64) {
	if n, ok := jsonspan.Int64(value); ok {
		return low, n
	}
	if raw, ok := jsonspan.Find(value, "min"); ok {
		low, _ = jsonspan.Int64(raw)
	}
	if raw, ok := jsonspan.Find(value, "max"); ok {
		high, _ = jsonspan.Int64(raw)
	}
	return low, high
}

// allowsTool reports whether a provider-run tool of a type is offered.
func (row *Param) allowsTool(kind []byte) bool {
	for _, allowed := range row.Allow {
		name, ok := jsonspan.Text(nil, []byte(allowed))
		if !ok {
			continue
		}
		if prefix, open := bytes.CutSuffix(name, []byte("*")); bytes.Equal(kind, name) || open && bytes.HasPrefix(kind, prefix) {
			return true
		}
	}
	return false
}

// lineOf returns the line that prices a value.
func (row *Param) lineOf(raw []byte) (line price.Line, ok bool) {
	for value, line := range row.Priced {
		if sameValue([]byte(value), raw) {
			return line, true
		}
	}
	return "", false
}

// contains reports whether raw is one of the values.
func contains(values []string, raw []byte) bool {
	for _, value := range values {
		if sameValue([]byte(value), raw) {
			return true
		}
	}
	return false
}

// sameValue compares two scalars by their meaning, other values as written but for white space.
func sameValue(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}

	kind := jsonspan.KindOf(a)
	if kind != jsonspan.KindOf(b) {
		return false
	}

	if kind == jsonspan.KindObject || kind == jsonspan.KindArray {
		var x, y bytes.Buffer
		return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
	}

	if x, ok := jsonspan.Int64(a); ok {
		y, ok := jsonspan.Int64(b)
		return ok && x == y
	}

	x, ok := jsonspan.Text(nil, a)
	if !ok {
		return false
	}

	y, ok := jsonspan.Text(nil, b)
	return ok && bytes.Equal(x, y)
}

// match reports whether the value has one of the types.
func (t Types) match(raw []byte) bool {
	if t == 0 {
		return true
	}

	switch jsonspan.KindOf(raw) {
	case jsonspan.KindTrue, jsonspan.KindFalse:
		return t&Boolean != 0
	case jsonspan.KindString:
		return t&String != 0
	case jsonspan.KindArray:
		return t&Array != 0
	case jsonspan.KindObject:
		return t&Object != 0
	case jsonspan.KindNumber:
		return t&Number != 0 || t&Integer != 0 && isIntegral(raw)
	case jsonspan.KindInvalid, jsonspan.KindNull:
	}

	return false
}

var typeNames = []struct {
	t    Types
	name string
}{
	{Boolean, "a boolean"},
	{Integer, "an integer"},
	{Number, "a number"},
	{String, "a string"},
	{Array, "an array"},
	{Object, "an object"},
}

// String names the types for a message, as in "a string or an array".
func (t Types) String() string {
	var names []string
	for _, n := range typeNames {
		if t&n.t != 0 {
			names = append(names, n.name)
		}
	}
	return strings.Join(names, " or ")
}
