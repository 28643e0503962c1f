// Package messages implements the messages format.
//
// It owns the format's parameter table, its usage, whose totals are replaced while a stream runs, and its streams:
// named events, ended by message_stop. Its errors have an envelope of their own.
package messages

import (
	"bytes"
	"strings"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
)

// Dialect is the messages format.
type Dialect struct{}

var spec = format.Spec{
	Format:    catalogkv.Messages,
	Policy:    policy,
	Content:   []string{"system", "messages", "tools", "output_config", "output_format"},
	Limits:    []string{"max_tokens"},
	CheckFunc: check,
	EditFunc:  edit,
	BetaFunc:  beta,
	Tools: format.NewTools([]string{
		"tools[]", "messages[].content[].tool", "messages[].content[].tool_changes[].tool", "system[].tool",
	}, toolClass, readChoice),
}

func (Dialect) Format() catalogkv.Format { return spec.Format }

func (Dialect) Policy() *format.Policy { return spec.Policy }

func (Dialect) Read(obj *jsonspan.Object) (*format.Request, *apierr.Error) { return spec.Read(obj) }

// edit sets the pseudonym of the user in metadata. The value that a client sends there may be a document with ids of
// devices and sessions.
func edit(r *format.Request, e *format.Edit, t *format.Target) {
	if t.Policy.Row("metadata").Action != format.Replace {
		return
	}
	user := ""
	if raw, ok := jsonspan.Find(r.Value("metadata"), "user_id"); ok && t.IdentityFunc != nil {
		if id, ok := jsonspan.Text(nil, raw); ok {
			user = t.IdentityFunc(string(id))
		}
	}
	if user == "" && t.WantsUser {
		user = t.PseudonymFunc()
	}
	if user != "" {
		e.Set("metadata", e.Concat([]byte(`{"user_id":`), jsonspan.AppendString(nil, user), []byte(`}`)))
	}
}

// check checks nested values.
func check(r *format.Request, p *format.Policy, rules format.Rules) *apierr.Error {
	if e := checkEdits(r.Value("context_management")); e != nil {
		return e
	}

	c := blockCheck{policy: p, rules: rules}
	if e := c.tools(r.Value("tools")); e != nil {
		return e
	}

	if system := r.Value("system"); system != nil {
		if path, _ := c.blocks(system, 0, maxNesting); path != "" {
			return format.UnsupportedValue("system"+path, c.value)
		}
	}

	if e := c.messages(r.Value("messages")); e != nil {
		return e
	}

	r.Betas |= c.needs
	readBetas(r)
	return nil
}

// blockCheck checks the blocks of a request.
type blockCheck struct {
	policy *format.Policy
	rules  format.Rules
	// needs are the beta features that the blocks need.
	needs uint64
	// value is what is refused at the path that was found, nil if that is not its value alone.
	value []byte
}

// messages checks the list of messages.
func (b *blockCheck) messages(raw []byte) *apierr.Error {
	it := jsonspan.ArrayAt(raw, 0)
	for it.Next() {
		c := jsonspan.ObjectAt(raw, it.Start())
		for c.Next() {
			switch name := string(c.DecodedName()); name {
			case "output_config", "clear_at":
				if c.Kind() != jsonspan.KindNull {
					b.needs |= betasOf["messages[]."+name]
				}
				continue
			case "role":
				if role, _ := jsonspan.Text(nil, c.Value()); string(role) == "system" {
					b.needs |= betasOf["messages[].role=system"]
				}
				continue
			case "content":
			default:
				continue
			}
			path, end := b.blocks(raw, c.Start(), maxNesting)
			if path != "" {
				return format.UnsupportedValue(format.ElementPath("messages", it.Index())+".content"+path, b.value)
			}
			c.SetEnd(end)
		}

		it.SetEnd(c.SkipRest())
	}

	return nil
}

// tools checks how long definitions of tools are cached.
func (b *blockCheck) tools(raw []byte) *apierr.Error {
	it := jsonspan.ArrayAt(raw, 0)
	for it.Next() {
		if path := b.lifetime("tool", it.Value()); path != "" {
			return format.UnsupportedValue(format.ElementPath("tools", it.Index())+strings.TrimPrefix(path, ".tool"), b.value)
		}
	}
	return nil
}

