package format

import (
	"slices"
	"strings"

	"modelgateway/dataplane/internal/jsonspan"
)

// toolFilter removes the tools that a model does not offer from a request.
type toolFilter struct {
	target *Target
	tools  *Tools
	// names are those of the removed tools: other places may refer to them.
	names []string
	// kinds are the types of the tools that are left, gone those of the removed ones.
	kinds, gone []string
	// isSecond reports whether both are complete: what needs a removed tool is removed in a second pass.
	isSecond bool
}

// leaveOutTools removes the tools that the target's model does not offer, and what refers to them or needs them. It
// returns the filter.
func (r *Request) leaveOutTools(e *Edit, t *Target) *toolFilter {
	f := &toolFilter{target: t, tools: r.spec.Tools}
	for _, f.isSecond = range []bool{false, true} {
		members := r.obj.Members()
		for i := range members {
			node := f.tools.places.members[string(members[i].Name)]
			if node == nil || members[i].Kind == jsonspan.KindNull {
				continue
			}
			raw := members[i].Value.Of(r.obj.Body())
			switch value, keep := f.value(node, raw); {
			case !f.isSecond:
			case !keep:
				e.DropAt(i)
			case !isSame(value, raw):
				e.ReplaceAt(i, value)
			}
		}
	}

	if choice := r.Value("tool_choice"); choice != nil {
		switch value, keep := f.choice(choice); {
		case !keep || len(f.kinds) == 0: // providers refuse a choice without tools
			e.Drop("tool_choice")
		case !isSame(value, choice):
			e.Set("tool_choice", value)
		}
	}

	return f
}

// editInclude leaves out the additions to the answer that need a removed tool, and adds the one that the format needs where
// nothing is stored: a client that has not asked for that sends items back as if they were stored. f is nil if no tool is
// removed.
func (r *Request) editInclude(e *Edit, t *Target, f *toolFilter) {
	include, keep := r.Value("include"), true
	value := include
	if f != nil && include != nil {
		value, keep = f.list(include, func(item []byte) ([]byte, bool) { return item, f.includes(item) })
	}

	switch added := r.lacksInclude(include, t) && e.Adds(AddedInclude, t); {
	case added && (value == nil || !keep || isEmptyList(value)):
		e.Set("include", e.Concat([]byte(`["`), []byte(r.spec.Includes), []byte(`"]`)))
	case added:
		e.Set("include", e.Concat(value[:len(value)-1], []byte(`,"`), []byte(r.spec.Includes), []byte(`"]`)))
	case value == nil:
	case !keep:
		e.Drop("include")
	case !isSame(value, include):
		e.Set("include", value)
	}
}

// lacksInclude reports whether the addition of the format is missing.
func (r *Request) lacksInclude(include []byte, t *Target) bool {
	if r.spec.Includes == "" || t.Policy.Row("include").Action != Forward || t.Policy.Row("store").Action != Force {
		return false
	}
	if stored, ok := jsonspan.Bool(r.Value("store")); ok && !stored {
		return false // the client knows that nothing is stored
	}
	for item := range jsonspan.Elements(include) {
		if text, _ := jsonspan.Text(nil, item); string(text) == r.spec.Includes {
			return false
		}
	}
	return true
}

func isEmptyList(raw []byte) bool {
	it := jsonspan.ArrayAt(raw, 0)
	return !it.Next()
}

// isSame reports whether a value is the part of the body that it was read from.
func isSame(value, raw []byte) bool { return len(value) == len(raw) && &value[0] == &raw[0] }

// value returns the value without the tools that are not offered: raw itself if nothing changes. keep is false if
// nothing is left of it.
func (f *toolFilter) value(n *toolNode, raw []byte) (value []byte, keep bool) {
	switch {
	case n.elements != nil:
		return f.list(raw, func(element []byte) ([]byte, bool) { return f.value(n.elements, element) })
	case n.members != nil:
		return f.object(n, raw)
	}
	return f.tool(raw)
}

// list returns the array without the elements that are not kept.
func (*toolFilter) list(raw []byte, elementFunc func(element []byte) ([]byte, bool)) (value []byte, keep bool) {
	out, changed, count := []byte{'['}, false, 0
	for element := range jsonspan.Elements(raw) {
		value, keep := elementFunc(element)
		if !keep {
			changed = true
			continue
		}
		changed = changed || !isSame(value, element)
		if count++; count > 1 {
			out = append(out, ',')
		}
		out = append(out, value...)
	}

	if !changed {
		return raw, true
	}

	return append(out, ']'), count > 0
}

