package chat

import (
	"modelgateway/dataplane/internal/format/internal/answer"
	"modelgateway/dataplane/internal/jsonspan"
)

// readChoices reads the choices at index at of text: how many of them end, and how many
// there are. sum grows by the text that they have in the member inside, which is message
// or delta. A usage object among their members loses its figures of money. end is the
// index after the choices, 0 if they are no list.
func readChoices(sum *answer.TextSum, w *jsonspan.Splicer, text []byte, at int, inside string) (ended, count int64, end int) {
	it := jsonspan.ArrayAt(text, at)
	for it.Next() {
		count++
		c := jsonspan.ObjectAt(text, it.Start())
		for c.Next() {
			switch name := c.Name(); {
			case string(name) == inside:
				c.SetEnd(readMessage(sum, text, c.Start()))
			case string(name) == "finish_reason" && c.Kind() == jsonspan.KindString:
				ended++
			case string(name) == "usage":
				c.SetEnd(answer.DropMoney(w, text, c.Start()))
			}
		}
		it.SetEnd(c.SkipRest())
	}
	return ended, count, it.SkipRest()
}

// readMessage adds the text of a message or delta to sum, and returns the index after
// it, 0 if it is none.
func readMessage(sum *answer.TextSum, text []byte, at int) (end int) {
	// Where a provider gives its reasoning under two names, it is the same.
	var named, plain answer.TextSum
	c := jsonspan.ObjectAt(text, at)
	for c.Next() {
		switch string(c.Name()) {
		case "content", "refusal":
			c.SetEnd(content(sum, text, &c))
		case "reasoning_content":
			c.SetEnd(content(&named, text, &c))
		case "reasoning":
			c.SetEnd(content(&plain, text, &c))
		case "tool_calls", "function_call":
			c.SetEnd(answer.SumTexts(sum, text, c.Start(), isCall))
		}
	}
	if named.Len < plain.Len {
		named = plain
	}
	if named.Len > 0 {
		sum.Len, sum.Start, sum.End = sum.Len+named.Len, named.Start, named.End
	}
	return c.SkipRest()
}

// content adds a string, or the text in a list of parts.
func content(sum *answer.TextSum, text []byte, c *jsonspan.ObjectCursor) (end int) {
	if c.Kind() == jsonspan.KindString {
		sum.Add(text, c.Start(), c.End())
		return c.End()
	}
	return answer.SumTexts(sum, text, c.Start(), isText)
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