// lifetime returns the path of a lifetime without a price in the member cache_control, or in that of a definition in the
// member tool. It notes what the value needs.
func (b *blockCheck) lifetime(name string, value []byte) (path string) {
	path = "." + name
	if name == "tool" {
		path += ".cache_control"
		value, _ = jsonspan.Find(value, "cache_control")
	}
	b.needs |= scopeBeta("messages[].cache_control", value)
	if b.value = b.policy.RefusedMember("cache_control", "ttl", value, b.rules); b.value == nil {
		return ""
	}
	return path + ".ttl"
}

// clientTools are the prefixes of the types of tools that a client runs.
var clientTools = []string{"bash_", "text_editor_", "computer_", "browser_", "memory_"}

// toolClass returns the class of a tool. An advisor is a secondary model. A tool server (MCP) that the client chooses
// has a cost that no price sheet can express.
func toolClass(kind string, _ []byte) format.ToolClass {
	switch kind {
	case "", "custom", "tool_reference", "tool_definition":
		return format.ClientTool
	}

	for _, prefix := range clientTools {
		if strings.HasPrefix(kind, prefix) {
			return format.ClientTool
		}
	}

	switch {
	case strings.HasPrefix(kind, "tool_search_tool_"), strings.HasPrefix(kind, "web_fetch_"):
		return format.TokenTool
	case strings.HasPrefix(kind, "mcp_"):
		return format.UnpricedTool
	case strings.HasPrefix(kind, "advisor_"):
		return format.AdvisorTool
	}

	return format.ProviderTool
}

// readChoice reads the choice of tools.
func readChoice(raw []byte) (choice format.ToolChoice) {
	switch jsonspan.FindText(raw, "type") {
	case "any":
		choice.Required = true
	case "tool":
		choice.Name = jsonspan.FindText(raw, "name")
	case "none":
		choice.None = true
	}
	return choice
}

// checkEdits accepts only those edits of the input that are free of charge.
func checkEdits(raw []byte) *apierr.Error {
	edits, _ := jsonspan.Find(raw, "edits")
	i := 0
	for item := range jsonspan.Elements(edits) {
		switch jsonspan.FindText(item, "type") {
		case "clear_thinking_20251015", "clear_tool_uses_20250919":
		default:
			kind, _ := jsonspan.Find(item, "type")
			return format.UnsupportedValue(format.ElementPath("context_management.edits", i)+".type", kind)
		}
		i++
	}
	return nil
}

// maxNesting bounds how deep blocks are checked: results of tools contain blocks, and so do documents.
const maxNesting = 8

// blocks searches a list of blocks, or one block, for a reference to something that a provider would have stored, and for
// lifetimes of caches without a price. It returns the path to it, empty if there is none, and the index after the value, 0
// if it is unknown. It reads the text once.
func (b *blockCheck) blocks(raw []byte, at, depth int) (path string, end int) {
	if jsonspan.KindOf(raw[at:]) == jsonspan.KindObject { // some servers take one block without a list
		c := jsonspan.ObjectAt(raw, at)
		if path = b.block(raw, &c, depth, false); path != "" {
			return path, 0
		}
		return "", c.SkipRest()
	}
	it := jsonspan.ArrayAt(raw, at)
	for it.Next() {
		if path, end = b.blocks(raw, it.Start(), depth); path != "" {
			return format.ElementPath("", it.Index()) + path, 0
		}
		it.SetEnd(end)
	}
	return "", it.SkipRest()
}

// block searches the members of one block, or of its source. Blocks that a provider has made may name files themselves.
func (b *blockCheck) block(raw []byte, c *jsonspan.ObjectCursor, depth int, isSource bool) (path string) {
	for c.Next() {
		switch name := string(c.DecodedName()); name {
		case "type":
			kind, _ := jsonspan.Text(nil, c.Value())
			if string(kind) == "container_upload" || string(kind) == "file" {
				return ".type"
			}
			if bytes.HasPrefix(kind, []byte("tool_")) {
				b.needs |= betasOf["messages[].content[].type="+string(kind)]
			}
		case "file_id":
			if isSource && c.Kind() != jsonspan.KindNull {
				return ".file_id"
			}
		case "cache_control", "tool":
			if path = b.lifetime(name, c.Value()); path != "" {
				return path
			}
		case "content":
			if depth == 0 {
				return ".content"
			}
			path, end := b.blocks(raw, c.Start(), depth-1)
			if path != "" {
				return ".content" + path
			}
			c.SetEnd(end)
		case "source":
			inner := jsonspan.ObjectAt(raw, c.Start())
			if depth == 0 {
				return ".source"
			}
			if path = b.block(raw, &inner, depth-1, true); path != "" {
				return ".source" + path
			}
			c.SetEnd(inner.SkipRest())
		}
	}
	return ""
}
