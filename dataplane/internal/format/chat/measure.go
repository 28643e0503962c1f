package chat

import (
	"bytes"

	"modelgateway/dataplane/internal/format/internal/splice"
	"modelgateway/dataplane/internal/jsonspan"
)

// measure adds up the text of every object that is the value of the quoted name, from
// index at of text on.
func (a *reader) measure(text []byte, at int, quoted string) {
	for {
		i := bytes.Index(text[at:], []byte(quoted))
		if i < 0 {
			return
		}
		at += i + len(quoted)
		for at < len(text) && (text[at] == ':' || text[at] == ' ') {
			at++
		}
		n, end := measureMessage(text, at)
		a.Bytes += n
		at = max(at, end)
	}
}

// measureMessage returns the length of the text in a message or delta, and the index
// after it.
func measureMessage(text []byte, at int) (n int64, end int) {
	// Where a provider gives its reasoning under two names, it is the same.
	var reasoning, reasoningContent int64
	c := splice.Members(text, at)
	for c.Next() {
		switch string(c.Name()) {
		case "content", "refusal":
			n += content(&c)
		case "reasoning_content":
			reasoningContent = content(&c)
		case "reasoning":
			reasoning = content(&c)
		case "tool_calls", "function_call":
			more, end := splice.Texts(text, c.Start(), isCall)
			n += more
			c.Skip(end)
		}
	}
	return n + max(reasoning, reasoningContent), c.Close()
}

// content returns the length of a string, or of the text in a list of parts.
func content(c *splice.Cursor) int64 {
	if c.Kind() == jsonspan.KindString {
		return splice.TextLen(c.Value())
	}
	n, _ := splice.Texts(c.Value(), 0, isText)
	return n
}

func isText(name []byte) bool { return string(name) == "text" }

// isCall tells which parts of a tool call the model has written.
func isCall(name []byte) bool {
	switch string(name) {
	case "name", "arguments", "input":
		return true
	}
	return false
}
