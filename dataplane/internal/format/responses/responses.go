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
	Includes:  "reasoning.encrypted_content",
	Tools:     format.NewTools([]string{"tools[]", "input[].tools[]"}, toolClass, readChoice).Checked(checkTool),
}

func (Dialect) Format() catalogkv.Format { return spec.Format }

func (Dialect) Policy() *format.Policy { return spec.Policy }

func (Dialect) Read(obj *jsonspan.Object) (*format.Request, *apierr.Error) { return spec.Read(obj) }

// edit removes the stream options from a request without a stream.
func edit(r *format.Request, e *format.Edit, _ *format.Target) {
	if !r.Stream {
		e.Drop("stream_options")
	}
}

// check checks nested values.
func check(r *format.Request, p *format.Policy, rules format.Rules) *apierr.Error {
	if e := checkInclude(r, p, rules); e != nil {
		return e
	}
	c := inputCheck{policy: p, rules: rules}
	return c.items(r.Value("input"))
}

// toolClass returns the class of a tool: some are run by the client, some of them only if their definition says so, and
// one uses a secondary model.
func toolClass(kind string, tool []byte) format.ToolClass {
	switch kind {
	case "", "function", "custom", "namespace", "local_shell", "apply_patch", "computer", "computer_use", "computer_use_preview":
		return format.ClientTool
	case "tool_search":
		if jsonspan.FindText(tool, "execution") == "client" {
			return format.ClientTool
		}
		return format.TokenTool
	case "shell":
		if jsonspan.FindText(tool, "environment", "type") == "local" {
			return format.ClientTool
		}
	case "image_generation":
		return format.ImageTool
	}
	return format.ProviderTool
}

// storedMembers are the members of tools that name what a provider keeps for the account of the gateway, which all customers share:
// files, containers and ways into networks.
var storedMembers = [][]string{
	{"tunnel_id"},
	{"container", "file_ids"},
	{"environment", "file_ids"},
	{"environment", "container_id"},
	{"input_image_mask", "file_id"},
}

// checkTool refuses what a tool of the provider may not have although the model offers the tool.
func checkTool(tool []byte) *apierr.Error {
	for _, path := range storedMembers {
		raw, ok := jsonspan.Find(tool, path...)
		if empty := string(raw) == "[]"; ok && !empty && jsonspan.KindOf(raw) != jsonspan.KindNull {
			return format.UnsupportedFor(strings.Join(path, "."), nothingStored)
		}
	}

	skills, _ := jsonspan.Find(tool, "environment", "skills")
	for skill := range jsonspan.Elements(skills) {
		if _, ok := jsonspan.Find(skill, "skill_id"); ok {
			return format.UnsupportedFor("environment.skills", nothingStored)
		}
	}

	container, _ := jsonspan.Find(tool, "container")
	if jsonspan.KindOf(container) == jsonspan.KindString {
		return format.UnsupportedFor("container", nothingStored)
	}

	// A larger machine costs many times as much as the usual one.
	for _, name := range []string{"container", "environment"} {
		raw, ok := jsonspan.Find(tool, name, "memory_limit")
		if ok && jsonspan.KindOf(raw) != jsonspan.KindNull && string(raw) != `"1g"` {
			return format.UnsupportedValue(name+".memory_limit", raw)
		}
	}

	return nil
}

// readChoice reads the choice of tools.
func readChoice(raw []byte) (choice format.ToolChoice) {
	if jsonspan.KindOf(raw) == jsonspan.KindString {
		text, _ := jsonspan.Text(nil, raw)
		choice.Required, choice.None = string(text) == "required", string(text) == "none"
		return choice
	}

	switch kind := jsonspan.FindText(raw, "type"); kind {
	case "", "function", "custom":
		choice.Name = jsonspan.FindText(raw, "name")
	case "allowed_tools":
		choice.Required = jsonspan.FindText(raw, "mode") == "required"
		tools, _ := jsonspan.Find(raw, "tools")
		for tool := range jsonspan.Elements(tools) {
			choice.Kinds = append(choice.Kinds, jsonspan.FindText(tool, "type"))
		}
		choice.Param = "tool_choice.tools"
	default:
		choice.Kinds, choice.Param = []string{kind}, "tool_choice.type"
	}

	return choice
}

// checkInclude accepts additions to the answer that are free of charge, and results of tools.
func checkInclude(r *format.Request, p *format.Policy, rules format.Rules) *apierr.Error {
	i := 0
	for item := range jsonspan.Elements(r.Value("include")) {
		name, _ := jsonspan.Text(nil, item)
		switch string(name) {
		case "reasoning.encrypted_content",
			"message.output_text.logprobs",
			"message.input_image.image_url",
			"computer_call_output.output.image_url":
		default:
			if kind, ok := format.ToolOfResult(string(name)); !ok || !r.OffersResult(p, rules, kind) {
				return format.UnsupportedValue(format.ElementPath("include", i), item)
			}
		}
		i++
	}
	return nil
}

// inputCheck checks the items of the input.
type inputCheck struct {
	policy *format.Policy
	rules  format.Rules
}

// items refuses references to items and files that a provider would have stored, and lifetimes of caches without a
// price. It reads the text once, whatever its size.
func (p *inputCheck) items(raw []byte) *apierr.Error {
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
				switch string(kind) {
				case "item_reference":
					return itemReference(it.Index())
				case "compaction_trigger":
					// It asks for the service that context_management asks for.
					if p.policy.Row("context_management").Action != format.Forward {
						return format.UnsupportedValue(format.ElementPath("input", it.Index())+".type", c.Value())
					}
				}
				typed = typed || len(kind) > 0
			case "role":
				typed = true
			case "reasoning": // an item may change the parameter for the turns after it
				if e := p.policy.CheckMembers("reasoning", c.Value(), p.rules); e != nil {
					e.Param = format.ElementPath("input", it.Index()) + "." + e.Param
					return e
				}
			case "content", "output":
				part, value, end := p.content(raw, c.Start())
				if part != "" {
					return format.UnsupportedValue(format.ElementPath("input", it.Index())+"."+string(c.DecodedName())+part, value)
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
	return format.UnsupportedFor(format.ElementPath("input", item)+".type", nothingStored)
}

// content searches the value at index i for a part that is refused. It returns the path to what is refused, empty if
// nothing is, its value if that alone is refused, and the index after the value, 0 if it is unknown.
func (p *inputCheck) content(raw []byte, i int) (path string, value []byte, end int) {
	if jsonspan.KindOf(raw[i:]) == jsonspan.KindObject {
		c := jsonspan.ObjectAt(raw, i)
		if path, value = p.part(&c); path != "" {
			return path, value, 0
		}
		return "", nil, c.SkipRest()
	}
	it := jsonspan.ArrayAt(raw, i)
	for it.Next() {
		if path, value, end = p.content(raw, it.Start()); path != "" {
			return format.ElementPath("", it.Index()) + path, value, 0
		}
		it.SetEnd(end)
	}
	return "", nil, it.SkipRest()
}

// part refuses a part that refers to a stored file, or that is kept in a cache for a time without a price.
func (p *inputCheck) part(c *jsonspan.ObjectCursor) (path string, value []byte) {
	for c.Next() {
		switch string(c.DecodedName()) {
		case "file_id":
			if c.Kind() != jsonspan.KindNull {
				return ".file_id", nil
			}
		case "prompt_cache_breakpoint":
			if value = p.policy.RefusedLifetime(c.Value(), p.rules); value != nil {
				return ".prompt_cache_breakpoint.ttl", value
			}
		}
	}
	return "", nil
}
