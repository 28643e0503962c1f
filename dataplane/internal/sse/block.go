package sse

import (
	"bytes"
	"slices"
)

// block is the parsed part of the block that is being read. Positions are offsets into the block, because its bytes
// may still move.
type block struct {
	line    int  // where the line being read starts
	fields  bool // a line other than a leading comment has been read
	comment bool
	name    span
	data    span
	lines   int    // number of data fields
	bare    bool   // a line begins with a brace
	extra   bool   // a line is neither an event nor a data field
	joined  []byte // the joined data of several data fields
}

type span struct{ start, end int }

// read parses the line raw[start:end], without its line end, as a field.
func (b *block) read(raw []byte, start, end int) {
	if start == end {
		return
	}

	b.fields = true
	line := raw[start:end]
	switch line[0] {
	case 'd':
		if value, ok := fieldValue(line, "data"); ok {
			b.readData(raw, span{end - len(value), end})
			return
		}
	case 'e':
		if value, ok := fieldValue(line, "event"); ok {
			b.name = span{end - len(value), end}
			return
		}
	case '{':
		b.bare = true
	}

	b.extra = true
}

// readData adds the value of a data field.
func (b *block) readData(raw []byte, value span) {
	if b.lines == 1 {
		b.joined = append(b.joined[:0], raw[b.data.start:b.data.end]...)
	}
	if b.lines >= 1 {
		b.joined = append(b.joined, '\n')
		b.joined = append(b.joined, raw[value.start:value.end]...)
	}
	b.data = value
	b.lines++
}

// fieldValue returns the value of line if it is the named field. One space after the colon is not part of the value;
// a line without a colon is a field without a value.
func fieldValue(line []byte, name string) (value []byte, ok bool) {
	if len(line) < len(name) || string(line[:len(name)]) != name {
		return nil, false
	}
	value = line[len(name):]
	if len(value) == 0 {
		return value, true
	}
	if value[0] != ':' {
		return nil, false
	}
	return bytes.TrimPrefix(value[1:], []byte(" ")), true
}

// event returns the block as an event; raw is all its bytes.
func (b *block) event(raw []byte) Event {
	event := Event{
		Raw:     slices.Clip(raw),
		Name:    raw[b.name.start:b.name.end:b.name.end],
		Comment: b.comment,
		Bare:    b.bare,
		Extra:   b.extra,
	}
	switch {
	case b.lines == 1:
		event.Data = raw[b.data.start:b.data.end:b.data.end]
	case b.lines > 1:
		event.Data = slices.Clip(b.joined)
	}
	return event
}

// reset starts another block. The last event may still use joined, which is not written to before that event becomes
// invalid.
func (b *block) reset() {
	joined := b.joined
	if cap(joined) > maxPooledBytes {
		joined = nil
	}
	*b = block{joined: joined}
}
