package format

import (
	"encoding/json"
	"net/http"
	"strings"

	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/apierr"
	"modelgateway/shared/price"
)

// Rules say for which optional services the model has a price. A check depends on them and on the policy.
type Rules struct {
	// Sheet is the model's price sheet; nil has no price.
	Sheet *price.Sheet
}

// HasToolPrice reports whether there is a price for calls of provider-run tools. Without it no such tool is accepted,
// whatever the policy allows.
func (r Rules) HasToolPrice() bool { return r.Sheet != nil && r.Sheet.HasServerToolPrice() }

// HasSecondaryPrice reports whether a kind of secondary model, such as price.SVG, has a price.
func (r Rules) HasSecondaryPrice(kind string) bool {
	return r.Sheet != nil && r.Sheet.HasSecondaryPrice(kind)
}

// HasRate reports whether a line of tokens has a rate of its own.
func (r Rules) HasRate(line price.Line) bool { return r.Sheet != nil && r.Sheet.HasRate(line) }

// Check applies the policy to the request and returns the first refusal, or nil. It checks the parameters in the
// order of the body, then required ones, then nested values. It may move Images into the bounds of the policy.
func (r *Request) Check(p *Policy, rules Rules) *apierr.Error {
	body := r.obj.Body()
	members := r.obj.Members()
	for i := range members {
		m := &members[i]
		if m.Kind == jsonspan.KindNull {
			continue
		}
		row := p.params[string(m.Name)]
		if row == nil {
			return r.unknown(p, string(m.Name))
		}
		if e := row.check(m.Value.Of(body), rules); e != nil {
			return e
		}
		if e := p.checkMembers(row, m.Value.Of(body), rules); e != nil {
			return e
		}
	}

	for _, row := range p.required {
		if r.Value(row.Name) == nil && (r.File == nil || r.File.Field != row.Name) {
			return Missing(row.Name)
		}
	}

	if r.refusal != nil {
		return r.refusal
	}
	if e := r.checkTools(p, rules); e != nil {
		return e
	}
	if r.spec.CheckFunc != nil {
		return r.spec.CheckFunc(r, p, rules)
	}

	return nil
}

// unknown refuses a parameter without a row. A body of the responses format that was sent to another endpoint has many
// of them; the refusal then names the parameter that shows the mistake.
func (r *Request) unknown(p *Policy, name string) *apierr.Error {
	if p.params["input"] == nil && r.Value("input") != nil && r.Value("messages") == nil {
		name = "input"
	}
	return Unsupported(name)
}

// check applies the row to a value that is not null.
func (row *Param) check(raw []byte, rules Rules) *apierr.Error {
	if line, ok := row.lineOf(raw); ok {
		if !rules.HasRate(line) {
			return UnsupportedValue(row.Name, raw)
		}
		return nil
	}

	if len(row.tiersFor(raw, rules.Sheet)) > 0 {
		return nil
	}

	switch {
	case row.Action == Reject:
		if !contains(row.Allow, raw) {
			e := UnsupportedValue(row.Name, raw)
			if len(row.Allow) == 0 {
				e = Unsupported(row.Name)
			}
			if row.Hint != "" {
				e.Message += " " + row.Hint
			}
			if len(row.Details) > 0 {
				e.Details = json.RawMessage(row.Details)
			}
			return e
		}
		return nil
	case row.Action == Force && len(row.Allow) > 0 && !contains(row.Allow, raw),
		contains(row.Deny, raw):
		return UnsupportedValue(row.Name, raw)
	case row.Action == Forward && len(row.Allow) > 0 && row.Name != "tools" && !contains(row.Allow, raw):
		return &apierr.Error{
			Status:  http.StatusBadRequest,
			Code:    apierr.UnsupportedValue,
			Param:   row.Name,
			Message: "The model does not offer this value; it offers " + strings.Join(row.Allow, ", ") + ".",
		}
	case !row.Types.match(raw):
		return Invalid(row.Name, row.Types.String())
	}

	return nil
}

// CheckMembers applies the nested rows of a parameter to a value of it that stands in another place of the request.
func (p *Policy) CheckMembers(name string, raw []byte, rules Rules) *apierr.Error {
	row := p.Row(name)
	return p.checkMembers(&row, raw, rules)
}

// RefusedMember returns a member of a value that stands in another place of the request than the parameter with its
// rules, if the nested row parent.name refuses it; otherwise nil.
func (p *Policy) RefusedMember(parent, name string, raw []byte, rules Rules) []byte {
	row := p.nested[parent][name]
	value, ok := jsonspan.Find(raw, name)
	if row == nil || !ok || jsonspan.KindOf(value) == jsonspan.KindNull || row.check(value, rules) == nil {
		return nil
	}
	return value
}

// checkMembers applies the nested rows to the members of a value.
func (p *Policy) checkMembers(row *Param, raw []byte, rules Rules) *apierr.Error {
	rows := p.nested[row.Name]
	if rows == nil && !row.Closed || row.Action == Drop {
		return nil
	}

	c := jsonspan.ObjectAt(raw, 0)
	for c.Next() {
		if c.Kind() == jsonspan.KindNull {
			continue
		}
		child := rows[string(c.DecodedName())]
		if child == nil {
			if row.Closed {
				return Unsupported(row.Name + "." + string(c.DecodedName()))
			}
			continue
		}
		if e := child.check(c.Value(), rules); e != nil {
			return e
		}
	}

	return nil
}
