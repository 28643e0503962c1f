package jsonspan

import "slices"

// Splicer copies a text with some of its parts replaced. The replacements must come in the order of the text.
// NewSplicer returns it.
type Splicer struct {
	dst, text []byte
	from      int // the text before this index is copied or replaced
	shift     int // how many bytes longer the copy is than the text before from
	changed   bool
}

// NewSplicer returns a Splicer that appends the copy of text to dst.
func NewSplicer(dst, text []byte) Splicer { return Splicer{dst: dst, text: text} }

// Replace writes raw in place of text[start:end].
func (s *Splicer) Replace(start, end int, raw []byte) {
	start = max(start, s.from)
	if end < start {
		return
	}
	if !s.changed {
		s.dst = slices.Grow(s.dst, len(s.text)+len(raw)) // a copy that grows by steps would need several times its memory
	}
	s.dst = append(s.dst, s.text[s.from:start]...)
	s.dst = append(s.dst, raw...)
	s.shift += len(raw) - (end - start)
	s.from, s.changed = end, true
}

// Shift returns by how many bytes the replacements so far have moved the rest of the text.
func (s *Splicer) Shift() int { return s.shift }

// Changed reports whether anything was replaced.
func (s *Splicer) Changed() bool { return s.changed }

// Finish copies the rest of the text and returns the extended dst.
func (s *Splicer) Finish() []byte { return append(s.dst, s.text[s.from:]...) }

// Set replaces the value of the current member by raw.
func (c *ObjectCursor) Set(s *Splicer, raw []byte) { s.Replace(c.start, c.End(), raw) }

// Drop leaves out the current member and one comma next to it.
func (c *ObjectCursor) Drop(s *Splicer) {
	c.dropped = true
	if c.lastKept >= 0 {
		s.Replace(c.lastKept, c.End(), nil)
		return
	}
	end := c.End()
	if i := SkipSpace(c.text, end); i < len(c.text) && c.text[i] == ',' {
		end = SkipSpace(c.text, i+1)
	}
	s.Replace(c.key, end, nil)
}
