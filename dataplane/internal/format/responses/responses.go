// Package responses is the responses format.
//
// It owns the format's parameter table, its usage, and its streams: named and numbered
// events, ended by the one that carries the whole response. The gateway keeps no state
// at a provider, so whatever refers to an earlier response is refused.
package responses

import (
	"strings"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
)

// Dialect is the responses format.
type Dialect struct{}

var spec = format.Spec{
	Format:    catalogkv.Responses,
	Policy:    policy,
	Content:   []string{"input", "instructions", "tools", "text"},
	Limits:    []string{"max_output_tokens"},
	UserParam: "user",
	CheckFunc: check,
	EditFunc:  edit,
}

// Format returns catalogkv.Responses.
func (Dialect) Format() catalogkv.Format { return spec.Format }

// Policy returns the default parameter table.
func (Dialect) Policy() *format.Policy { return spec.Policy }

// Read reads a request body.
func (Dialect) Read(obj *jsonspan.Object) (*format.Request, *apierr.Error) { return spec.Read(obj) }

// edit leaves out the options of a stream where there is none.
func edit(r *format.Request, e *format.Edit, _ *format.Target) {
	if !r.Stream {
		e.Drop("stream_options")
	}
}

// check looks at what lies below the top level.
func check(r *format.Request, p *format.Policy, rules format.Rules) *apierr.Error {
	sold := func(kind string) bool { return p.SellsTool(kind, rules, toolClass(kind)) }
	if e := r.CheckTools(p, rules, toolClass); e != nil {
		return e
	}
	if e := checkChoice(r.Value("tool_choice"), sold); e != nil {
		return e
	}
	if e := checkInclude(r.Value("include"), sold); e != nil {
		return e
	}
	return checkInput(r.Value("input"))
}

// toolClass knows the tools that a client runs, and the one that calls in a second
// model.
func toolClass(kind string) format.ToolClass {
	switch kind {
	case "", "function", "custom", "namespace", "local_shell", "apply_patch":
		return format.ClientTool
	case "image_generation":
		return format.ImageTool
	}
	return format.ProviderTool
}

// checkChoice refuses a choice of a tool that is not sold.
func checkChoice(raw []byte, sold func(string) bool) *apierr.Error {
	if jsonspan.KindOf(raw) != jsonspan.KindObject {
		return nil
	}
	kind := text(raw, "type")
	if kind != "allowed_tools" {
		if !sold(kind) {
			return format.Unsupported("tool_choice.type")
		}
		return nil
	}
	tools, _ := jsonspan.Find(raw, "tools")
	i := 0
	for tool := range jsonspan.Elements(tools) {
		if !sold(text(tool, "type")) {
			return format.Unsupported(format.ElementPath("tool_choice.tools", i) + ".type")
		}
		i++
	}
	return nil
}

// checkInclude lets through the additions that have no price, and those of the tools
// that are sold.
func checkInclude(raw []byte, sold func(string) bool) *apierr.Error {
	i := 0
	for item := range jsonspan.Elements(raw) {
		name, _ := jsonspan.Text(nil, item)
		switch string(name) {
		case "reasoning.encrypted_content", "message.output_text.logprobs":
		default:
			tool, _, ok := strings.Cut(string(name), "_call")
			if !ok || !sold(tool) {
				return format.Unsupported(format.ElementPath("include", i))
			}
		}
		i++
	}
	return nil
}

// checkInput refuses what refers to something that the provider has stored. It passes
// over the text once, whatever its size.
func checkInput(raw []byte) *apierr.Error {
	it := jsonspan.ArrayAt(raw, 0)
	for it.Next() {
		if it.Kind() != jsonspan.KindObject {
			continue
		}
		typed := false
		c := jsonspan.ObjectAt(raw, it.Start())
		for c.Next() {
			switch string(c.DecodedName()) {
			case "type":
				kind, _ := jsonspan.Text(nil, c.Value())
				if string(kind) == "item_reference" {
					return reference(it.Index())
				}
				typed = typed || len(kind) > 0
			case "role":
				typed = true
			case "content", "output":
				part, end := fileID(raw, c.Start())
				if part != "" {
					return format.Unsupported(format.ElementPath("input", it.Index()) + "." + string(c.DecodedName()) + part)
				}
				c.SetEnd(end)
			}
		}
		if !typed { // an item that has nothing but an id is a reference as well
			return reference(it.Index())
		}
		it.SetEnd(c.SkipRest())
	}
	return nil
}

func reference(item int) *apierr.Error {
	return format.UnsupportedFor(format.ElementPath("input", item)+".type",
		"Nothing is stored between requests: send the items themselves, and store set to false.")
}

// fileID returns the path, within the value at index i, of the first stored file that
// it names, empty if there is none, and the index after the value, 0 if not known.
func fileID(raw []byte, i int) (path string, end int) {
	if jsonspan.KindOf(raw[i:]) == jsonspan.KindObject {
		c := jsonspan.ObjectAt(raw, i)
		if namesFile(&c) {
			return ".file_id", 0
		}
		return "", c.SkipRest()
	}
	it := jsonspan.ArrayAt(raw, i)
	for it.Next() {
		c := jsonspan.ObjectAt(raw, it.Start())
		if namesFile(&c) {
			return format.ElementPath("", it.Index()) + ".file_id", 0
		}
		it.SetEnd(c.SkipRest())
	}
	return "", it.SkipRest()
}

func namesFile(c *jsonspan.ObjectCursor) bool {
	for c.Next() {
		if string(c.DecodedName()) == "file_id" && c.Kind() != jsonspan.KindNull {
			return true
		}
	}
	return false
}

func text(raw []byte, name string) string {
	value, _ := jsonspan.Find(raw, name)
	s, _ := jsonspan.Text(nil, value)
	return string(s)
}
