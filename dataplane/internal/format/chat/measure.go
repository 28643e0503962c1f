package chat

import (
	"modelgateway/dataplane/internal/format/internal/answer"
	"modelgateway/dataplane/internal/jsonspan"
)

// choices is what the reader needs of the choices of an answer or chunk.
type choices struct {
	// count is their number.
	count int64
	// ended has a bit for each choice that has ended, by index.
	ended uint64
	// failed reports whether one of them is an error.
	failed bool
	// audio is the length of the audio in base64, images the number of images without an index of their own. drawn has a bit for
	// each of the others, eight for each choice: a stream may send several versions of an image.
	audio, images int64
	drawn         uint64
	// reasons reports whether there is a text of reasoning.
	reasons bool
}

// readChoices reads the choices at index at of text. It returns the index after them, 0 if they are no array. The texts in
// the member inside of each choice, message or delta, are added to sum. Costs are removed from usage objects in the choices.
func readChoices(sum *answer.TextSum, w *jsonspan.Splicer, text []byte, at int, inside string) (all choices, end int) {
	it := jsonspan.ArrayAt(text, at)
	for it.Next() {
		index, ended, drawn := all.count, false, uint64(0)
		all.count++
		c := jsonspan.ObjectAt(text, it.Start())
		for c.Next() {
			switch name := c.DecodedName(); string(name) {
			case inside:
				var seen uint64
				seen, end = all.readMessage(sum, text, c.Start())
				drawn |= seen
				c.SetEnd(end)
			case "index":
				if n, ok := jsonspan.Int64(c.Value()); ok {
					index = n
				}
			case "finish_reason":
				ended = answer.IsReason(c.Value())
				all.failed = all.failed || string(c.Value()) == `"error"`
			case "error":
				all.failed = all.failed || answer.IsError(c.Value())
			case "usage":
				c.SetEnd(answer.DropCosts(w, text, c.Start()))
			}
		}

		if ended {
			all.ended |= 1 << uint64(index%64)
		}

		all.drawn |= drawn << (uint64(index) % 8 * 8)
		it.SetEnd(c.SkipRest())
	}

	return all, it.SkipRest()
}

// readMessage adds the texts of a message or delta to sum. It returns the images that have an index, as bits, and the index after
// the message, 0 if it is no object.
func (all *choices) readMessage(sum *answer.TextSum, text []byte, at int) (drawn uint64, end int) {
	// A provider that sends reasoning under several names sends the same text several times.
	var named, plain, details answer.TextSum
	c := jsonspan.ObjectAt(text, at)
	for c.Next() {
		switch string(c.DecodedName()) {
		case "content", "refusal":
			if c.Kind() == jsonspan.KindArray {
				all.images += countImages(c.Value())
			}
			c.SetEnd(readContent(sum, text, &c))
		case "reasoning_content":
			c.SetEnd(readContent(&named, text, &c))
		case "reasoning":
			c.SetEnd(readContent(&plain, text, &c))
		case "reasoning_details":
			c.SetEnd(answer.SumTexts(&details, text, c.Start(), isDetail))
		case "audio":
			c.SetEnd(all.readAudio(sum, text, c.Start()))
		case "images":
			for image := range jsonspan.Elements(c.Value()) {
				raw, _ := jsonspan.Find(image, "index")
				if n, ok := jsonspan.Int64(raw); ok && 0 <= n && n < 8 {
					drawn |= 1 << n
				} else {
					all.images++
				}
			}
		case "tool_calls", "function_call":
			c.SetEnd(answer.SumTexts(sum, text, c.Start(), isToolCallText))
		}
	}

	for _, other := range []answer.TextSum{plain, details} {
		if named.Bytes < other.Bytes {
			named = other
		}
	}

	if named.Bytes > 0 {
		all.reasons = true
		sum.Size.Add(named.Size)
		sum.Start, sum.End = named.Start, named.End
	}

	return drawn, c.SkipRest()
}

// countImages returns how many parts of a list are images.
func countImages(parts []byte) (n int64) {
	for part := range jsonspan.Elements(parts) {
		switch jsonspan.FindText(part, "type") {
		case "image_url", "image", "output_image":
			n++
		}
	}
	return n
}

// readAudio reads the audio of a message or delta, and adds its transcript to sum.
func (all *choices) readAudio(sum *answer.TextSum, text []byte, at int) (end int) {
	c := jsonspan.ObjectAt(text, at)
	for c.Next() {
		switch string(c.DecodedName()) {
		case "transcript":
			sum.AddString(text, c.Start(), c.End())
		case "data":
			all.audio += answer.SizeOf(c.Value()).Bytes
		}
	}
	return c.SkipRest()
}

// readContent adds a string, or the texts of a list of parts.
func readContent(sum *answer.TextSum, text []byte, c *jsonspan.ObjectCursor) (end int) {
	if c.Kind() == jsonspan.KindString {
		sum.AddString(text, c.Start(), c.End())
		return c.End()
	}
	return answer.SumTexts(sum, text, c.Start(), isText)
}

func isText(name []byte) bool { return string(name) == "text" }

func isDetail(name []byte) bool { return string(name) == "text" || string(name) == "summary" }

// isToolCallText reports whether a member of a tool call was written by the model.
func isToolCallText(name []byte) bool {
	switch string(name) {
	case "name", "arguments", "input":
		return true
	}
	return false
}
