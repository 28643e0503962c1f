// Package chat implements the chat-completions format.
//
// It owns the format's parameter table, its usage in all the places where providers put it, and its streams: one JSON
// object per event, without event names, ended by [DONE]. The gateway always asks the provider for usage, because
// requests are charged by it; a client that did not ask for usage does not get it.
package chat

import (
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
)

// Dialect is the chat-completions format.
type Dialect struct{}

var spec = format.Spec{
	Format:    catalogkv.Chat,
	Policy:    policy,
	Content:   []string{"messages", "tools", "functions", "response_format", "prediction"},
	Limits:    []string{"max_completion_tokens", "max_tokens"},
	UserParam: "user",
	ReadFunc:  read,
	CheckFunc: check,
	EditFunc:  edit,
	Tools:     format.NewTools([]string{"tools[]"}, toolClass, func([]byte) format.ToolChoice { return format.ToolChoice{} }),
}

func (Dialect) Format() catalogkv.Format { return spec.Format }

func (Dialect) Policy() *format.Policy { return spec.Policy }

func (Dialect) Read(obj *jsonspan.Object) (*format.Request, *apierr.Error) { return spec.Read(obj) }

// read reads the number of choices, and whether the client wants the stream's usage.
func read(r *format.Request) {
	if r.Value("n") != nil {
		n, ok := r.Integer("n")
		if !ok || n < 1 {
			r.Refuse(format.Invalid("n", "an integer of at least 1"))
			n = 1
		}
		r.N = n
	}
	asked, _ := jsonspan.Find(r.Value("stream_options"), "include_usage")
	r.IncludeUsage, _ = jsonspan.Bool(asked)
}

// check checks nested values.
func check(r *format.Request, p *format.Policy, rules format.Rules) *apierr.Error {
	if r.Value("web_search_options") != nil && !rules.HasToolPrice() {
		return format.Unsupported("web_search_options") // a search must have a price, whatever the policy allows
	}
	if e := checkAudio(r, rules); e != nil {
		return e
	}
	c := partCheck{policy: p, rules: rules}
	return c.messages(r.Value("messages"))
}

// checkAudio refuses spoken answers of a model that has no price for them: they cost several times as much as text.
func checkAudio(r *format.Request, rules format.Rules) *apierr.Error {
	if rules.HasRate(price.AudioOut) {
		return nil
	}
	i := 0
	for modality := range jsonspan.Elements(r.Value("modalities")) {
		if text, _ := jsonspan.Text(nil, modality); string(text) == "audio" {
			return format.UnsupportedValue(format.ElementPath("modalities", i), modality)
		}
		i++
	}
	if r.Value("audio") != nil {
		return format.Unsupported("audio")
	}
	return nil
}

// toolClass returns the class of a tool. The format has two types of tools, both run by the client; the provider itself
// refuses a tool without a type.
func toolClass(kind string, _ []byte) format.ToolClass {
	switch kind {
	case "", "function", "custom":
		return format.ClientTool
	}
	return format.UnknownTool
}

// partCheck checks the messages of a request.
type partCheck struct {
	policy *format.Policy
	rules  format.Rules
}

// messages refuses references to files and audio that a provider would have stored, and lifetimes of caches without a
// price. It reads the text once, whatever its size.
func (p *partCheck) messages(raw []byte) *apierr.Error {
	it := jsonspan.ArrayAt(raw, 0)
	for it.Next() {
		if it.Kind() == jsonspan.KindArray { // what is in it would not be checked
			return format.Invalid(messagePath(it.Index()), "an object")
		}

		c := jsonspan.ObjectAt(raw, it.Start())
		for c.Next() {
			switch string(c.DecodedName()) {
			case "content":
				path, value, end := p.content(raw, c.Start())
				if path != "" {
					return format.UnsupportedValue(messagePath(it.Index())+".content"+path, value)
				}
				c.SetEnd(end)
			case "audio":
				if id, ok := jsonspan.Find(c.Value(), "id"); ok && jsonspan.KindOf(id) != jsonspan.KindNull {
					return format.Unsupported(messagePath(it.Index()) + ".audio.id")
				}
			}
		}

		it.SetEnd(c.SkipRest())
	}

	return nil
}

func messagePath(message int) string { return format.ElementPath("messages", message) }

// content searches the content at index i for a part that is refused. It returns the path to what is refused, empty if
// nothing is, its value if that alone is refused, and the index after the content if it has parts.
func (p *partCheck) content(raw []byte, i int) (path string, value []byte, end int) {
	if jsonspan.KindOf(raw[i:]) == jsonspan.KindObject { // some servers take one part without a list
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
func (p *partCheck) part(c *jsonspan.ObjectCursor) (path string, value []byte) {
	for c.Next() {
		switch string(c.DecodedName()) {
		case "file":
			if id, ok := jsonspan.Find(c.Value(), "file_id"); ok && jsonspan.KindOf(id) != jsonspan.KindNull {
				return ".file.file_id", nil
			}
		case "prompt_cache_breakpoint":
			if value = p.policy.RefusedLifetime(c.Value(), p.rules); value != nil {
				return ".prompt_cache_breakpoint.ttl", value
			}
		}
	}
	return "", nil
}

// edit makes the request ask for the stream's usage, unless the client does not and the provider refuses it: then the usage is
// what the provider reports unasked, or is estimated. Options that the client set and the check has accepted are sent, too.
func edit(r *format.Request, e *format.Edit, t *format.Target) {
	row := t.Policy.Row("stream_options")
	switch {
	case !r.Stream:
		e.Drop("stream_options")
	case row.Action == format.Force:
	case row.Action == format.Forward && (r.IncludeUsage || e.Adds(format.AddedStreamOptions, t)):
		options := []byte(`{"include_usage":true}`)
		if raw, ok := jsonspan.Find(r.Value("stream_options"), "include_obfuscation"); ok && jsonspan.KindOf(raw) != jsonspan.KindNull {
			options = e.Concat([]byte(`{"include_usage":true,"include_obfuscation":`), raw, []byte(`}`))
		}
		e.Set("stream_options", options)
	}
}
