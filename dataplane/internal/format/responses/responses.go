// Package responses implements the responses format.
//
// It owns the format's parameter table, its usage, and its streams: named and numbered events, the last of which
// carries the complete response. The gateway stores nothing at a provider, so references to earlier responses are
// refused.
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

// Format implements format.Dialect.
func (Dialect) Format() catalogkv.Format { return spec.Format }

// Policy implements format.Dialect.
func (Dialect) Policy() *format.Policy { return spec.Policy }

// Read implements format.Dialect.
func (Dialect) Read(obj *jsonspan.Object) (*format.Request, *apierr.Error) { return spec.Read(obj) }

// edit removes the stream options from a request without a stream.
func edit(r *format.Request, e *format.Edit, _ *format.Target) {
	if !r.Stream {
		e.Drop("stream_options")
	}
}

// check checks nested values.
func check(r *format.Request, p *format.Policy, rules format.Rules) *apierr.Error {
	offered := func(kind string) bool { return p.OffersTool(kind, rules, toolClass(kind)) }
	if e := r.CheckTools(p, rules, toolClass); e != nil {
		return e
	}
	if e := checkToolChoice(r.Value("tool_choice"), offered); e != nil {
		return e
	}
	if e := checkInclude(r.Value("include"), offered); e != nil {
		return e
	}
	return checkInput(r.Value("input"))
}

// toolClass returns the class of a tool: some are run by the client, and one uses a secondary model.
func toolClass(kind string) format.ToolClass {
	switch kind {
	case "", "function", "custom", "namespace", "local_shell", "apply_patch":
		return format.ClientTool
	case "image_generation":
		return format.ImageTool
	}
	return format.ProviderTool
}

// checkToolChoice refuses the choice of a tool that is not offered.
func checkToolChoice(raw []byte, offered func(string) bool) *apierr.Error {
	if jsonspan.KindOf(raw) != jsonspan.KindObject {
		return nil
	}
	kind := jsonspan.FindText(raw, "type")
	if kind != "allowed_tools" {
		if !offered(kind) {
			return format.Unsupported("tool_choice.type")
		}
		return nil
	}
	tools, _ := jsonspan.Find(raw, "tools")
	i := 0
	for tool := range jsonspan.Elements(tools) {
		if !offered(jsonspan.FindText(tool, "type")) {
			return format.Unsupported(format.ElementPath("tool_choice.tools", i) + ".type")
		}
		i++
	}
	return nil
}

// checkInclude accepts additions that are free of charge and those of offered tools.
func checkInclude(raw []byte, offered func(string) bool) *apierr.Error {
	i := 0
	for item := range jsonspan.Elements(raw) {
		name, _ := jsonspan.Text(nil, item)
		switch string(name) {
		case "reasoning.encrypted_content", "message.output_text.logprobs":
		default:
			tool, _, ok := strings.Cut(string(name), "_call")
			if !ok || !offered(tool) {
				return format.Unsupported(format.ElementPath("include", i))
			}
		}
		i++
	}
	return nil
}

// checkInput refuses references to items and files that a provider would have stored. It reads the text once,
// whatever its size.
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
					return itemReference(it.Index())
				}
				typed = typed || len(kind) > 0
			case "role":
				typed = true
			case "content", "output":
				part, end := storedFile(raw, c.Start())
				if part != "" {
					return format.Unsupported(format.ElementPath("input", it.Index()) + "." + string(c.DecodedName()) + part)
				}
				c.SetEnd(end)
			}
		}
		if !typed { // an item with nothing but an id is a reference, too
			return itemReference(it.Index())
		}
		it.SetEnd(c.SkipRest())
	}
	return nil
}

func itemReference(item int) *apierr.Error {
	return format.UnsupportedFor(format.ElementPath("input", item)+".type",
		"Nothing is stored between requests. Send the items themselves, and set \"store\" to false.")
}

// storedFile returns the path, within the value at index i, of the first reference to a stored file, empty if there
// is none, and the index after the value, 0 if it is unknown.
func storedFile(raw []byte, i int) (path string, end int) {
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
