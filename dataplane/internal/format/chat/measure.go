package chat

import (
	"modelgateway/dataplane/internal/format/internal/answer"
	"modelgateway/dataplane/internal/format/internal/splice"
	"modelgateway/dataplane/internal/jsonspan"
)

// readChoices reads the choices at index at of text: how many of them end, and how many
// there are. sum grows by the text that they have in the member inside, which is message
// or delta. A usage object among their members loses its figures of money. end is the
// index after the choices, 0 if they are no list.
func readChoices(sum *splice.Sum, w *splice.Writer, text []byte, at int, inside string) (ended, count int64, end int) {
	it := splice.Elements(text, at)
	for it.Next() {
		count++
		c := splice.Members(text, it.Start())
		for c.Next() {
			switch name := c.Name(); {
			case string(name) == inside:
				c.Skip(readMessage(sum, text, c.Start()))
			case string(name) == "finish_reason" && c.Kind() == jsonspan.KindString:
				ended++
			case string(name) == "usage":
				c.Skip(answer.DropMoney(w, text, c.Start()))
			}
		}
		it.Skip(c.Close())
	}
	return ended, count, it.Close()
}

// readMessage adds the text of a message or delta to sum, and returns the index after
// it, 0 if it is none.
func readMessage(sum *splice.Sum, text []byte, at int) (end int) {
	// Where a provider gives its reasoning under two names, it is the same.
	var named, plain splice.Sum
	c := splice.Members(text, at)
	for c.Next() {
		switch string(c.Name()) {
		case "content", "refusal":
			c.Skip(content(sum, text, &c))
		case "reasoning_content":
			c.Skip(content(&named, text, &c))
		case "reasoning":
			c.Skip(content(&plain, text, &c))
		case "tool_calls", "function_call":
			c.Skip(splice.Texts(sum, text, c.Start(), isCall))
		}
	}
	if named.Len < plain.Len {
		named = plain
	}
	if named.Len > 0 {
		sum.Len, sum.Start, sum.End = sum.Len+named.Len, named.Start, named.End
	}
	return c.Close()
}

// content adds a string, or the text in a list of parts.
func content(sum *splice.Sum, text []byte, c *splice.Cursor) (end int) {
	if c.Kind() == jsonspan.KindString {
		sum.Add(text, c.Start(), c.End())
		return c.End()
	}
	return splice.Texts(sum, text, c.Start(), isText)
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
