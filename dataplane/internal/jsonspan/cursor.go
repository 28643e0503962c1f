package jsonspan

// The cursors visit the members of an object or the elements of an array in a single pass and without allocating
// memory. They do not validate the text first. No text makes them panic or loop; in a malformed text they visit
// everything before the first error.

// ObjectCursor visits the members of one object in the order of the text. ObjectAt returns it.
type ObjectCursor struct {
	text     []byte
	key      int // index of the opening quote of the current name, -1 before the first member
	nameEnd  int
	start    int
	end      int // index after the current value, 0 while it is unknown
	next     int // index of the first name, until the first Next
	lastKept int // end of the last member that was not dropped, -1 if there is none
	after    int // index after the object, 0 while it is unknown
	dropped  bool
	none     bool // there is no object
	complete bool
}

// ObjectAt returns a cursor before the first member of the object that begins at index at of text, perhaps after white
// space. If no object begins there, the cursor has no members.
func ObjectAt(text []byte, at int) ObjectCursor {
	c := ObjectCursor{
		text:     text,
		key:      -1,
		lastKept: -1,
		next:     len(text),
	}
	at = SkipSpace(text, at)
	if c.none = at == len(text) || text[at] != '{'; !c.none {
		c.next = SkipSpace(text, at+1)
	}
	return c
}

// Next moves to the next member and reports whether there is one.
func (c *ObjectCursor) Next() bool {
	i := c.next
	if c.key >= 0 {
		i = SkipSpace(c.text, c.End())
		if !c.dropped {
			c.lastKept = c.end
		}
		if i == len(c.text) || c.text[i] != ',' {
			return c.stop(i)
		}
		i = SkipSpace(c.text, i+1)
	}

	if i == len(c.text) || c.text[i] != '"' {
		return c.stop(i)
	}

	nameEnd := SkipString(c.text, i)
	colon := SkipSpace(c.text, nameEnd)
	if colon == len(c.text) || c.text[colon] != ':' {
		return c.stop(len(c.text))
	}

	start := SkipSpace(c.text, colon+1)
	if KindOf(c.text[start:]) == KindInvalid {
		return c.stop(len(c.text))
	}

	c.key, c.nameEnd, c.start, c.end, c.dropped = i, nameEnd, start, 0, false
	return true
}

// stop ends the walk at index i.
func (c *ObjectCursor) stop(i int) bool {
	if c.after == 0 {
		c.after = len(c.text)
		if c.complete = i < len(c.text) && c.text[i] == '}'; c.complete {
			c.after = i + 1
		}
	}
	c.key, c.next = -1, len(c.text) // a further Next ends in the same way
	return false
}

// SkipRest visits the remaining members and returns the index after the object, 0 if there is no object.
func (c *ObjectCursor) SkipRest() int {
	if c.none {
		return 0
	}
	for c.after == 0 && c.Next() { //nolint:revive // the walk itself finds the end
	}
	return c.after
}

// Complete reports, after the last member, whether the object ended with its closing brace.
func (c *ObjectCursor) Complete() bool { return c.complete }

// Exists reports whether there is an object.
func (c *ObjectCursor) Exists() bool { return !c.none }

// Alone reports, after the last member, whether the object is complete and the rest of the text is white space.
func (c *ObjectCursor) Alone() bool {
	return c.complete && SkipSpace(c.text, c.after) == len(c.text)
}

// Name returns the name as written, without its quotes. It equals the decoded name unless it is written with escapes.
func (c *ObjectCursor) Name() []byte { return c.text[c.key+1 : max(c.nameEnd-1, c.key+1)] }

// DecodedName returns the decoded name. It allocates memory only for a name that is written with escapes.
func (c *ObjectCursor) DecodedName() []byte {
	text, _ := Text(nil, c.text[c.key:c.nameEnd])
	return text
}

// Start returns the index of the value.
func (c *ObjectCursor) Start() int { return c.start }

// End returns the index after the value.
func (c *ObjectCursor) End() int {
	if c.end == 0 {
		c.end = SkipValue(c.text, c.start)
	}
	return c.end
}

// SetEnd sets the index after the value, for a caller that has walked the value itself. 0 means that it is unknown.
func (c *ObjectCursor) SetEnd(end int) { c.end = end }

// Value returns the value as written.
func (c *ObjectCursor) Value() []byte { return c.text[c.start:c.End():c.end] }

// Dropped reports whether Drop was called for the member.
func (c *ObjectCursor) Dropped() bool { return c.dropped }

// Kind returns the type of the value.
func (c *ObjectCursor) Kind() Kind { return KindOf(c.text[c.start:]) }

// ArrayCursor visits the elements of one array in order. ArrayAt returns it.
type ArrayCursor struct {
	text  []byte
	start int // -1 before the first element
	end   int // index after the current element, 0 while it is unknown
	next  int // index of the first element, until the first Next
	after int // index after the array, 0 while it is unknown
	index int
	none  bool // there is no array
}

// ArrayAt returns a cursor before the first element of the array that begins at index at of text, perhaps after white
// space. If no array begins there, the cursor has no elements.
func ArrayAt(text []byte, at int) ArrayCursor {
	c := ArrayCursor{
		text:  text,
		start: -1,
		next:  len(text),
		index: -1,
	}
	at = SkipSpace(text, at)
	if c.none = at == len(text) || text[at] != '['; !c.none {
		c.next = SkipSpace(text, at+1)
	}
	return c
}

// Next moves to the next element and reports whether there is one.
func (c *ArrayCursor) Next() bool {
	i := c.next
	if c.start >= 0 {
		i = SkipSpace(c.text, c.End())
		if i == len(c.text) || c.text[i] != ',' {
			return c.stop(i)
		}
		i = SkipSpace(c.text, i+1)
	}
	if KindOf(c.text[i:]) == KindInvalid {
		return c.stop(i)
	}
	c.start, c.end = i, 0
	c.index++
	return true
}

// stop ends the walk at index i.
func (c *ArrayCursor) stop(i int) bool {
	if c.after == 0 {
		c.after = len(c.text)
		if i < len(c.text) && c.text[i] == ']' {
			c.after = i + 1
		}
	}
	c.start, c.next = -1, len(c.text) // a further Next ends in the same way
	return false
}

// SkipRest visits the remaining elements and returns the index after the array, 0 if there is no array.
func (c *ArrayCursor) SkipRest() int {
	if c.none {
		return 0
	}
	for c.after == 0 && c.Next() { //nolint:revive // the walk itself finds the end
	}
	return c.after
}

// Index returns the index of the current element in the array, from 0.
func (c *ArrayCursor) Index() int { return c.index }

// Start returns the index of the element in the text.
func (c *ArrayCursor) Start() int { return c.start }

// End returns the index after the element.
func (c *ArrayCursor) End() int {
	if c.end == 0 {
		c.end = SkipValue(c.text, c.start)
	}
	return c.end
}

// SetEnd sets the index after the element, for a caller that has walked it. 0 means that it is unknown.
func (c *ArrayCursor) SetEnd(end int) { c.end = end }

// Value returns the element as written.
func (c *ArrayCursor) Value() []byte { return c.text[c.start:c.End():c.end] }

// Kind returns the type of the element.
func (c *ArrayCursor) Kind() Kind { return KindOf(c.text[c.start:]) }