// object returns the object with the lists in it filtered. An object whose list becomes empty is not kept, unless it is
// the answer to a call or has content beside the list, as a summary has.
func (f *toolFilter) object(n *toolNode, raw []byte) (value []byte, keep bool) {
	w := jsonspan.NewSplicer(nil, raw)
	c := jsonspan.ObjectAt(raw, 0)
	for c.Next() {
		child := n.members[string(c.DecodedName())]
		if child == nil || c.Kind() == jsonspan.KindNull {
			continue
		}

		value, keep := f.value(child, c.Value())
		if !keep {
			_, answers := jsonspan.Find(raw, "call_id")
			_, speaks := jsonspan.Find(raw, "content")
			if string(c.DecodedName()) == "content" || child.elements == nil || !answers && !speaks {
				return nil, false
			}
			value = []byte("[]")
		}

		if !isSame(value, c.Value()) {
			c.Set(&w, value)
		}
	}

	if !w.Changed() {
		return raw, true
	}

	return w.Finish(), true
}

// tool returns a definition without the tools inside of it that are not offered.
func (f *toolFilter) tool(tool []byte) (value []byte, keep bool) {
	kind, name := jsonspan.FindText(tool, "type"), jsonspan.FindText(tool, "name")
	if !f.offers(kind, tool) {
		f.names, f.gone = append(f.names, name), append(f.gone, kind)
		return nil, false
	}

	if f.isSecond {
		tool = f.withoutNeeds(tool)
	}
	if kind == "tool_reference" && slices.Contains(f.names, name) {
		return nil, false
	}

	definition, isDefined := jsonspan.Find(tool, "definition")
	if isDefined = isDefined && jsonspan.KindOf(definition) == jsonspan.KindObject; isDefined {
		value, keep := f.tool(definition)
		if !keep {
			return nil, false
		}
		if !isSame(value, definition) {
			tool = replaceMember(tool, "definition", value)
		}
	}

	group, ok := jsonspan.Find(tool, "tools")
	if !ok || jsonspan.KindOf(group) != jsonspan.KindArray {
		if !isDefined {
			f.kinds = append(f.kinds, kind)
		}
		return tool, true
	}

	value, keep = f.list(group, f.tool)
	if !keep || isSame(value, group) {
		return tool, keep
	}

	return replaceMember(tool, "tools", value), true
}

func (f *toolFilter) offers(kind string, tool []byte) bool {
	return f.target.Policy.offersTool(kind, f.target.Rules, f.tools.classFunc(kind, tool))
}

// choice returns the choice of tools without those that are not offered. keep is false if it has no tool left.
func (f *toolFilter) choice(raw []byte) (value []byte, keep bool) {
	allowed, ok := jsonspan.Find(raw, "tools")
	if !ok || jsonspan.KindOf(allowed) != jsonspan.KindArray {
		return raw, true
	}
	value, keep = f.list(allowed, func(tool []byte) ([]byte, bool) {
		kind := jsonspan.FindText(tool, "type")
		return tool, slices.Contains(f.kinds, kind) || f.offers(kind, tool)
	})
	if !keep || isSame(value, allowed) {
		return raw, keep
	}
	return replaceMember(raw, "tools", value), true
}

// includes reports whether an addition to the answer is kept: results of provider-run tools are only kept with the tool.
func (f *toolFilter) includes(item []byte) bool {
	text, _ := jsonspan.Text(nil, item)
	kind, isResult := ToolOfResult(string(text))
	return !isResult || f.offers(kind, nil)
}

// withoutNeeds returns a definition without what needs a removed tool: with no search for tools, a deferred one would
// never be loaded, and with no other caller it may be called directly.
func (f *toolFilter) withoutNeeds(tool []byte) []byte {
	isSearch := func(kind string) bool { return strings.HasPrefix(kind, "tool_search") }
	loses := slices.ContainsFunc(f.gone, isSearch) && !slices.ContainsFunc(f.kinds, isSearch)
	w := jsonspan.NewSplicer(nil, tool)
	c := jsonspan.ObjectAt(tool, 0)
	for c.Next() {
		switch string(c.DecodedName()) {
		case "defer_loading":
			if loses {
				c.Drop(&w)
			}
		case "allowed_callers":
			callers, keep := f.list(c.Value(), func(caller []byte) ([]byte, bool) { return caller, !f.isGoneCaller(caller) })
			if !keep {
				c.Drop(&w)
			} else if !isSame(callers, c.Value()) {
				c.Set(&w, callers)
			}
		}
	}

	if !w.Changed() {
		return tool
	}

	return w.Finish()
}

// isGoneCaller reports whether the caller of a tool is itself a tool that is removed.
func (f *toolFilter) isGoneCaller(caller []byte) bool {
	text, _ := jsonspan.Text(nil, caller)
	name := string(text)
	if name == "programmatic" {
		name = "programmatic_tool_calling"
	}
	return slices.Contains(f.gone, name) && !slices.Contains(f.kinds, name)
}

// replaceMember returns the object with the value of one member replaced.
func replaceMember(raw []byte, name string, value []byte) []byte {
	w := jsonspan.NewSplicer(nil, raw)
	c := jsonspan.ObjectAt(raw, 0)
	for c.Next() {
		if string(c.DecodedName()) == name {
			c.Set(&w, value)
		}
	}
	return w.Finish()
}
