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

// Format implements format.Dialect.
func (Dialect) Format() catalogkv.Format { return spec.Format }

// Policy implements format.Dialect.
func (Dialect) Policy() *format.Policy { return spec.Policy }

// Read implements format.Dialect.
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
func check(r *format.Request, _ *format.Policy, rules format.Rules) *apierr.Error {
	if r.Value("web_search_options") != nil && !rules.HasToolPrice {
		return format.Unsupported("web_search_options") // a search must have a price, whatever the policy allows
	}
	return checkMessages(r.Value("messages"))
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

// checkMessages refuses references to files and audio that a provider would have stored. It reads the text once,
// whatever its size.
func checkMessages(raw []byte) *apierr.Error {
	it := jsonspan.ArrayAt(raw, 0)
	for it.Next() {
		if it.Kind() == jsonspan.KindArray { // what is in it would not be checked
			return format.Invalid(messagePath(it.Index()), "an object")
		}
		c := jsonspan.ObjectAt(raw, it.Start())
		for c.Next() {
			switch string(c.DecodedName()) {
			case "content":
				part, end := storedFile(raw, c.Start())
				if part >= 0 {
					return format.Unsupported(messagePath(it.Index()) + format.ElementPath(".content", part) + ".file.file_id")
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

// storedFile returns the index of the first part of the content at index i that refers to a stored file, -1 if none
// does, and the index after the content if it has parts.
func storedFile(raw []byte, i int) (part, end int) {
	if jsonspan.KindOf(raw[i:]) == jsonspan.KindObject { // some servers take one part without a list
		c := jsonspan.ObjectAt(raw, i)
		if namesFile(&c) {
			return 0, 0
		}
		return -1, c.SkipRest()
	}
	it := jsonspan.ArrayAt(raw, i)
	for it.Next() {
		if part, end = storedFile(raw, it.Start()); part >= 0 {
			return it.Index(), 0
		}
		it.SetEnd(end)
	}
	return -1, it.SkipRest()
}

// namesFile reports whether a part refers to a stored file.
func namesFile(c *jsonspan.ObjectCursor) bool {
	for c.Next() {
		if string(c.DecodedName()) != "file" {
			continue
		}
		if id, ok := jsonspan.Find(c.Value(), "file_id"); ok && jsonspan.KindOf(id) != jsonspan.KindNull {
			return true
		}
	}
	return false
}

// edit makes the request ask for the stream's usage. Options that the client set and the check has accepted are sent,
// too.
func edit(r *format.Request, e *format.Edit, t *format.Target) {
	row := t.Policy.Row("stream_options")
	switch {
	case !r.Stream:
		e.Drop("stream_options")
	case row.Action == format.Force:
	case row.Action == format.Forward:
		options := []byte(`{"include_usage":true}`)
		if raw, ok := jsonspan.Find(r.Value("stream_options"), "include_obfuscation"); ok && jsonspan.KindOf(raw) != jsonspan.KindNull {
			options = e.Concat([]byte(`{"include_usage":true,"include_obfuscation":`), raw, []byte(`}`))
		}
		e.Set("stream_options", options)
	}
}
