// Package splice reads and changes one JSON text where it lies, in a single pass
// and without taking memory.
//
// It is for the events and answers of providers: a [Cursor] visits the members of
// an object, [Items] the elements of an array, and a [Writer] copies the text with
// a few of the values changed. Unlike package jsonspan it does not check the text
// first and keeps no list of members: an event of a stream is read once, for a
// microsecond, and what cannot be understood is passed on as it came.
//
// Invariants:
//
//   - No text makes it panic or loop: of a malformed one the members before the
//     fault are visited.
//   - Names are handed out as written, and Text decodes them. A provider that spells
//     a member of its answers with escapes is not understood, and no more than that.
package splice

import "modelgateway/dataplane/internal/jsonspan"

// Cursor visits the members of one object, in order. Take it from Members.
type Cursor struct {
	text    []byte
	key     int // index of the current name's quote, -1 before the first member
	nameEnd int
	start   int
	end     int // after the current value, 0 while that is not known
	next    int // index of the first key until the first Next
	last    int // end of the last member that stays, -1 if none does
	after   int // index after the object, 0 while that is not known
	dropped bool
	none    bool // there is no object
	whole   bool
}

// Members returns a Cursor before the first member of the object that begins at
// index at of text. If none begins there it has no members.
func Members(text []byte, at int) Cursor {
	c := Cursor{text: text, key: -1, last: -1, next: len(text)}
	at = jsonspan.SkipSpace(text, at)
	if c.none = at == len(text) || text[at] != '{'; !c.none {
		c.next = jsonspan.SkipSpace(text, at+1)
	}
	return c
}

// Next goes to the next member and tells whether there is one.
func (c *Cursor) Next() bool {
	i := c.next
	if c.key >= 0 {
		i = jsonspan.SkipSpace(c.text, c.End())
		if !c.dropped {
			c.last = c.end
		}
		if i == len(c.text) || c.text[i] != ',' {
			return c.stop(i)
		}
		i = jsonspan.SkipSpace(c.text, i+1)
	}
	if i == len(c.text) || c.text[i] != '"' {
		return c.stop(i)
	}
	nameEnd := jsonspan.SkipString(c.text, i)
	colon := jsonspan.SkipSpace(c.text, nameEnd)
	if colon == len(c.text) || c.text[colon] != ':' {
		return c.stop(len(c.text))
	}
	start := jsonspan.SkipSpace(c.text, colon+1)
	if jsonspan.KindOf(c.text[start:]) == jsonspan.KindInvalid {
		return c.stop(len(c.text))
	}
	c.key, c.nameEnd, c.start, c.end, c.dropped = i, nameEnd, start, 0, false
	return true
}

// stop ends the walk at index i.
func (c *Cursor) stop(i int) bool {
	if c.after == 0 {
		c.after = len(c.text)
		if c.whole = i < len(c.text) && c.text[i] == '}'; c.whole {
			c.after = i + 1
		}
	}
	// A further Next finds the same end.
	c.key, c.next = -1, len(c.text)
	return false
}

// Close visits the rest and returns the index after the object; 0 if there is no
// object.
func (c *Cursor) Close() int {
	if c.none {
		return 0
	}
	for c.after == 0 && c.Next() { //nolint:revive // the walk itself finds the end
	}
	return c.after
}

// Whole tells, after the last member, whether the object ended as it should.
func (c *Cursor) Whole() bool { return c.whole }

// Name returns the name as written, without its quotes.
func (c *Cursor) Name() []byte { return c.text[c.key+1 : max(c.nameEnd-1, c.key+1)] }

// Text returns the name decoded, for texts that a client wrote.
func (c *Cursor) Text() []byte {
	text, _ := jsonspan.Text(nil, c.text[c.key:c.nameEnd])
	return text
}

// Start returns the index of the value.
func (c *Cursor) Start() int { return c.start }

// End returns the index after the value.
func (c *Cursor) End() int {
	if c.end == 0 {
		c.end = jsonspan.SkipValue(c.text, c.start)
	}
	return c.end
}

// Skip says where the value ends, for a caller that has walked it; 0 if it does not
// know.
func (c *Cursor) Skip(end int) { c.end = end }

// Value returns the value as written.
func (c *Cursor) Value() []byte { return c.text[c.start:c.End():c.end] }

// Dropped tells whether the member was left out.
func (c *Cursor) Dropped() bool { return c.dropped }

// Kind returns the type of the value.
func (c *Cursor) Kind() jsonspan.Kind { return jsonspan.KindOf(c.text[c.start:]) }

// Items visits the elements of one array, in order. Take it from Elements.
type Items struct {
	text  []byte
	start int // -1 before the first element
	end   int
	next  int
	after int
	index int
	none  bool // there is no array
}

// Elements returns Items before the first element of the array that begins at
// index at of text. If none begins there it has no elements.
func Elements(text []byte, at int) Items {
	it := Items{text: text, start: -1, next: len(text), index: -1}
	at = jsonspan.SkipSpace(text, at)
	if it.none = at == len(text) || text[at] != '['; !it.none {
		it.next = jsonspan.SkipSpace(text, at+1)
	}
	return it
}

// Next goes to the next element and tells whether there is one.
func (it *Items) Next() bool {
	i := it.next
	if it.start >= 0 {
		if it.end == 0 {
			it.end = jsonspan.SkipValue(it.text, it.start)
		}
		i = jsonspan.SkipSpace(it.text, it.end)
		if i == len(it.text) || it.text[i] != ',' {
			return it.stop(i)
		}
		i = jsonspan.SkipSpace(it.text, i+1)
	}
	if jsonspan.KindOf(it.text[i:]) == jsonspan.KindInvalid {
		return it.stop(i)
	}
	it.start, it.end = i, 0
	it.index++
	return true
}

func (it *Items) stop(i int) bool {
	if it.after == 0 {
		it.after = len(it.text)
		if i < len(it.text) && it.text[i] == ']' {
			it.after = i + 1
		}
	}
	it.start, it.next = -1, len(it.text)
	return false
}

// Close visits the rest and returns the index after the array; 0 if there is no
// array.
func (it *Items) Close() int {
	if it.none {
		return 0
	}
	for it.after == 0 && it.Next() { //nolint:revive // the walk itself finds the end
	}
	return it.after
}

// Index returns the place of the current element, from 0.
func (it *Items) Index() int { return it.index }

// Start returns the index of the element in the text.
func (it *Items) Start() int { return it.start }

// Skip says where the element ends, for a caller that has walked it; 0 if it does
// not know.
func (it *Items) Skip(end int) { it.end = end }

// Kind returns the type of the element.
func (it *Items) Kind() jsonspan.Kind { return jsonspan.KindOf(it.text[it.start:]) }
